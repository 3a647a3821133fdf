"""Room for pods whose gates are open and that no node has yet, after a restart.

The operator before this one decided room for them, and nothing says where. Without any, others would be decided into it
while the other scheduler still places them. So each gets room where it fits, the oldest first; where it goes in the end
is that scheduler's affair.
"""

from __future__ import annotations

import numpy as np

from fairbind.cluster.cache.books import Books
from fairbind.cluster.cache.pending import compute_vector
from fairbind.cluster.cache.pods import Opened, PodEntry
from fairbind.model.servers import IntArray, sum_free_shares


def find_opened(books: Books) -> list[PodEntry]:
    """Return the pods on their way that have no room, the oldest first."""
    opened = [entry for entry in books.entries.values() if isinstance(entry.position, Opened)]
    return sorted(opened, key=lambda entry: (entry.facts.created, entry.facts.uid))


def find_room(books: Books, opened: list[PodEntry]) -> list[tuple[PodEntry, str]]:
    """Return a node for each of the pods that fits somewhere, on the fullest node that it may use.

    The arrays of the nodes must be up to date.
    """
    servers = books.servers
    free_kr: IntArray = servers.free_kr.copy()
    found = []
    for entry in opened:
        facts = entry.facts
        demand_r = np.array(compute_vector(facts.demand.real, servers.axes), dtype=np.int64)
        eligible_k = books.eligibility.get_placement(facts.constraints).eligible_k
        fits_k = np.flatnonzero(eligible_k & (free_kr >= demand_r).all(axis=1))
        if fits_k.size:
            server = int(fits_k[int(sum_free_shares(free_kr[fits_k], servers.capacity_kr[fits_k]).argmin())])
            free_kr[server] -= demand_r
            found.append((entry, servers.names[server]))
    return found
