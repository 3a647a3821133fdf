"""Which nodes a task may use, for all tasks with equal constraints at once.

A node is refused for the first of these that holds, and counts once under that reason: cordoned; outside the
scheduler's node selector; a taint that is not tolerated; not ready, where no taint says so; not what the task's
selector or required affinity asks for; without a declared feature that it needs; out of reach of one of its volumes
(`volume_topology`). kube-scheduler asks in the same order, but for features, which it asks last. Cordons and readiness
are taints, too, which a task may tolerate (`refusals`).

Preferences become one score, as kube-scheduler ranks by default: twice the preferred affinity's weights plus three
times the absence of untolerated PreferNoSchedule taints, each scaled to 0..100 over the eligible nodes, plus what the
images are worth that a node has already (`image_locality`).

The answers for all nodes are computed by columns (`node_columns`). When few nodes changed, only they are asked, one by
one, by `AskedNode`, which says the same in plain words.

What is remembered stays in proportion to what differs. Constraints are asked without the parts that cannot matter on
the nodes of now (`simplified`), and verdicts that allow the same nodes for the same reasons share one placement.
Autoscalers put times into taints, and each of them is another reason; pods come with selectors that no other pod has.
So reasons that no verdict gives any more are forgotten now and then, and columns go with the verdicts that were
computed from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.filters.image_locality import ImageLocality, ScoreArray
from fairbind.cluster.filters.node_columns import CodeArray, NodeColumns
from fairbind.cluster.filters.refusals import (
    CORDONED,
    MISMATCH,
    NO_FEATURE,
    OUTSIDE,
    AskedNode,
    count_disliked,
    find_standing_refusal,
)
from fairbind.cluster.filters.simplified import SimplifiedConstraints
from fairbind.cluster.filters.volume_columns import match_affinities, match_zones
from fairbind.cluster.filters.volume_topology import OTHER_ZONE, OUT_OF_REACH
from fairbind.cluster.objects.facts import Constraints, NodeFacts, Toleration
from fairbind.cluster.objects.volume_facts import ANYWHERE
from fairbind.derived import Given, Rotation
from fairbind.model import ExclusiveKeys, Placement, Rejection, Rejections, ServerPreference
from fairbind.model.servers import BoolArray

Scalar = TypeVar("Scalar", bound=np.generic)

AFFINITY_WEIGHT = 2
TAINT_WEIGHT = 3
IMAGE_WEIGHT = 1
FULL_SCORE = 100

_ABSENT = -1
MANY_REASONS = 64
"""Below so many it is not worth looking for reasons that are not needed."""

MANY_PLACEMENTS = 256
"""Below so many it is not worth looking for shared placements that are not used."""

_Content = tuple[bytes, bytes | None, Rejections, ExclusiveKeys]


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

    reason_k: numbers of `Reasons`. liking_k, disliked_k: raw soft scores; None where there is no preference, or no
    taint that is disliked. image_k: what images are worth; None: not computed, or there are none. placement: what the
    cycle gets; the same object until something in it changes. server_preferences: the soft scores for who has other
    preferences, too; None: not made since something changed.
    """

    __slots__ = ("constraints", "disliked_k", "image_k", "liking_k", "placement", "reason_k", "server_preferences")

    def __init__(
        self, constraints: Constraints, reason_k: CodeArray, liking_k: CodeArray | None, disliked_k: CodeArray | None
    ) -> None:
        self.constraints = constraints
        self.reason_k = reason_k
        self.liking_k = liking_k
        self.disliked_k = disliked_k
        self.image_k: ScoreArray | None = None
        self.placement: Placement | None = None
        self.server_preferences: tuple[ServerPreference, ...] | None = None

    def ask(self, index: int, node: AskedNode, reasons: Reasons) -> bool:
        """Ask one node again; True when the answer changed."""
        constraints = self.constraints
        reason, disliked = reasons.get_number(node.find_refusal(constraints)), node.count_disliked(constraints)
        changed = bool(reason != self.reason_k[index])
        self.reason_k[index] = reason
        if disliked and self.disliked_k is None:
            self.disliked_k = np.zeros_like(self.reason_k)
        if self.disliked_k is not None:
            changed |= bool(disliked != self.disliked_k[index])
            self.disliked_k[index] = disliked
        if self.liking_k is not None:
            liking = node.compute_liking(constraints)
            changed |= bool(liking != self.liking_k[index])
            self.liking_k[index] = liking
        return changed


class Eligibility:
    """Verdicts for all constraints that were asked for, kept up to date node by node.

    index: of each node by its name, another object when nodes come or go.
    nodes: as they were told last. answers: whether and where any constraints may go, by `simplify`.
    simplify: see `SimplifiedConstraints.get`; asked of thousands at a time. simplified: who answers it.
    images: which nodes have which. rescored: those of which answers may be others.
    """

    def __init__(self) -> None:
        self.images = ImageLocality()
        self.rescored = Rotation[str]()
        self.reasons = Reasons()
        self.nodes = Given()
        self.answers = Given()
        self._nodes: list[NodeFacts] = []
        self.index: Mapping[str, int] = {}
        self._selector: tuple[tuple[str, str], ...] = ()
        self._columns: NodeColumns | None = None
        self.simplified = SimplifiedConstraints()
        self.simplify = self.simplified.get
        self._verdicts: dict[Constraints, Verdict] = {}
        self._placements: dict[_Content, Placement] = {}
        self._most_reasons = MANY_REASONS
        self._most_placements = MANY_PLACEMENTS

    def set_nodes(
        self, nodes: Sequence[NodeFacts], kept: NDArray[np.int64] | None, selector: tuple[tuple[str, str], ...]
    ) -> None:
        """Take a new list of nodes.

        kept: for each node its index in the list before, or -1 for one that is new or changed, shape (K,); None when
        nothing may be kept.
        """
        old, self._nodes, self._columns = self._nodes, list(nodes), None
        self.index = {node.name: index for index, node in enumerate(nodes)}
        self._placements.clear()
        self.nodes.note_change()
        self.answers.note_change()
        if kept is None or selector != self._selector:
            self.simplified.follow(old, self._nodes)
            self._selector = selector
            self._verdicts.clear()
            self._forget_reasons()
            return
        fresh = np.flatnonzero(kept < 0).tolist()
        stays = set(kept.tolist())
        self.simplified.follow(
            [node for index, node in enumerate(old) if index not in stays], [self._nodes[index] for index in fresh]
        )
        asked = self._prepare(fresh)
        for constraints, verdict in list(self._verdicts.items()):
            moved = Verdict(
                constraints,
                _take(verdict.reason_k, kept),
                None if verdict.liking_k is None else _take(verdict.liking_k, kept),
                None if verdict.disliked_k is None else _take(verdict.disliked_k, kept),
            )
            for index, node in asked:
                moved.ask(index, node, self.reasons)
            self._verdicts[constraints] = moved
        self._forget_reasons()

    def change_nodes(self, changed: Mapping[int, NodeFacts]) -> None:
        """Take nodes that changed, by index; the list stays as long as it is."""
        self.simplified.follow([self._nodes[index] for index in changed], changed.values())
        for index, node in changed.items():
            self._nodes[index] = node
        self._columns = None
        self.nodes.note_change()
        asked = self._prepare(changed)
        before = self.answers.revision
        for verdict in self._verdicts.values():
            answers = [verdict.ask(index, node, self.reasons) for index, node in asked]
            if any(answers):
                verdict.placement = verdict.server_preferences = None
                self.answers.note_change()
        if self.answers.revision != before:
            self._forget_placements()
        self._forget_reasons()

    def follow_images(self) -> None:
        """Take over which images nodes have now; the nodes themselves must be those of now already."""
        changed = frozenset(self.images.to_score.take_all())
        for constraints, verdict in self._verdicts.items() if changed else ():
            if verdict.image_k is not None and not changed.isdisjoint(constraints.images.names):
                before = verdict.image_k
                verdict.image_k = self.images.compute_scores(constraints.images, self.index)
                if not np.array_equal(before, verdict.image_k):
                    verdict.placement = verdict.server_preferences = None
                    self.rescored.add(changed.intersection(constraints.images.names))

    def keep_only(self, used: Iterable[Constraints]) -> None:
        """Drop the verdicts of all other constraints."""
        kept = {self.simplify(constraints) for constraints in used}
        for constraints in [constraints for constraints in self._verdicts if constraints not in kept]:
            del self._verdicts[constraints]
        self._columns = None  # most of what was looked up there is of no use any more

    def __len__(self) -> int:
        return len(self._verdicts)

    def get_placement(self, constraints: Constraints) -> Placement:
        """Return where tasks with these constraints may go."""
        return self.get_placement_of_simple(self.simplify(constraints))

    def get_placement_of_simple(self, constraints: Constraints) -> Placement:
        """Return where tasks with these constraints may go, which must be what `simplify` returns."""
        verdict = self._get_verdict(constraints)
        if verdict.placement is None:
            verdict.placement = self.share(self._make_placement(verdict))
        return verdict.placement

    def get_server_preferences(self, constraints: Constraints) -> tuple[ServerPreference, ...]:
        """Return what tasks with these constraints would like of nodes, the same objects until it changes.

        It is what `Placement.preference_k` has, but relative to the nodes that have free capacity.
        """
        verdict = self._get_verdict(self.simplify(constraints))
        if verdict.server_preferences is None:
            kinds = (
                (verdict.disliked_k, TAINT_WEIGHT, True, None),
                (verdict.liking_k, AFFINITY_WEIGHT, False, None),
                (self._get_image_scores(verdict), IMAGE_WEIGHT, False, FULL_SCORE),
            )
            verdict.server_preferences = tuple(
                ServerPreference(_freeze(amount_k.astype(np.int64)), weight, is_dislike, most)
                for amount_k, weight, is_dislike, most in kinds
                if amount_k is not None and amount_k.any()
            )
        return verdict.server_preferences

    def _get_verdict(self, constraints: Constraints) -> Verdict:
        """Return the verdict for what `simplify` returned."""
        verdict = self._verdicts.get(constraints)
        if verdict is None:
            verdict = self._verdicts[constraints] = self._compute_verdict(constraints)
        return verdict

    def _get_image_scores(self, verdict: Verdict) -> ScoreArray | None:
        """Return what images are worth that nodes have already, shape (K,); None: nothing anywhere."""
        images = verdict.constraints.images
        if verdict.image_k is None and images.names:
            verdict.image_k = self.images.compute_scores(images, self.index)
        return verdict.image_k

    def share(self, placement: Placement) -> Placement:
        """Return the one placement that says the same; after a change that may have to do with it, it is a new one."""
        if len(self._placements) >= self._most_placements:
            self._forget_placements()
        return self._placements.setdefault(_describe(placement), placement)

    def match_values(self, key: str, values: Iterable[str]) -> BoolArray:
        """Return which nodes have one of these values of a label, shape (K,)."""
        return self.get_columns().match_values(key, values)

    def get_columns(self) -> NodeColumns:
        """Return the nodes of now by columns, until these change."""
        if self._columns is None:
            self._columns = NodeColumns(self._nodes, self.index, self._selector)
        return self._columns

    def _prepare(self, indexes: Iterable[int]) -> list[tuple[int, AskedNode]]:
        if not self._verdicts:
            return []
        return [(index, AskedNode(self._nodes[index], self._selector)) for index in indexes]

    def _forget_placements(self) -> None:
        """Forget the placements that no verdict gives any more."""
        given = (verdict.placement for verdict in self._verdicts.values())
        self._placements = {_describe(placement): placement for placement in given if placement is not None}
        self._most_placements = max(MANY_PLACEMENTS, 2 * len(self._placements))

    def _forget_reasons(self) -> None:
        """Forget the reasons that no verdict gives any more, when there may be many."""
        if len(self.reasons) > self._most_reasons:
            counts_of = [np.bincount(verdict.reason_k) for verdict in self._verdicts.values()]
            self.reasons.keep_only({number for counts in counts_of for number in np.flatnonzero(counts).tolist()})
            self._most_reasons = max(MANY_REASONS, 2 * len(self.reasons))

    def _compute_verdict(self, constraints: Constraints) -> Verdict:
        columns = self.get_columns()
        match_k = columns.match_wanted(constraints.selector, constraints.required)
        reason_k = np.where(match_k, 0, self.reasons.get_number(MISMATCH)).astype(np.int32)
        if constraints.features:
            has_all_k = columns.match_features(constraints.features)
            reason_k[(reason_k == 0) & ~has_all_k] = self.reasons.get_number(NO_FEATURE)
        if constraints.volumes != ANYWHERE:
            for rejection, match in ((OUT_OF_REACH, match_affinities), (OTHER_ZONE, match_zones)):
                is_reached_k = match(constraints.volumes, columns)
                reason_k[(reason_k == 0) & ~is_reached_k] = self.reasons.get_number(rejection)
        refused_k, disliked_k = self._ask_standings(columns, constraints.tolerations)
        reason_k = np.where(refused_k > 0, refused_k, reason_k)
        cordoned = self.reasons.get_number(CORDONED)
        reason_k[columns.outside_k & (reason_k != cordoned)] = self.reasons.get_number(OUTSIDE)
        liking_k: CodeArray | None = None
        if constraints.preferred:
            liking_k = np.zeros(len(self._nodes), dtype=np.int32)
            for weight, term in constraints.preferred:
                liking_k[columns.match_term(term)] += weight
        return Verdict(constraints, reason_k, liking_k, None if disliked_k is None else disliked_k.copy())

    def _ask_standings(
        self, columns: NodeColumns, tolerations: tuple[Toleration, ...]
    ) -> tuple[CodeArray, CodeArray | None]:
        """Return what tolerations decide: the number of the refusal, and of disliked taints; not to be written to."""
        known = columns.answers.get(tolerations)
        if known is None:
            refused_k = columns.map_standings(
                lambda standing: self.reasons.get_number(find_standing_refusal(standing, tolerations))
            )
            disliked_k = columns.map_standings(lambda standing: count_disliked(standing.taints, tolerations))
            known = columns.answers[tolerations] = refused_k, disliked_k if disliked_k.any() else None
        return known

    def _make_placement(self, verdict: Verdict) -> Placement:
        eligible_k = verdict.reason_k == 0
        return Placement(
            eligible_k=_freeze(eligible_k),
            preference_k=_compute_preference(verdict, eligible_k, self._get_image_scores(verdict)),
            rejections=self.reasons.count(verdict.reason_k),
            exclusive_keys=verdict.constraints.exclusive_keys,
        )


def _describe(placement: Placement) -> _Content:
    """Return what two placements must have in common to be the same."""
    preference = None if placement.preference_k is None else placement.preference_k.tobytes()
    return np.packbits(placement.eligible_k).tobytes(), preference, placement.rejections, placement.exclusive_keys


def _compute_preference(
    verdict: Verdict, eligible_k: BoolArray, image_k: ScoreArray | None
) -> NDArray[np.int64] | None:
    """Return the score of preferences, shape (K,), or None when it is the same for all eligible nodes."""
    if verdict.disliked_k is None and verdict.liking_k is None and image_k is None:
        return None
    score_k = np.zeros(len(eligible_k), dtype=np.int64)
    if verdict.disliked_k is not None:
        most = int(verdict.disliked_k[eligible_k].max(initial=0))
        if most:
            score_k += TAINT_WEIGHT * (FULL_SCORE - FULL_SCORE * verdict.disliked_k.astype(np.int64) // most)
    if verdict.liking_k is not None:
        best = int(verdict.liking_k[eligible_k].max(initial=0))
        if best:
            score_k += AFFINITY_WEIGHT * (FULL_SCORE * verdict.liking_k.astype(np.int64) // best)
    if image_k is not None:
        score_k += IMAGE_WEIGHT * image_k
    among = score_k[eligible_k]
    if len(among) == 0 or int(among.min()) == int(among.max()):
        return None
    return _freeze(score_k)


def _take(values: CodeArray, kept: NDArray[np.int64]) -> CodeArray:
    return values[kept] if len(values) else np.zeros(len(kept), np.int32)


def _freeze(array: NDArray[Scalar]) -> NDArray[Scalar]:
    array.flags.writeable = False
    return array
