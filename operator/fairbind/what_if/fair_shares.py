"""Exact fair shares of a simulated cluster: what the policy's mechanism gives for the demand of now."""

from __future__ import annotations

from dataclasses import replace

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.fairness.solvers.warm import WarmStart
from fairbind.model import FairbindError
from fairbind.scheduling.fair_shares.problem import (
    ExactProblem,
    ExactShares,
    is_same,
    make_exact_problem,
    solve_exactly,
)
from fairbind.scheduling.policies.registry import POLICIES, reads_targets


class FairShares:
    """Solves when what tenants want, who they are or what servers have has changed.

    policy: whose mechanism; it need not be the one that decides. None: a rule without any. every: nanoseconds that
    targets are good for, at least; 0: they are of now whenever they are asked for.
    """

    def __init__(self, cache: ClusterCache, policy: str | None, *, every: int = 0) -> None:
        self._cache = cache
        self._warm = WarmStart()
        self._solved: ExactProblem | None = None
        self._answer: ExactShares | None = None
        self._policy = policy
        known = None if policy is None else POLICIES[policy]
        self._has_mechanism = known is not None and known.mechanism is not None
        self._every = every
        self._due_at = 0

    def compute(self) -> dict[str, float] | None:
        """Return the fair share of each tenant; None when the policy has no mechanism or it gives no answer."""
        if not self._has_mechanism:
            return None
        if not self._refresh():
            return {tenant.name: 0.0 for tenant in self._cache.build_snapshot().tenants}
        return None if self._answer is None else dict(self._answer.fair_shares)

    def compute_inner(self) -> dict[str, float] | None:
        """Return the fair share of all that is below each inner tenant, by its name; None as `compute` does."""
        shares = self.compute()
        if shares is None or self._answer is not None:
            return None if self._answer is None else dict(self._answer.inner_shares)
        return dict.fromkeys(self._cache.build_snapshot().hierarchy.inner, 0.0)

    def follow(self, now: int = 0) -> None:
        """Give the targets of now to a policy that reads them; they may be as old as `every` says."""
        if now >= self._due_at and reads_targets(self._cache.settings):
            is_guided = not POLICIES[self._cache.settings.policy].follows_targets
            is_asked = self._refresh(only_apart=is_guided)
            self._due_at = now + self._every
            self._cache.set_targets(self._answer.targets if is_asked and self._answer is not None else None)

    def _refresh(self, *, only_apart: bool = False) -> bool:
        """Solve if the problem is another one; False when no tenant wants anything.

        only_apart: and when the mechanism tells no servers apart, so that its answer guides nothing.
        """
        try:
            settings = self._cache.settings
            settings = settings if self._policy is None else replace(settings, policy=self._policy)
            problem = make_exact_problem(self._cache.build_detailed_snapshot(whole=True), settings)
            if problem is None:
                self._solved = self._answer = None
                return False
            if only_apart and (len(problem.problem.server_names) == 1 or not problem.class_of):
                return False
            if self._solved is None or not is_same(problem, self._solved):
                self._solved, self._answer = problem, None
                self._answer = solve_exactly(problem, warm=self._warm)
        except FairbindError:
            self._answer = None  # a solver that gives no answer; decisions go on without it
        return True
