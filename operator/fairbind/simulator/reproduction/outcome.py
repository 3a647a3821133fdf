"""What reproducing a figure leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Value = str | int | float
Found = TypeVar("Found")
Verdict = Literal["", "agrees", "direction only", "contradicts"]


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one name. x: numbers, or the names of groups of bars. size: of circles, in any unit."""

    name: str
    x: Sequence[Value]
    y: Sequence[float]
    size: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes, with the paper's names. has_zero: whether the vertical axis begins at 0."""

    kind: Literal["lines", "steps", "bars", "circles"]
    x_name: str
    y_name: str
    series: Sequence[Series]
    title: str = ""
    has_log_x: bool = False
    has_log_y: bool = False
    has_zero: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """One statement of the paper beside ours. why: why they differ, or that they agree. verdict: empty: not judged."""

    paper: str
    ours: str
    why: str
    verdict: Verdict = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A figure or table of a paper, done again.

    name: of the files, as drfh-figure-5. setting: what was run, and what of it is ours. columns, rows: of the CSV file.
    """

    name: str
    title: str
    setting: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    panels: Sequence[Panel]
    comparisons: Sequence[Comparison]


@dataclass(slots=True)
class Lab:
    """What figures share. is_full: whether the paper's own size is wanted. clock: seconds, for what is timed.

    Figures of one paper stand on the same runs, which are made once. known: what has been made, by its key; another
    mapping can keep it for longer than this lab. machines: GHz and GB of each virtual machine of a trace, for the
    figures that draw users of it; without them these draw synthetic ones.
    """

    is_full: bool
    clock: Callable[[], float]
    known: MutableMapping[Hashable, Any] = field(default_factory=dict)
    machines: Sequence[tuple[float, float]] = ()

    def remember(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """Return what was made under the key, and make it the first time."""
        with contextlib.suppress(KeyError):
            known: Found = self.known[key]
            return known
        self.known[key] = made = make()
        return made
