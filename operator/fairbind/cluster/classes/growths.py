"""Deferred growth in place, and the tenants for whose growth capacity is reserved.

A kubelet that defers a resize grants it as soon as its node has the capacity. kube-scheduler always reserves that
capacity. So one tenant's tiny pods, one on each node and each to grow to a whole node, would close the cluster to all
others. Here nothing is reserved for the growth of a tenant that is above its fair share: its pods hold what is
allocated, and others may use the rest.

Such a tenant has, of some resource that counts in shares, a larger part of the usable nodes than its weight is of the
weights of all tenants with pods. In a tree that is so among siblings, and the parts are multiplied from level to level.
What is deferred always counts in its share. So the answer does not depend on itself, and no order of events makes it
another.

Where another scheduler places the pods of tenants, that one reserves the capacity, and so it counts as held here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.state.node_state import Axes
from fairbind.cluster.state.usage import Usage


def follow_growths(state: ClusterState, counted: Iterable[str]) -> bool:
    """Bring pods with a deferred growth to what they hold on the nodes of now, and return whether any differs.

    counted: the resources whose shares are compared. The state of nodes must be flushed, and be flushed again then.
    """
    above = frozenset[str]()
    if state.running.growing and state.schedulers.gated is None and not state.schedulers.asking:
        axes, usable_r = state.servers.axes, state.servers.usable_r
        above = find_above(state.usage, state.running.growing, axes, usable_r, frozenset(counted))
    changed_sides, state.above = above ^ state.above, above
    for tenant in sorted(changed_sides & state.running.growing.keys()):
        state.move_all(sorted(state.running.growing[tenant]))
    return bool(changed_sides)


def find_above(
    usage: Usage, tenants: Iterable[str], axes: Axes, usable_r: Sequence[int], counted: frozenset[str]
) -> frozenset[str]:
    """Return which of the tenants have more of a counted resource than is theirs by their weights."""
    whole = [(r, amount) for r, amount in zip(axes, usable_r, strict=True) if r in counted and amount]
    return frozenset(
        each.name
        for each in map(usage.by_name.__getitem__, tenants)
        for part in (usage.inner.compute_part(each),)
        if any(each.share.get(r, 0) > part * amount for r, amount in whole)
    )
