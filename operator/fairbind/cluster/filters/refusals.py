"""Why one node refuses one task, in plain words: what the columns of `node_eligibility` must say too.

Readiness goes by taints, as kube-scheduler does it. A cordoned node refuses tasks that do not tolerate
`node.kubernetes.io/unschedulable:NoSchedule`, and only those, so a DaemonSet's pods are placed during a drain. The node
lifecycle controller taints a node that is not ready. Until it has done so, and in clusters without it, such a node
counts as if it had the taint `node.kubernetes.io/not-ready:NoSchedule`; kube-scheduler would place tasks there for
that moment, on a kubelet that does not answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fairbind.cluster.filters.volume_topology import find_volume_refusal
from fairbind.cluster.objects.facts import Constraints, NodeFacts, Taint, Toleration
from fairbind.model import Rejection, RejectionKind

CORDONED = Rejection(RejectionKind.CORDONED)
OUTSIDE = Rejection(RejectionKind.OUTSIDE)
NOT_READY = Rejection(RejectionKind.NOT_READY)
MISMATCH = Rejection(RejectionKind.SELECTOR)
NO_FEATURE = Rejection(RejectionKind.FEATURE)

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
NOT_READY_TAINT = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
READINESS_KEYS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
SOFT_EFFECT = "PreferNoSchedule"


class Standing(NamedTuple):
    """What a node says about who may come. is_unready: it is not ready, and none of its taints says so."""

    taints: tuple[Taint, ...]
    is_cordoned: bool
    is_unready: bool

    @property
    def effective_taints(self) -> tuple[Taint, ...]:
        """All taints, with those that the node only implies."""
        implied = (UNSCHEDULABLE_TAINT,) * self.is_cordoned + (NOT_READY_TAINT,) * self.is_unready
        return (*self.taints, *implied)


def find_standing(node: NodeFacts) -> Standing:
    """Return the standing of a node."""
    is_told = node.ready or any(taint.key in READINESS_KEYS and taint.effect in HARD_EFFECTS for taint in node.taints)
    return Standing(node.taints, node.unschedulable, not is_told)


def reject_taint(taint: Taint) -> Rejection:
    """Return the refusal of a node with this taint; which effect it has does not matter."""
    return Rejection(RejectionKind.TAINT, f"{taint.key}: {taint.value}")


def is_usable(node: NodeFacts, server_selector: Sequence[tuple[str, str]]) -> bool:
    """Whether the node's capacity counts: tasks that tolerate it may go to others, too."""
    return not node.unschedulable and node.ready and is_inside(node, server_selector)


def is_inside(node: NodeFacts, server_selector: Sequence[tuple[str, str]]) -> bool:
    """Whether the node is one of those that the scheduler was told to use."""
    return not server_selector or set(server_selector) <= set(node.labels)


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Whether a taint does not matter to tasks with these tolerations."""
    return any(toleration.tolerates(taint) for toleration in tolerations)


def find_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that keeps a task away."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not is_tolerated(taint, tolerations):
            return taint
    return None


def count_disliked(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> int:
    """Return how many PreferNoSchedule taints are not tolerated."""
    return sum(taint.effect == SOFT_EFFECT and not is_tolerated(taint, tolerations) for taint in taints)


def find_standing_refusal(
    standing: Standing, tolerations: Sequence[Toleration], *, is_outside: bool = False
) -> Rejection | None:
    """Return why nodes of this standing refuse tasks with these tolerations, or None.

    is_outside: whether the node is none of those that the scheduler was told to use.
    """
    if standing.is_cordoned and not is_tolerated(UNSCHEDULABLE_TAINT, tolerations):
        return CORDONED
    if is_outside:
        return OUTSIDE
    taint = find_untolerated(standing.taints, tolerations)
    if taint is not None:
        return reject_taint(taint)
    return NOT_READY if standing.is_unready and not is_tolerated(NOT_READY_TAINT, tolerations) else None


class AskedNode:
    """A node that is asked for the answer to many constraints, one after the other."""

    __slots__ = ("_features", "_is_outside", "_labels", "_name", "_standing")

    def __init__(self, node: NodeFacts, server_selector: Sequence[tuple[str, str]]) -> None:
        self._name = node.name
        self._labels: Mapping[str, str] = dict(node.labels)
        self._standing = find_standing(node)
        self._features = node.features
        self._is_outside = any(self._labels.get(key) != value for key, value in server_selector)

    def find_refusal(self, constraints: Constraints) -> Rejection | None:
        """Return why the node refuses tasks with these constraints, or None."""
        refusal = find_standing_refusal(self._standing, constraints.tolerations, is_outside=self._is_outside)
        if refusal is not None:
            return refusal
        if not self._is_wanted(constraints):
            return MISMATCH
        if not set(self._features).issuperset(constraints.features):
            return NO_FEATURE
        return find_volume_refusal(constraints.volumes, self._labels)

    def count_disliked(self, constraints: Constraints) -> int:
        """Return how many of its PreferNoSchedule taints are not tolerated."""
        return count_disliked(self._standing.taints, constraints.tolerations)

    def compute_liking(self, constraints: Constraints) -> int:
        """Return the sum of the weights of the preferred terms that the node meets."""
        return sum(weight for weight, term in constraints.preferred if term.is_met_by(self._labels, self._name))

    def _is_wanted(self, constraints: Constraints) -> bool:
        """Whether the node is what selector and required affinity ask for."""
        labels = self._labels
        if any(labels.get(key) != value for key, value in constraints.selector):
            return False
        required = constraints.required
        return required is None or any(term.is_met_by(labels, self._name) for term in required)


def find_refusal(
    node: NodeFacts, constraints: Constraints, server_selector: Sequence[tuple[str, str]] = ()
) -> Rejection | None:
    """Return why this node refuses tasks with these constraints, or None."""
    return AskedNode(node, server_selector).find_refusal(constraints)
