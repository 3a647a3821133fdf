"""Keeping: tenants that do not lend may use what is reserved, as long as something of their guarantee is unused.

A reservation must not take what is kept for them. So the larger task waits until its capacity is free beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from fairbind.model import Snapshot
from fairbind.model.reservations import Reservation
from fairbind.scheduling.cycle.order.kept_back import list_keeping
from fairbind.scheduling.cycle.order.siblings import Sibling
from fairbind.scheduling.cycle.reservations.kept import KeptReservations


def add_keeping(kept: KeptReservations, snapshot: Snapshot) -> None:
    """Let tenants use reservations that are about what they keep now."""
    keeping = Keeping(snapshot, lambda subject: snapshot.held.get(subject, 0))
    for each in kept.list_all() if keeping.is_used else ():
        kept.set_behind(each, each.behind | keeping.list_keepers(each))


class Keeping:
    """What tenants keep, as things stand. get_used: how much of a guarantee is used, by its subject."""

    def __init__(self, snapshot: Snapshot, get_used: Callable[[Hashable], int]) -> None:
        self._snapshot = snapshot
        self._unused = [
            (sibling, each)
            for sibling, place in list_keeping(snapshot.hierarchy)
            for each in place.guarantees
            if each.resource in snapshot.resources and get_used(each.subject) < each.amount
        ]
        self._paths: dict[str, frozenset[Sibling]] = {}
        if self._unused:
            self._paths = {tenant.name: _list_path(tenant.name, snapshot) for tenant in snapshot.tenants}

    @property
    def is_used(self) -> bool:
        """Whether any tenant keeps anything."""
        return bool(self._unused)

    def list_keepers(self, reservation: Reservation) -> frozenset[str]:
        """Return the tenants that keep something of what is reserved."""
        snapshot = self._snapshot
        server = snapshot.servers.find_index(reservation.server)
        keepers = {
            sibling
            for sibling, each in self._unused
            if server is not None
            and each.servers.domain_k[server] == 0
            and reservation.demand_r[snapshot.resources.index(each.resource)]
        }
        keepers -= self._paths.get(reservation.tenant, frozenset())
        return frozenset(name for name, path in self._paths.items() if not keepers.isdisjoint(path))


def _list_path(leaf: str, snapshot: Snapshot) -> frozenset[Sibling]:
    above = (Sibling(each.tenant.name, is_inner=True) for each in snapshot.hierarchy.list_above(leaf))
    return frozenset((Sibling(leaf, is_inner=False), *above))
