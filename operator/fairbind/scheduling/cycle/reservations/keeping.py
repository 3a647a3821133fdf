"""Keeping: tenants that do not lend may use what is reserved, as long as something of their guarantee is unused.

A reservation must not take what is kept for them. So the larger task waits until its capacity is free beside that.
"""

from __future__ import annotations

from fairbind.model import Snapshot
from fairbind.model.reservations import Reservation
from fairbind.scheduling.cycle.order.kept_back import list_keeping
from fairbind.scheduling.cycle.order.siblings import Sibling
from fairbind.scheduling.cycle.reservations.kept import KeptReservations


def add_keeping(kept: KeptReservations, snapshot: Snapshot) -> None:
    """Let tenants use reservations that are about what they keep now; until a review they stay behind these."""
    unused = [
        (sibling, each)
        for sibling, place in list_keeping(snapshot.hierarchy)
        for each in place.guarantees
        if each.resource in snapshot.resources and snapshot.held.get(each.subject, 0) < each.amount
    ]
    if not unused:
        return
    paths = {tenant.name: _list_path(tenant.name, snapshot) for tenant in snapshot.tenants}

    def list_behind(reservation: Reservation) -> frozenset[str]:
        server = snapshot.servers.find_index(reservation.server)
        keepers = {
            sibling
            for sibling, each in unused
            if server is not None
            and each.servers.domain_k[server] == 0
            and reservation.demand_r[snapshot.resources.index(each.resource)]
        }
        keepers -= paths.get(reservation.tenant, frozenset())
        return frozenset(name for name, path in paths.items() if not keepers.isdisjoint(path))

    for each in kept.list_all():
        behind = each.behind | list_behind(each)
        if behind != each.behind:
            kept.set_behind(each, behind)


def _list_path(leaf: str, snapshot: Snapshot) -> frozenset[Sibling]:
    above = (Sibling(each.tenant.name, is_inner=True) for each in snapshot.hierarchy.list_above(leaf))
    return frozenset((Sibling(leaf, is_inner=False), *above))
