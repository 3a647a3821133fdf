"""To which nodes a pod is narrowed when its gate opens, so that the other scheduler keeps to what the policy decided.

A narrowed pod cannot be widened, so full nodes on which its filters pass are among them. The decided node comes first.

* Policies that compare tenants by server class, and those that follow an exact answer or are guided by one, mean the
  class, and any node of it will do. So a pod is narrowed to the nodes of the decided class, those with most free
  capacity first, unless it could go to no other class.
* Other policies narrow nothing, unless it is wanted (`narrows_to_nodes`). Then a pod is narrowed to the best
  `MOST_HOSTS` nodes: those on which it fits, the fullest first, and then the others, the emptiest first. Where no more
  nodes than that will do, all of them would be named, and nodes that come later would be ruled out: it is not narrowed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.objects.facts import MOST_HOSTS, PodFacts
from fairbind.cluster.state.node_state import compute_vector
from fairbind.model import Snapshot
from fairbind.model.servers import sum_free_shares
from fairbind.scheduling import find_decided_classes

FULL = 1e9
"""More than the free shares of any node sum up to."""


def find_narrowed(
    state: ClusterState, build_snapshot: Callable[[], Snapshot], facts: PodFacts, node: str
) -> list[str] | None:
    """Return the nodes to which a pod is narrowed that is decided to go to a node; None: it is not narrowed.

    build_snapshot: gives the snapshot of now. The first `MOST_HOSTS` are returned.
    """
    if node not in state.servers.index or facts.pin is not None:
        return None  # a pod with a pin names its node itself
    class_k = find_decided_classes(state.policy.settings, state.policy.targets, build_snapshot)
    if class_k is None and not state.schedulers.narrows_to_nodes:
        return None
    servers = build_snapshot().servers
    constraints = state.volumes.constrain(facts) if facts.claims else facts.constraints
    eligible_k = state.filters.eligibility.get_placement(constraints).eligible_k
    server = state.servers.index[node]
    if class_k is not None:
        in_class_k = class_k == class_k[server]
        if not (eligible_k & ~in_class_k).any():
            return None
        allowed_k = in_class_k & eligible_k
        allowed_k[server] = True
    else:
        allowed_k = eligible_k.copy()
        allowed_k[server] = True
        if np.count_nonzero(allowed_k) <= MOST_HOSTS:
            return None
    found_n = np.flatnonzero(allowed_k)
    free_nr = servers.free_kr[found_n]
    emptiness_n = sum_free_shares(free_nr, servers.capacity_kr[found_n])
    if class_k is not None:
        rank_n = -emptiness_n
    else:
        fits_n = (free_nr >= np.array(compute_vector(facts.demand.real, state.servers.axes))).all(axis=1)
        rank_n = np.where(fits_n, emptiness_n, FULL - emptiness_n)
    order = np.lexsort((found_n, rank_n, found_n != server))
    return [servers.names[k] for k in found_n[order[:MOST_HOSTS]].tolist()]
