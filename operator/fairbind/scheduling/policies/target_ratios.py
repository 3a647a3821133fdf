"""Following targets: who lags its target most is next.

A tenant's ratio is what it holds in parts of its target: the largest one over the resources, so that a tenant that has
all that it shall have of one resource leaves the rest of that to others, however much it lacks of another. The least
ratio comes next. On which of the target's server classes is decided by the same question there: what the tenant holds
on the class, in parts of what the target gives it there. So the tenant comes first and the class second: a tenant that
has its share, only elsewhere than the exact mechanism would have put it, takes nothing from others.

* No tenant stops at the target. Remaining capacity goes on in the order of the ratios, so no task waits that would fit.
* A class where the target gives the tenant nothing is its last choice, also servers that have come since.
* A tenant that has come since the targets were made is compared as if its target were its weight times what the others
  get for a weight of 1 on average. So without any targets this is the order of weighted dominant shares.
* A tenant whose target is nothing comes after all others; among such the weighted dominant share decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from fairbind.model import RunningTask, Snapshot, TaskClass
from fairbind.model.servers import IndexArray
from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.policies.level_pools import compute_target_pools
from fairbind.scheduling.policies.levels import INFINITE_LEVEL, Progress
from fairbind.scheduling.policies.measures import Undo
from fairbind.scheduling.policies.subtrees import list_leaves
from fairbind.scheduling.policies.target_places import TargetPlaces


@dataclass(slots=True)
class _Standing:
    """How far one tenant is. What it holds, in parts of its target, is max over r of held_r * factor / divisor.

    terms: (r, factor, divisor) of it. offset: comes on top.
    """

    terms: tuple[tuple[int, int, int], ...]
    offset: int

    def compute_ratio(self, progress: Progress, used_up: AbstractSet[int] = frozenset()) -> int:
        """Return the ratio, exactly, without what is used up."""
        held_r = progress.held_r
        return self.offset + max(
            ((held_r[r] * factor << KEY_BITS) // divisor for r, factor, divisor in self.terms if r not in used_up),
            default=0,
        )


class TargetRatios:
    """What a tenant holds in parts of its target; on which pool is the tenant's own matter."""

    label: ClassVar[str] = "part of its target"
    max_kept_levels: ClassVar[int] = 1
    begins_small: ClassVar[bool] = False
    is_by_pool = False
    may_fall = False

    def __init__(self, snapshot: Snapshot) -> None:
        self.pools = compute_target_pools(snapshot)
        self._snapshot = snapshot
        self._places = TargetPlaces(snapshot, self.pools)
        self._targets = get_targets(snapshot)
        self._unit = compute_target_of_weight_one(snapshot, self._targets)
        self._standings: dict[str, _Standing] = {}
        self._inner_standings: dict[str, _Standing] = {}

    @cached_property
    def _weights(self) -> dict[str, Fraction]:
        return {tenant.name: tenant.weight for tenant in self._snapshot.tenants}

    def compute_level(self, progress: Progress, pool: int) -> int:  # noqa: ARG002 (it is the same on all pools)
        """Return the level of a tenant: the ratio."""
        return self._get_standing(progress).compute_ratio(progress)

    def find_least_level(self, progress: Progress, among: IndexArray) -> tuple[int, int]:
        """Return the level, and the one of these pools where the tenant lacks most of its target there."""
        pool = int(among[self._places.get(progress.name)[among].argmin()])
        return self.compute_level(progress, pool), pool

    def find_bound(self, progress: Progress, among: IndexArray) -> int:  # noqa: ARG002 (it is the same on all pools)
        """Return the level."""
        return self._get_standing(progress).compute_ratio(progress)

    def compute_inner_level(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> int:  # noqa: ARG002
        """Return what a subtree holds in parts of the sum of the targets of its leaves."""
        return self._get_inner_standing(progress).compute_ratio(progress, used_up)

    def compute_inner_share(self, progress: Progress, pool: int, used_up: AbstractSet[int]) -> float:  # noqa: ARG002
        """Return the same for people, of a subtree that gets something; others have none."""
        terms = self._get_inner_standing(progress).terms
        return max((progress.held_r[r] * f / d for r, f, d in terms if r not in used_up), default=0.0)

    def compute_share(self, progress: Progress, pool: int) -> float:  # noqa: ARG002 (it is the same on all pools)
        """Return the ratio for people, of a tenant that gets something; others have none."""
        terms = self._get_standing(progress).terms
        return max((progress.held_r[r] * factor / divisor for r, factor, divisor in terms), default=0.0)

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task of a class, placed in a pool."""
        self._places.shift(progress.name, task_class.share_demand_r, pool, 1)
        progress.add(task_class.share_demand_r)

    def remove(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Take back what `add` counted."""
        self._places.shift(progress.name, task_class.share_demand_r, pool, -1)
        progress.remove(task_class.share_demand_r)

    def evict(
        self,
        progress: Progress,
        running: RunningTask,
        pool: int | None,
        gained_r: Sequence[int],  # noqa: ARG002 (no pool loses anything)
    ) -> Undo:
        """Count one running task less, and return what takes that back."""
        undo_place = self._places.evict(progress.name, running, pool)
        progress.remove(running.share_demand_r)

        def undo() -> None:
            progress.add(running.share_demand_r)
            undo_place()

        return undo

    def _get_inner_standing(self, progress: Progress) -> _Standing:
        standing = self._inner_standings.get(progress.name)
        if standing is None:
            standing = self._inner_standings[progress.name] = self._compute_inner_standing(progress)
        return standing

    def _compute_inner_standing(self, progress: Progress) -> _Standing:
        """Return the standing of a subtree; one of which no leaf has a target stands as a tenant that has none."""
        leaves = list_leaves(self._snapshot.hierarchy)[progress.name]
        if not any(leaf in self._targets for leaf in leaves):
            return self._make_standing(None, progress)
        total: dict[int, Fraction] = {}
        for leaf in leaves:
            target = self._targets.get(leaf)
            if target is None:
                target = {r: self._weights[leaf] * self._unit for r, _, _ in progress.terms}
            for r, share in target.items():
                total[r] = total.get(r, Fraction(0)) + share
        return self._make_standing(total, progress)

    def _get_standing(self, progress: Progress) -> _Standing:
        standing = self._standings.get(progress.name)
        if standing is None:
            standing = self._standings[progress.name] = self._compute_standing(progress)
        return standing

    def _compute_standing(self, progress: Progress) -> _Standing:
        return self._make_standing(self._targets.get(progress.name), progress)

    def _make_standing(self, target: Mapping[int, Fraction] | None, progress: Progress) -> _Standing:
        total_r = self._snapshot.total_r
        if target:
            terms = tuple((r, share.denominator, share.numerator * total_r[r]) for r, share in target.items())
        else:
            unit = self._unit if target is None else Fraction(1)
            terms = tuple(
                (r, factor * unit.denominator, divisor * unit.numerator * total_r[r])
                for r, factor, divisor in progress.terms
            )
        return _Standing(terms, INFINITE_LEVEL if target == {} else 0)


def get_targets(snapshot: Snapshot) -> dict[str, dict[int, Fraction]]:
    """Return the targets above 0, by tenant and axis; a tenant whose target is nothing has an empty one."""
    if snapshot.targets is None:
        return {}
    axis_of = {name: r for r, name in enumerate(snapshot.resources) if snapshot.total_r[r] > 0 and snapshot.counts_r[r]}
    axes = [axis_of.get(name) for name in snapshot.targets.resources]
    return {
        name: {r: Fraction(share) for r, share in zip(axes, row, strict=True) if r is not None and share > 0}
        for name, row in snapshot.targets.shares.items()
    }


def compute_target_of_weight_one(snapshot: Snapshot, targets: Mapping[str, Mapping[int, Fraction]]) -> Fraction:
    """Return what the targets give for a weight of 1 on average, as dominant shares; 1 when no tenant gets anything."""
    served = [(max(targets[t.name].values()), t.weight) for t in snapshot.tenants if targets.get(t.name)]
    if not served:
        return Fraction(1)
    return sum((share for share, _ in served), Fraction(0)) / sum((weight for _, weight in served), Fraction(0))
