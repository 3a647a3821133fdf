"""Standings: where a tenant whose next task is blocked is beside each other one, at the level where their paths part.

As in the order of decisions, guarantees come before priorities, and these before shares. Who comes after by one of
these is ahead of it without end, and who comes before is behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from fairbind.model import Domains, TaskClass, Wait
from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.order.siblings import Asked, Sibling, Siblings, find_asked
from fairbind.scheduling.cycle.reservations.needs import Need, Rank


class Standing(NamedTuple):
    """One other tenant beside a need. level: at which level of the path. sibling: its own, or the one above it, there.

    share: where that is; infinite where what counts before shares puts it ahead, or with a minus behind.
    is_ahead, is_behind: of the need's tenant; equal shares are neither but for the name.
    """

    level: int
    sibling: Sibling
    share: float
    is_ahead: bool
    is_behind: bool


class _Children(NamedTuple):
    """Siblings on one pool. highest: where the one is that is furthest ahead, by priority below zero.

    holding: how many of them hold something.
    """

    highest: dict[int, float]
    holding: int


class Standings:
    """Compares tenants as one cycle has them now. leaves: all of them, by name."""

    def __init__(self, siblings: Siblings, leaves: Iterable[str]) -> None:
        self._siblings = siblings
        self._leaves = leaves
        self._children: dict[Sibling | None, dict[Sibling, None]] | None = None
        self._known: dict[tuple[Sibling | None, int, Asked], _Children] = {}

    def measure_need(self, wait: Wait, pool: int, allowed: IndexArray) -> Need:
        """Return where a tenant that waits is on a pool. allowed: the servers that its task may use."""
        task_class = wait.task_class
        steps = self._siblings.measure_steps(task_class, pool)
        ranks = [self._rank(each.sibling, task_class.demand_r, allowed) for each in steps]
        return Need(task_class, wait.waiting, pool, steps, ranks, allowed)

    def _rank(self, sibling: Sibling, demand_r: tuple[int, ...], allowed: IndexArray) -> Rank:
        """Return what counts before shares for a task that may go to some servers."""
        guaranteed, is_within = self._siblings.get_guaranteed(sibling), False
        if guaranteed is not None:

            def is_concerned(domains: Domains) -> int:
                return int((domains.domain_k[allowed] == 0).any())

            is_within = guaranteed.find_used_part_of(is_concerned, 1, demand_r) is not None
        return 1 - is_within, -self._siblings.get_priority(sibling)

    def is_behind(self, need: Need) -> bool:
        """Whether with one task more the tenant, or one above it, would not be above the highest of its siblings."""
        parent, asked = None, find_asked(need.task_class)
        for (sibling, share, step), (tier, rank) in zip(need.steps, need.ranks, strict=True):
            highest, holding = self._get_children(parent, need.pool, asked)
            if share + step <= highest.get(rank, -inf) or (tier == 0 and holding > (share > 0)):
                return True
            if any(most > 0 for other_rank, most in highest.items() if other_rank > rank):
                return True
            parent = sibling
        return False

    def _get_children(self, parent: Sibling | None, pool: int, asked: Asked) -> _Children:
        """Return where the children of a tenant are."""
        known = self._known.get((parent, pool, asked))
        if known is None:
            if self._children is None:
                self._children = self._siblings.group_children(self._leaves)
            highest, holding = dict[int, float](), 0
            for child in self._children[parent]:
                rank, share = -self._siblings.get_priority(child), self._siblings.compute_share(child, pool, asked)
                highest[rank] = max(share, highest.get(rank, -inf))
                holding += share > 0
            known = self._known[parent, pool, asked] = _Children(highest, holding)
        return known

    def compare(self, need: Need, other: str) -> Standing:
        """Return where another tenant is beside the one of a need."""
        return self.compare_for(need.task_class, need.pool, need.allowed, other)

    def compare_for(self, task_class: TaskClass, pool: int, allowed: IndexArray, other: str) -> Standing:
        """Return where another tenant is beside that of a class on a pool. allowed: the servers for its tasks."""
        siblings, asked = self._siblings, find_asked(task_class)
        own, sibling = siblings.find_parting(task_class.tenant, other)
        depth = siblings.list_path(task_class.tenant).index(own)
        rank, own_rank = (self._rank(each, task_class.demand_r, allowed) for each in (sibling, own))
        if rank != own_rank:
            is_ahead = rank > own_rank
            return Standing(depth, sibling, inf if is_ahead else -inf, is_ahead, not is_ahead)
        level, own_level = (siblings.compute_level(each, pool, asked) for each in (sibling, own))
        is_behind = (level, sibling.name) < (own_level, own.name)
        return Standing(depth, sibling, siblings.compute_share(sibling, pool, asked), level > own_level, is_behind)
