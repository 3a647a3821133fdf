"""What the operator logs about nodes: what of them cannot be read or is left out, once for each node and fault."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from fairbind.cluster.state.kubelet_refusals import Rest

MOST_NAMES = 5
MOST_LINES = 10
"""A fault is often one of thousands of nodes; the metrics count the rest."""

_log = logging.getLogger(__name__)


class NodeFaultLog:
    """Remembers what it has logged, for as long as it is so."""

    def __init__(self) -> None:
        self._faults: Mapping[str, str] = {}
        self._left_out: frozenset[str] = frozenset()

    def note_rests(self, rests: Iterable[Rest]) -> None:
        """Log that nodes rest for pods of tenants, because their kubelets refuse these."""
        for rest in list(rests)[:MOST_LINES]:
            _log.warning(
                "node %s: its kubelet refuses pods of tenant %s; such pods do not go there for %.0f s",
                rest.node,
                rest.tenant,
                rest.seconds,
                extra={"node": rest.node, "tenant": rest.tenant},
            )

    def follow(self, faults: Mapping[str, str], left_out: Iterable[str]) -> None:
        """Take what is now. faults: by node. left_out: resources that count nowhere."""
        nodes_by_fault: dict[str, list[str]] = {}
        for node, fault in sorted(faults.items()):
            if self._faults.get(node) != fault:
                nodes_by_fault.setdefault(fault, []).append(node)
        for fault, nodes in list(nodes_by_fault.items())[:MOST_LINES]:
            _log.warning("node %s: %s", _name_some(nodes), fault, extra={"node": _name_some(nodes), "reason": fault})
        if len(nodes_by_fault) > MOST_LINES:
            _log.warning("nodes have %d more faults of other kinds", len(nodes_by_fault) - MOST_LINES)
        new = sorted(set(left_out) - self._left_out)
        if new:
            _log.warning("nodes offer too many resources; no pod can be given %s", _name_some(new))
        self._faults, self._left_out = faults, frozenset(left_out)


def _name_some(names: list[str]) -> str:
    """Return the first names and how many more there are.

    >>> _name_some(["a", "b"]), _name_some(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
