"""To which nodes a pod is narrowed when its gate opens, so that the other scheduler keeps to what the policy decided.

Policies that compare tenants by server class mean the class, and any node of it will do. So a pod is narrowed to the
nodes of the decided class on which its filters pass, whether they have room now or not: a narrowed pod cannot be
widened. The decided node comes first, then those with most free capacity. Other policies narrow nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fairbind.cluster.cache.books import Books
from fairbind.cluster.objects.facts import MOST_HOSTS, PodFacts
from fairbind.model import Snapshot
from fairbind.model.servers import sum_free_shares
from fairbind.scheduling import POLICIES


def find_narrowed(books: Books, build_snapshot: Callable[[], Snapshot], facts: PodFacts, node: str) -> list[str] | None:
    """Return the nodes to which a pod is narrowed that is decided to go to a node; None: it is not narrowed.

    build_snapshot: gives the snapshot of now. The first `MOST_HOSTS` are returned.
    """
    if not POLICIES[books.settings.policy].decides_class or node not in books.servers.index:
        return None
    if facts.pin is not None:
        return None  # it names its node itself
    servers = build_snapshot().servers
    constraints = books.volumes.constrain(facts) if facts.claims else facts.constraints
    server = books.servers.index[node]
    in_class_k = servers.class_k == servers.class_k[server]
    if bool(in_class_k.all()):
        return None
    allowed_k = in_class_k & books.eligibility.get_placement(constraints).eligible_k
    allowed_k[server] = True
    found_n = np.flatnonzero(allowed_k)
    free_share_n = sum_free_shares(servers.free_kr[found_n], servers.capacity_kr[found_n])
    order = np.lexsort((found_n, -free_share_n, found_n != server))
    return [servers.names[k] for k in found_n[order[:MOST_HOSTS]].tolist()]
