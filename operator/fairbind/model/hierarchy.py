"""The tree of tenants: who is below whom, who comes first among siblings, and what is guaranteed to whom.

Tenants that hold tasks are leaves: they are `Snapshot.tenants`. The tenants above them are inner ones. A declared
tenant that has children and namespaces is both: an inner one, and a leaf of the same name below it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fairbind.model.tenants import Tenant
from fairbind.model.topology import Domains

MAX_DEPTH: Final = 5
"""So many levels below the root at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Guarantee:
    """How much of a resource a tenant gets before siblings that are above theirs.

    subject: by which `Snapshot.held` says how much of it is used by all below the tenant. amount: base units, above 0,
    what counts of it now. servers: those that it is about are its one domain, as in a limit.
    """

    subject: Hashable
    resource: str
    amount: int
    servers: Domains


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a tenant is in the tree. parent: the inner tenant above it; None: the root.

    priority: among siblings. guarantees: one for each entry and resource. lends: whether others may use what it does
    not use of them.
    """

    parent: str | None = None
    priority: int = 0
    guarantees: tuple[Guarantee, ...] = ()
    lends: bool = True


BELOW_THE_ROOT: Final = Place()


@dataclass(frozen=True, slots=True, eq=False)
class InnerTenant:
    """A tenant above others. tenant: `allocated_r` is what all below it hold; it has no holdings of its own."""

    tenant: Tenant
    place: Place


@dataclass(frozen=True, slots=True, eq=False)
class Hierarchy:
    """The tree. leaves: by the tenant's name; one that is left out hangs below the root, with nothing special.

    inner: by name. Every parent is in it, and there are no circles.
    """

    leaves: Mapping[str, Place] = field(default_factory=dict)
    inner: Mapping[str, InnerTenant] = field(default_factory=dict)

    @property
    def is_flat(self) -> bool:
        """Whether all tenants are siblings. An inner tenant without a leaf may keep capacity, too."""
        return not (self.leaves or self.inner)

    def get_place(self, leaf: str) -> Place:
        """Return where a leaf is."""
        return self.leaves.get(leaf, BELOW_THE_ROOT)

    def list_above(self, leaf: str) -> Iterator[InnerTenant]:
        """Yield the inner tenants above a leaf, the nearest first."""
        parent = self.get_place(leaf).parent
        while parent is not None:
            inner = self.inner[parent]
            yield inner
            parent = inner.place.parent


FLAT: Final = Hierarchy()
"""No tree: all tenants are siblings."""
