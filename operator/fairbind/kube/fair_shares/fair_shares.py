"""Fair shares: what the policy's exact mechanism would give each tenant for what it wants now, kept up to date.

Every few seconds the world is looked at; when what tenants want, who they are or what the servers have has changed, the
problem goes to the solver's process. Bindings alone change nothing of that: a pod that waited and now runs is wanted as
before. The last answer counts until the next one, also when a solve fails or takes too long; that is counted, logged
and told in the policy's conditions.

Policies that follow targets get each answer as their targets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from fairbind.kube.fair_shares.solver_process import AuditQuestion, ExactSolveError
from fairbind.kube.observer import Observer
from fairbind.kube.part_failures import PartFailures
from fairbind.model import FairbindError, PolicySettings, Snapshot, Targets
from fairbind.model.overview import AuditCounts
from fairbind.scheduling.fair_shares.audit import AuditReport, make_audit_scene
from fairbind.scheduling.fair_shares.problem import ExactProblem, ExactShares, is_same, make_exact_problem
from fairbind.scheduling.policies.registry import get_policy

INTERVAL_SECONDS = 2.0
AUDIT_SECONDS = 10.0
POSING_PART = 0.05
"""What posing the questions may take of the time, at most: with thousands of kinds of pods it takes a third of a
second, in which nothing is decided. Then they are asked less often, but every `RETRY_SECONDS` at least."""
RETRY_SECONDS = 30.0
"""A problem whose solve failed is tried again after so long, or as soon as it is another problem."""

NOT_SOLVED_YET = "NotSolvedYet"

_log = logging.getLogger(__name__)


class World(Protocol):
    """The cache, as seen here."""

    @property
    def settings(self) -> PolicySettings: ...  # noqa: D102
    def build_snapshot(self) -> Snapshot: ...  # noqa: D102
    def build_detailed_snapshot(self) -> Snapshot: ...  # noqa: D102
    def set_targets(self, targets: Targets | None) -> None: ...  # noqa: D102


class Solver(Protocol):
    """Who solves, elsewhere."""

    async def solve(self, problem: ExactProblem) -> ExactShares: ...  # noqa: D102
    async def audit(self, question: AuditQuestion) -> AuditReport: ...  # noqa: D102
    async def close(self) -> None: ...  # noqa: D102


def describe_simplifications(answer: ExactShares) -> list[str]:
    """Return a sentence for each thing that the cluster uses and that the answer does not take as it is."""
    told = []
    if answer.left_out:
        told.append(f"The exact mechanism of the policy ignores: {', '.join(answer.left_out)}.")
    if answer.flattened is not None:
        told.append(f"Of the tree of tenants only weights and limits count: {answer.flattened}.")
    return told


class FairShares:
    """Keeps the fair shares of now.

    shares: by tenant, of the last answer for the present mechanism; None when there is none. problem: why the last
    solve gave no answer, None when it did. audit: how many findings of the last audit come from what; None before the
    first one.
    """

    def __init__(
        self,
        world: World,
        solver: Solver,
        observer: Observer,
        *,
        failures: PartFailures | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._solver = solver
        self._observer = observer
        self._failures = failures or PartFailures(observer)
        self._clock = clock
        self._seen: tuple[Snapshot, PolicySettings] | None = None
        self._solved: ExactProblem | None = None
        self._retry_at = 0.0
        self.shares: Mapping[str, float] | None = None
        self.problem: str | None = None
        self._answer: ExactShares | None = None
        self._audited: tuple[Snapshot, Mapping[str, float] | None] | None = None
        self._audited_at = -AUDIT_SECONDS
        self._posing_seconds = 0.0
        self.audit: AuditCounts | None = None

    @property
    def inner_shares(self) -> Mapping[str, float] | None:
        """The fair share of all that is below each inner tenant, by its name; None when there is no answer."""
        if self.shares is None:
            return None
        if self._answer is not None:
            return self._answer.inner_shares
        return dict.fromkeys(() if self._seen is None else self._seen[0].hierarchy.inner, 0.0)

    def describe(self) -> tuple[str, str, str]:
        """Return status, reason and message of the condition that tells whether the fair shares are those of now."""
        if self.problem is not None:
            return "False", "SolveFailed", f"The last fair shares stay: {self.problem}"
        if self.shares is None:
            has_mechanism = get_policy(self._world.settings.policy).mechanism is not None
            if has_mechanism:
                return "False", NOT_SOLVED_YET, "There is no answer yet."
            return "False", "NoExactMechanism", "The policy knows no fair shares."
        told = [] if self._answer is None else describe_simplifications(self._answer)
        if told:
            return "True", "SolvedInPart", " ".join(told)
        return "True", "Solved", "Every tenant's fair share is known."

    async def run(self) -> None:
        """Look and solve until cancelled."""
        try:
            while True:
                with self._failures.contain("fair_shares"):
                    await self.refresh()
                with self._failures.contain("fair_shares"):
                    await self.refresh_audit()
                await asyncio.sleep(self._compute_pause(INTERVAL_SECONDS))
        finally:
            await self._solver.close()

    async def refresh(self) -> None:
        """Look once, and solve if there is something new to solve."""
        seen = self._world.build_snapshot(), self._world.settings
        if not seen[0].is_whole:
            return  # a cycle makes the rest within a second, and shares of a part of the tasks would be others
        is_retry = self.problem is not None and self._clock() >= self._retry_at
        if not is_retry and self._seen is not None and all(a is b for a, b in zip(seen, self._seen, strict=True)):
            return
        self._seen = seen
        started = self._clock()
        snapshot = self._world.build_detailed_snapshot()
        self._posing_seconds = self._clock() - started
        await asyncio.sleep(0)  # others have their turn, which is no part of the posing
        started = self._clock()
        try:
            problem = make_exact_problem(snapshot, seen[1])
        except FairbindError as error:
            self._fail("failed", str(error), 0.0)
            return
        finally:
            self._posing_seconds += self._clock() - started
        if problem is None or self._solved is None or problem.mechanism != self._solved.mechanism:
            self.shares, self._answer = None, None
            self._world.set_targets(None)
        if problem is None:  # no tenant wants anything, or the policy knows no fairness
            has_mechanism = get_policy(seen[1].policy).mechanism is not None
            self.shares = dict.fromkeys((tenant.name for tenant in seen[0].tenants), 0.0) if has_mechanism else None
            self._solved, self.problem = None, None
            return
        if is_retry or self._solved is None or not is_same(problem, self._solved):
            await self._solve(problem)

    async def refresh_audit(self) -> None:
        """Audit again if the last one is old and something has changed since."""
        seen = self._world.build_snapshot(), self.shares
        is_early = self._clock() - self._audited_at < self._compute_pause(AUDIT_SECONDS)
        is_same = self._audited is not None and all(a is b for a, b in zip(seen, self._audited, strict=True))
        if is_early or is_same or not seen[0].is_current:
            return
        self._audited, self._audited_at = seen, self._clock()
        snapshot = self._world.build_detailed_snapshot()
        await asyncio.sleep(0)
        scene = make_audit_scene(snapshot)
        try:
            self.audit = (await self._solver.audit(AuditQuestion(scene, self.shares))).count()
        except ExactSolveError as error:
            _log.warning("the audit could not be made; the last one stays: %s", error)

    def _compute_pause(self, usual: float) -> float:
        return max(usual, min(self._posing_seconds / POSING_PART, RETRY_SECONDS))

    async def _solve(self, problem: ExactProblem) -> None:
        started = self._clock()
        self._solved = problem
        _log.debug("%s is asked about %d parts of tenants", problem.mechanism, len(problem.tenant_i))
        try:
            answer = await self._solver.solve(problem)
        except ExactSolveError as error:
            self._fail(error.result, str(error), self._clock() - started)
            return
        self._observer.exact_solve_finished("solved", self._clock() - started)
        self.shares, self.problem, self._answer = answer.fair_shares, None, answer
        self._world.set_targets(answer.targets)

    def _fail(self, result: str, problem: str, seconds: float) -> None:
        """Keep the last answer, and say that it is not of now."""
        self._observer.exact_solve_finished(result, seconds)
        self._retry_at = self._clock() + RETRY_SECONDS
        if problem != self.problem:
            _log.warning("the fair shares could not be solved for; the last ones stay: %s", problem)
        self.problem = problem
