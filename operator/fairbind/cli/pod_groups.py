"""Tables that stay short on a large cluster: a row for each kind of pod, and not more rows than people read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fairbind.cli.mechanisms.tables import find_width, lay_out_explained

MOST_NAMED = 3
MOST_KINDS = 20
MOST_TENANTS = 30
"""A table shows so many; JSON and YAML have all."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods that are equal in all that is said of them. first: the name of one. text: what is said."""

    first: str
    tenant: str
    pods: int
    text: str


def lay_out_kinds(heading: str, kinds: Sequence[PodKind]) -> list[str]:
    """Return a table of kinds of pods, what is said of them below each, and how many more there are."""
    shown, rest = kinds[:MOST_KINDS], kinds[MOST_KINDS:]
    rows = [[heading, "tenant", "pods"], *([kind.first, kind.tenant, str(kind.pods)] for kind in shown)]
    lines = lay_out_explained(rows, [kind.text for kind in shown], width=find_width(), numbers_from=2)
    if rest:
        lines.append(f"and {sum(kind.pods for kind in rest)} pods of {len(rest)} other kinds; -o json has all")
    return lines


def choose_tenants(names: Sequence[str], sort_key: Callable[[str], Any], order: str) -> tuple[list[str], list[str]]:
    """Return the tenants that a table shows, and what it says of the others.

    sort_key: where there are too many, those are shown that come first by it. order: the same in words.

    >>> choose_tenants(["a", "b"], len, "the shortest")
    (['a', 'b'], [])
    """
    if len(names) <= MOST_TENANTS:
        return list(names), []
    return sorted(names, key=sort_key)[:MOST_TENANTS], [
        f"{MOST_TENANTS} of {len(names)} tenants, {order} first; -o json has all"
    ]


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
