"""Nodes by the label `kubernetes.io/hostname`, by which a pod can be narrowed to many of them.

Where a node lacks the label, or two nodes have the same value, the label would not say which node is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fairbind.cluster.objects.facts import HOSTNAME, MOST_HOSTS


class HostNames:
    """The host names of all nodes of a cluster, as their labels have them.

    >>> names = HostNames({"n1": {HOSTNAME: "h1"}, "n2": {HOSTNAME: "h2"}, "n3": {HOSTNAME: "h2"}, "n4": {}})
    >>> names.find(["n1"]), names.find(["n1", "n2"]), names.find(["n4"])
    (['h1'], None, None)
    """

    def __init__(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """labels: of every node of the cluster, by its name. Complexity: O(nodes), here and not in `find`."""
        self._by_node = {node: each[HOSTNAME] for node, each in labels.items() if HOSTNAME in each}
        self._bearers = Counter(self._by_node.values())

    def find(self, nodes: Sequence[str]) -> list[str] | None:
        """Return the host names of the first `MOST_HOSTS` nodes, in order; None when they do not tell nodes apart.

        nodes: best fit first; all on which the filters pass, when there are no more.
        """
        hosts = [self._by_node.get(node) for node in nodes[:MOST_HOSTS]]
        known = [host for host in hosts if host is not None and self._bearers[host] == 1]
        return known if known and len(known) == len(hosts) else None
