"""The warm start of level programs: the pairs, bases and levels that one problem leaves to a similar one.

A basis names the active constraints and no amounts, so it stays a good start when amounts change. When tenants come,
go, join a group or leave one, the rows and pairs of the other groups are carried over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fairbind.fairness.problems.instance import IntArray
from fairbind.fairness.problems.problem import BoolArray

if TYPE_CHECKING:
    import highspy


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """HiGHS' basis statuses: of the level t and each pair (columns), of each (class, resource) and group (rows)."""

    level: highspy.HighsBasisStatus
    pairs: list[highspy.HighsBasisStatus]
    capacities: list[highspy.HighsBasisStatus]
    groups: list[highspy.HighsBasisStatus]


@dataclass(slots=True, eq=False)
class WarmBasis:
    """The start of a later, similar problem: the pairs, and the basis and the level of each program in turn.

    shape: the numbers of groups and classes to which the pairs refer.
    """

    shape: tuple[int, int]
    group_p: IntArray
    class_p: IntArray
    bases: list[Basis] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)


def prune(warm: WarmBasis) -> WarmBasis:
    """Return the warm start with only the pairs that are basic somewhere: the others are priced again soon enough."""
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

    basic = highspy.HighsBasisStatus.kBasic
    basic_places = {place for basis in warm.bases for place, status in enumerate(basis.pairs) if status == basic}
    kept = sorted(basic_places)
    bases = [
        replace(basis, pairs=[basis.pairs[place] for place in kept if place < len(basis.pairs)]) for basis in warm.bases
    ]
    return WarmBasis(warm.shape, warm.group_p[kept], warm.class_p[kept], bases, warm.levels)


def carry_over(
    warm: WarmBasis, group_before_i: IntArray, class_before_k: IntArray, usable_ik: BoolArray
) -> WarmBasis | None:
    """Return the warm start in the numbers of a new instance, or None where too little of it would fit.

    group_before_i: the former number of each group, -1 for a new one; classes likewise, and these must be the same.
    """
    groups, classes = warm.shape
    if not _is_identity(class_before_k, classes):
        return None
    if _is_identity(group_before_i, groups) and usable_ik[warm.group_p, warm.class_p].all():
        return warm
    place_p, group_p, class_p = _carry_pairs(warm, group_before_i, usable_ik)
    carried = WarmBasis((group_before_i.size, classes), group_p, class_p, levels=warm.levels)
    is_first_i = np.zeros(group_before_i.size, dtype=bool)
    is_first_i[np.unique(group_before_i, return_index=True)[1]] = True
    is_first_i &= group_before_i >= 0
    for basis in warm.bases:
        made = _carry_basis(basis, place_p, group_p, group_before_i, is_first_i)
        if made is None:
            return None
        carried.bases.append(made)
    return carried


def _carry_pairs(
    warm: WarmBasis, group_before_i: IntArray, usable_ik: BoolArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return place in the warm start (-1: none), group and class of each pair; each group has at least one."""
    places: list[IntArray] = []
    groups: list[IntArray] = []
    classes: list[IntArray] = []
    order = np.argsort(warm.group_p, kind="stable")
    start = np.searchsorted(warm.group_p[order], np.arange(-1, int(warm.group_p.max()) + 2))
    for i, before in enumerate(group_before_i.tolist()):
        place = order[start[before + 1] : start[before + 2]]
        place = place[usable_ik[i, warm.class_p[place]]]
        classes.append(warm.class_p[place] if place.size else np.flatnonzero(usable_ik[i])[:1])
        places.append(place if place.size else np.array([-1]))
        groups.append(np.full(classes[-1].size, i, dtype=np.intp))
    return np.concatenate(places), np.concatenate(groups), np.concatenate(classes)


def _carry_basis(
    basis: Basis, place_p: IntArray, group_p: IntArray, group_before_i: IntArray, is_first_i: BoolArray
) -> Basis | None:
    """Return the basis for the new groups; None if it would have more basic parts than rows.

    A new group, or the second group made of a former one, starts on one of its classes: one row, one basic part.
    """
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

    status = highspy.HighsBasisStatus
    later = int(place_p.max(initial=-1)) + 1 - len(basis.pairs)
    before = [*basis.pairs, *[status.kLower] * max(later, 0), status.kLower]  # the last one for place -1
    pairs = [before[place] for place in place_p.tolist()]
    groups = [basis.groups[place] if place >= 0 else status.kLower for place in group_before_i.tolist()]
    for i in np.flatnonzero(~is_first_i).tolist():
        own = np.flatnonzero(group_p == i).tolist()
        stands_on = next((pair for pair in own if pairs[pair] == status.kBasic), own[0])
        for pair in own:
            pairs[pair] = status.kLower
        if groups[i] != status.kBasic:
            pairs[stands_on] = status.kBasic
    capacities = list(basis.capacities)
    basic = sum(part == status.kBasic for part in (basis.level, *pairs, *capacities, *groups))
    held = [place for place, part in enumerate(capacities) if part != status.kBasic]
    missing = len(capacities) + len(groups) - basic
    if not 0 <= missing <= len(held):
        return None
    for place in held[:missing]:
        capacities[place] = status.kBasic
    return Basis(basis.level, pairs, capacities, groups)


def _is_identity(before: IntArray, size: int) -> bool:
    return before.size == size and bool((before == np.arange(size)).all())
