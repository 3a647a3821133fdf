"""Tables of pods with a line for each kind of pod: thousands are equal in all that a line says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

MOST_NAMED = 3

Row = TypeVar("Row")


def group_equal(rows: Iterable[Row], kind: Callable[[Row], Hashable]) -> list[list[Row]]:
    """Return rows by their kind, in the order of the first of each.

    >>> group_equal(["a1", "b1", "a2"], lambda row: row[0])
    [['a1', 'a2'], ['b1']]
    """
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(kind(row), []).append(row)
    return list(groups.values())


def name_first(names: Sequence[str]) -> str:
    """Return the first name, and how many more there are.

    >>> name_first(["a"]), name_first(["a", "b", "c"])
    ('a', 'a and 2 more')
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def name_some(names: Iterable[str]) -> str:
    """Return the first different names.

    >>> name_some(["n-1", "n-2", "n-1"]), name_some("abcde")
    ('n-1, n-2', 'a, b, c and 2 more')
    """
    different = list(dict.fromkeys(names))
    shown = ", ".join(different[:MOST_NAMED])
    return shown if len(different) <= MOST_NAMED else f"{shown} and {len(different) - MOST_NAMED} more"
