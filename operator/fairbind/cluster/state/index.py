"""An index of names: which keys each has, in the order in which they came."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def note_key(index: dict[Name, dict[str, None]], name: Name, key: str, *, is_there: bool) -> None:
    """Add a key to a name or take it away; a name without keys is in the index no more."""
    if is_there:
        index.setdefault(name, {})[key] = None
        return
    keys = index.get(name, {})
    keys.pop(key, None)
    if not keys:
        index.pop(name, None)
