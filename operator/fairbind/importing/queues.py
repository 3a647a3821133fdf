"""A queue of any system, by what a Tenant can say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from fairbind.importing.documents import Document
from fairbind.importing.fields import Place
from fairbind.importing.notes import Note

NodeLabels = tuple[tuple[str, str], ...]
"""Labels that nodes have, sorted; none: all nodes."""
Amounts = dict[tuple[NodeLabels, str], int]
"""Base units of a resource on some nodes."""
ParseText = Callable[[str, str], object]
"""From a document that is text in another one, and its name, to its value. Raises InvalidProblemError."""


@dataclass(slots=True)
class Queue:
    """A queue. name: of its Tenant. place: of the queue, for notes. parent: the key of another queue.

    parent_place, guarantee_place: of the fields, for notes; None: where the queue itself stands.

    guarantee: an amount of 0 says that there is none; what is absent is not said. keeps: whether it lends nothing of
    it. priority: None: not said.
    """

    name: str
    place: Place
    parent: str | None = None
    parent_place: Place | None = None
    weight: Fraction = Fraction(1)
    priority: int | None = None
    namespaces: list[str] = field(default_factory=list)
    guarantee: Amounts = field(default_factory=dict)
    guarantee_place: Place | None = None
    keeps: bool = False
    limit: Amounts = field(default_factory=dict)
    min_runtime_seconds: int | None = None
    user_label: str | None = None


@dataclass(slots=True)
class Reading:
    """What a reader has found. queues: by key, in the order of the files."""

    queues: dict[str, Queue] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


Reader = Callable[[list[Document], ParseText], Reading]


def on_all_nodes(amounts: Mapping[str, int]) -> Amounts:
    """Return amounts that are about all nodes."""
    return {((), resource): amount for resource, amount in amounts.items()}


def add_up(parts: Iterable[Amounts]) -> Amounts:
    """Return sums by nodes and resource."""
    total: Amounts = {}
    for part in parts:
        for key, amount in part.items():
            total[key] = total.get(key, 0) + amount
    return total
