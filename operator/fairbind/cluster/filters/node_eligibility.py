"""Which nodes a task may use, for all tasks with equal constraints at once.

A node is refused for the first of these that holds, in the order in which kube-scheduler asks them, and counts once
under that reason: cordoned; outside the scheduler's node selector; a taint that is not tolerated; not ready; not what
the task's selector or required affinity asks for.

Soft wishes become one score, as kube-scheduler ranks by default: twice the preferred affinity's weights plus three
times the absence of untolerated PreferNoSchedule taints, each scaled to 0..100 over the eligible nodes.

The answers for all nodes are computed by columns: the values of one label key over all nodes, as codes. An expression
is asked once for each different value, not for each node. When few nodes changed, only they are asked, one by one, by
`find_refusal`, which says the same in plain words.

What is remembered stays in proportion to what is asked: autoscalers put times into taints, and each of them is another
reason; pods come with selectors that nobody else has. So reasons that no verdict gives any more are forgotten now and
then, and columns go with the verdicts that were computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.objects.facts import Constraints, NodeFacts, Taint, Toleration
from fairbind.cluster.objects.selectors import NodeTerm, Requirement, is_field_met
from fairbind.model import Placement, Rejection, RejectionKind, Rejections
from fairbind.model.servers import BoolArray

CodeArray = NDArray[np.int32]
Scalar = TypeVar("Scalar", bound=np.generic)

CORDONED = Rejection(RejectionKind.CORDONED)
OUTSIDE = Rejection(RejectionKind.OUTSIDE)
NOT_READY = Rejection(RejectionKind.NOT_READY)
MISMATCH = Rejection(RejectionKind.SELECTOR)

AFFINITY_WEIGHT = 2
TAINT_WEIGHT = 3
FULL_SCORE = 100

_ABSENT = -1
_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_SOFT_EFFECT = "PreferNoSchedule"

MANY_REASONS = 64
"""Below so many it is not worth looking for reasons that nobody needs."""


def reject_taint(taint: Taint) -> Rejection:
    """Return the refusal of a node with this taint; which effect it has does not matter."""
    return Rejection(RejectionKind.TAINT, f"{taint.key}: {taint.value}")


def is_usable(node: NodeFacts, server_selector: Sequence[tuple[str, str]]) -> bool:
    """Whether the node's capacity counts and tasks may go there at all."""
    if node.unschedulable or not node.ready:
        return False
    return not server_selector or set(server_selector) <= set(node.labels)


def find_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that keeps a task away."""
    for taint in taints:
        if taint.effect in _HARD_EFFECTS and not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


def count_disliked(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> int:
    """Return how many PreferNoSchedule taints are not tolerated."""
    return sum(
        taint.effect == _SOFT_EFFECT and not any(toleration.tolerates(taint) for toleration in tolerations)
        for taint in taints
    )


def find_refusal(
    node: NodeFacts, constraints: Constraints, server_selector: Sequence[tuple[str, str]] = ()
) -> Rejection | None:
    """Return why this node refuses tasks with these constraints, or None."""
    if node.unschedulable:
        return CORDONED
    if not set(server_selector) <= set(node.labels):
        return OUTSIDE
    taint = find_untolerated(node.taints, constraints.tolerations)
    if taint is not None:
        return reject_taint(taint)
    if not node.ready:
        return NOT_READY
    return None if is_wanted(node, constraints) else MISMATCH


def is_wanted(node: NodeFacts, constraints: Constraints) -> bool:
    """Whether the node is what selector and required affinity ask for."""
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in constraints.selector):
        return False
    return constraints.required is None or any(term.is_met_by(labels, node.name) for term in constraints.required)


def compute_liking(node: NodeFacts, constraints: Constraints) -> int:
    """Return the sum of the weights of the preferred terms that the node meets."""
    labels = dict(node.labels)
    return sum(weight for weight, term in constraints.preferred if term.is_met_by(labels, node.name))


class NodeColumns:
    """The nodes of one moment by columns. Columns are made when they are first asked for."""

    def __init__(self, nodes: Sequence[NodeFacts], server_selector: Sequence[tuple[str, str]]) -> None:
        self._nodes = nodes
        self._labels = [dict(node.labels) for node in nodes]
        self._columns: dict[str, tuple[CodeArray, dict[str, int]]] = {}
        self._masks: dict[Requirement, BoolArray] = {}
        self._selector = server_selector
        self._taint_sets: list[tuple[Taint, ...]] = []
        self.code_k = self._make_taint_codes()
        self.unschedulable_k = np.fromiter((node.unschedulable for node in nodes), np.bool_, len(nodes))
        self.ready_k = np.fromiter((node.ready for node in nodes), np.bool_, len(nodes))
        self.outside_k = ~self.match_pairs(server_selector)

    def _make_taint_codes(self) -> CodeArray:
        codes: dict[tuple[Taint, ...], int] = {}
        code_k = np.fromiter((codes.setdefault(node.taints, len(codes)) for node in self._nodes), np.int32)
        self._taint_sets = list(codes)
        return code_k

    def map_taints(self, ask: Callable[[tuple[Taint, ...]], int]) -> CodeArray:
        """Return ask's answer for each node's taints, shape (K,)."""
        return np.array([ask(taints) for taints in self._taint_sets] or [0], dtype=np.int32)[self.code_k]

    def match_pairs(self, pairs: Iterable[tuple[str, str]]) -> BoolArray:
        """Return which nodes carry all these labels, shape (K,)."""
        return self._match_all(Requirement(key, "In", (value,)) for key, value in pairs)

    def match_term(self, term: NodeTerm) -> BoolArray:
        """Return which nodes meet a term, shape (K,)."""
        if not term.labels and not term.fields:
            return np.zeros(len(self._nodes), dtype=np.bool_)
        match_k = self._match_all(term.labels)
        for requirement in term.fields:
            match_k &= np.fromiter((is_field_met(requirement, node.name) for node in self._nodes), np.bool_)
        return match_k

    def match_values(self, key: str, values: Iterable[str]) -> BoolArray:
        """Return which nodes have one of these values of a label, shape (K,).

        Not remembered: the values are those of nodes on which some pods are just now, and will be others.
        """
        code_k, codes = self._get_column(key)
        return _find_listed(codes, values)[code_k]

    def _match_all(self, requirements: Iterable[Requirement]) -> BoolArray:
        everywhere = np.ones(len(self._nodes), dtype=np.bool_)
        return reduce(np.logical_and, (self._match(requirement) for requirement in requirements), everywhere)

    def _match(self, requirement: Requirement) -> BoolArray:
        mask_k = self._masks.get(requirement)
        if mask_k is None:
            code_k, codes = self._get_column(requirement.key)
            if requirement.operator == "In":  # by far the most frequent, and host names have a value for each node
                answers = _find_listed(codes, requirement.values)
            else:
                answers = np.array([*map(requirement.is_met_by, codes), requirement.is_met_by(None)], dtype=np.bool_)
            mask_k = self._masks[requirement] = answers[code_k]
        return mask_k

    def _get_column(self, key: str) -> tuple[CodeArray, dict[str, int]]:
        column = self._columns.get(key)
        if column is None:
            codes: dict[str, int] = {}
            found = (labels.get(key) for labels in self._labels)
            code_k = np.fromiter(
                (_ABSENT if value is None else codes.setdefault(value, len(codes)) for value in found),
                np.int32,
                len(self._labels),
            )
            column = self._columns[key] = (code_k, codes)
        return column


def _find_listed(codes: Mapping[str, int], values: Iterable[str]) -> BoolArray:
    """Return for each code whether its value is among these; the last entry answers for absent keys."""
    listed = np.zeros(len(codes) + 1, dtype=np.bool_)
    listed[[codes[value] for value in values if value in codes]] = True
    return listed


class Reasons:
    """Numbers for reasons, so that an array can hold one for each node. 0: not refused."""

    def __init__(self) -> None:
        self._numbers: dict[Rejection | None, int] = {None: 0}
        self._rejections: list[Rejection | None] = [None]
        self._vacant: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def get_number(self, rejection: Rejection | None) -> int:
        """Return the number of a reason."""
        number = self._numbers.get(rejection)
        if number is None:
            if self._vacant:
                number = self._vacant.pop()
                self._rejections[number] = rejection
            else:
                number = len(self._rejections)
                self._rejections.append(rejection)
            self._numbers[rejection] = number
        return number

    def keep_only(self, used: set[int]) -> None:
        """Forget the reasons of all other numbers, so that these can stand for others."""
        for rejection, number in list(self._numbers.items()):
            if rejection is not None and number not in used:
                del self._numbers[rejection]
                self._rejections[number] = None
                self._vacant.append(number)

    def count(self, reason_k: CodeArray) -> Rejections:
        """Return (reason, how many nodes), sorted."""
        counts = np.bincount(reason_k, minlength=1).tolist()
        pairs = zip(self._rejections, counts, strict=False)  # counts end at the highest number that is used
        return tuple(sorted((rejection, count) for rejection, count in pairs if rejection is not None and count))


class Verdict:
    """The answer for one set of constraints on all nodes.

    reason_k: numbers of `Reasons`. liking_k, disliked_k: raw soft scores, None where no wish is said. placement: what
    the cycle gets; the same object until something in it changes.
    """

    __slots__ = ("constraints", "disliked_k", "liking_k", "placement", "reason_k")

    def __init__(
        self, constraints: Constraints, reason_k: CodeArray, liking_k: CodeArray | None, disliked_k: CodeArray
    ) -> None:
        self.constraints = constraints
        self.reason_k = reason_k
        self.liking_k = liking_k
        self.disliked_k = disliked_k
        self.placement: Placement | None = None


class Eligibility:
    """Verdicts for all constraints that were asked for, kept up to date node by node.

    version: grows with every change of the nodes.
    """

    def __init__(self) -> None:
        self.reasons = Reasons()
        self.version = 0
        self._nodes: list[NodeFacts] = []
        self._selector: tuple[tuple[str, str], ...] = ()
        self._columns: NodeColumns | None = None
        self._verdicts: dict[Constraints, Verdict] = {}
        self._most_reasons = MANY_REASONS

    def set_nodes(
        self, nodes: Sequence[NodeFacts], kept: NDArray[np.int64] | None, selector: tuple[tuple[str, str], ...]
    ) -> None:
        """Take a new list of nodes.

        kept: for each node its index in the list before, or -1 for one that is new or changed, shape (K,); None when
        nothing may be kept.
        """
        self._nodes, self._columns = list(nodes), None
        self.version += 1
        if kept is None or selector != self._selector:
            self._selector = selector
            self._verdicts.clear()
            self._forget_reasons()
            return
        fresh = np.flatnonzero(kept < 0)
        for constraints, verdict in list(self._verdicts.items()):
            moved = Verdict(
                constraints,
                verdict.reason_k[kept] if len(verdict.reason_k) else np.zeros(len(kept), np.int32),
                None if verdict.liking_k is None else _take(verdict.liking_k, kept),
                _take(verdict.disliked_k, kept),
            )
            self._ask_again(moved, fresh.tolist())
            self._verdicts[constraints] = moved
        self._forget_reasons()

    def change_nodes(self, changed: Mapping[int, NodeFacts]) -> None:
        """Take nodes that changed, by index; the list stays as long as it is."""
        for index, node in changed.items():
            self._nodes[index] = node
        self._columns = None
        self.version += 1
        for verdict in self._verdicts.values():
            if self._ask_again(verdict, list(changed)):
                verdict.placement = None
        self._forget_reasons()

    def keep_only(self, used: Iterable[Constraints]) -> None:
        """Drop the verdicts of all other constraints."""
        used = set(used)
        for constraints in [constraints for constraints in self._verdicts if constraints not in used]:
            del self._verdicts[constraints]
        self._columns = None  # most of what was looked up there is of no use any more

    def __len__(self) -> int:
        return len(self._verdicts)

    def get_placement(self, constraints: Constraints) -> Placement:
        """Return where tasks with these constraints may go."""
        verdict = self._verdicts.get(constraints)
        if verdict is None:
            verdict = self._verdicts[constraints] = self._compute_verdict(constraints)
        if verdict.placement is None:
            verdict.placement = self._make_placement(verdict)
        return verdict.placement

    def match_domains(self, topology_key: str, nodes: Iterable[str]) -> BoolArray:
        """Return which nodes share a value of the key with any of these nodes, shape (K,)."""
        wanted = set(nodes)
        labels = (dict(node.labels) for node in self._nodes if node.name in wanted)
        values = {found[topology_key] for found in labels if topology_key in found}
        return self._get_columns().match_values(topology_key, values)

    def _get_columns(self) -> NodeColumns:
        if self._columns is None:
            self._columns = NodeColumns(self._nodes, self._selector)
        return self._columns

    def _forget_reasons(self) -> None:
        """Forget the reasons that no verdict gives any more, when there may be many."""
        if len(self.reasons) > self._most_reasons:
            counts_of = [np.bincount(verdict.reason_k) for verdict in self._verdicts.values()]
            self.reasons.keep_only({number for counts in counts_of for number in np.flatnonzero(counts).tolist()})
            self._most_reasons = max(MANY_REASONS, 2 * len(self.reasons))

    def _ask_again(self, verdict: Verdict, indexes: Sequence[int]) -> bool:
        """Ask single nodes; True when any answer changed."""
        constraints, changed = verdict.constraints, False
        for index in indexes:
            node = self._nodes[index]
            reason = self.reasons.get_number(find_refusal(node, constraints, self._selector))
            disliked = count_disliked(node.taints, constraints.tolerations)
            changed |= reason != verdict.reason_k[index] or disliked != verdict.disliked_k[index]
            verdict.reason_k[index], verdict.disliked_k[index] = reason, disliked
            if verdict.liking_k is not None:
                liking = compute_liking(node, constraints)
                changed |= liking != verdict.liking_k[index]
                verdict.liking_k[index] = liking
        return changed

    def _compute_verdict(self, constraints: Constraints) -> Verdict:
        columns = self._get_columns()
        match_k = columns.match_pairs(constraints.selector)
        if constraints.required is not None:
            nowhere = np.zeros(len(self._nodes), dtype=np.bool_)
            match_k &= reduce(np.logical_or, (columns.match_term(term) for term in constraints.required), nowhere)
        reason_k = np.where(match_k, 0, self.reasons.get_number(MISMATCH)).astype(np.int32)
        reason_k[~columns.ready_k] = self.reasons.get_number(NOT_READY)
        taint_k = columns.map_taints(lambda taints: self._number_taints(taints, constraints))
        reason_k = np.where(taint_k > 0, taint_k, reason_k)
        reason_k[columns.outside_k] = self.reasons.get_number(OUTSIDE)
        reason_k[columns.unschedulable_k] = self.reasons.get_number(CORDONED)
        liking_k: CodeArray | None = None
        if constraints.preferred:
            liking_k = np.zeros(len(self._nodes), dtype=np.int32)
            for weight, term in constraints.preferred:
                liking_k[columns.match_term(term)] += weight
        disliked_k = columns.map_taints(lambda taints: count_disliked(taints, constraints.tolerations))
        return Verdict(constraints, reason_k, liking_k, disliked_k)

    def _number_taints(self, taints: tuple[Taint, ...], constraints: Constraints) -> int:
        taint = find_untolerated(taints, constraints.tolerations)
        return 0 if taint is None else self.reasons.get_number(reject_taint(taint))

    def _make_placement(self, verdict: Verdict) -> Placement:
        eligible_k = verdict.reason_k == 0
        return Placement(
            eligible_k=_freeze(eligible_k),
            preference_k=_compute_preference(verdict, eligible_k),
            rejections=self.reasons.count(verdict.reason_k),
            exclusive_keys=verdict.constraints.exclusive_keys,
        )


def _compute_preference(verdict: Verdict, eligible_k: BoolArray) -> NDArray[np.int64] | None:
    """Return the score of soft wishes, shape (K,), or None when it is the same for all eligible nodes."""
    score_k = np.zeros(len(eligible_k), dtype=np.int64)
    most = int(verdict.disliked_k[eligible_k].max(initial=0))
    if most:
        score_k += TAINT_WEIGHT * (FULL_SCORE - FULL_SCORE * verdict.disliked_k.astype(np.int64) // most)
    if verdict.liking_k is not None:
        best = int(verdict.liking_k[eligible_k].max(initial=0))
        if best:
            score_k += AFFINITY_WEIGHT * (FULL_SCORE * verdict.liking_k.astype(np.int64) // best)
    among = score_k[eligible_k]
    if len(among) == 0 or int(among.min()) == int(among.max()):
        return None
    return _freeze(score_k)


def _take(values: CodeArray, kept: NDArray[np.int64]) -> CodeArray:
    return values[kept] if len(values) else np.zeros(len(kept), np.int32)


def _freeze(array: NDArray[Scalar]) -> NDArray[Scalar]:
    array.flags.writeable = False
    return array
