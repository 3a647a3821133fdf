"""From what happened to members of groups to what follows for the others that wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.filters.anti_affinity import close
from fairbind.cluster.state.groups import JOB
from fairbind.cluster.state.node_state import Axes
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.model import NO_DOMAIN, Domains, Placement, Rejection, RejectionKind

ELSEWHERE = Rejection(RejectionKind.AFFINITY)
"""Of nodes in another domain than the members that are placed."""


def resolve_groups(state: ClusterState) -> None:
    """Bring waiting members to what Jobs, PodGroups and other members of their groups say now."""
    groups = state.groups
    for namespace, names in groups.take_jobs().items():
        owned = [uid for uid in state.pods.by_namespace.get(namespace, ()) if _is_owned(state, uid, names)]
        state.move_all(sorted(owned))
    state.move_all(sorted(groups.take_reordered()))
    state.queues.to_build.add(groups.take_changes())


def _is_owned(state: ClusterState, uid: str, names: set[str]) -> bool:
    """Tell whether the controller of a pod is one of some Jobs."""
    owner = state.pods.entries[uid].facts.owner
    return owner is not None and owner.kind == JOB and owner.name in names


def close_others(base: Placement, domains: Domains, node: str, index: Mapping[str, int]) -> Placement:
    """Return a placement without what is not in the domain of a node; with nothing if that is in none."""
    server = index.get(node)
    domain = NO_DOMAIN if server is None else int(domains.domain_k[server])
    closed_k = np.ones_like(base.eligible_k) if domain == NO_DOMAIN else domains.domain_k != domain
    return close(base, closed_k, ELSEWHERE)


def add_kept(base: Placement, key: QueueKey, state: ClusterState, axes: Axes) -> Placement:
    """Return a placement with what is kept for the group of a class, beside what else is reserved for it."""
    kept = state.groups.kept
    if key.group is None or not kept.count(key.group):
        return base
    reserved = dict(base.reserved)
    for server, kept_r in kept.find_reserved(key.group, state.servers.index, axes).items():
        reserved[server] = tuple(map(sum, zip(kept_r, reserved.get(server, (0,) * len(axes)), strict=True)))
    return replace(base, reserved=reserved)
