"""Counts calls, where what is done how often matters and not how long it takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest


def count_calls(monkeypatch: pytest.MonkeyPatch, *named: tuple[object, str]) -> Counter[str]:
    """Return how often these functions are called from now on, by name. named: where each one is, and its name."""
    counts: Counter[str] = Counter()

    def count(where: object, name: str) -> None:
        counted = getattr(where, name)

        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return counted(*arguments, **options)

        monkeypatch.setattr(where, name, call)

    for where, name in named:
        count(where, name)
    return counts
