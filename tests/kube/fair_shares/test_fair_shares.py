from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fairbind.kube.fair_shares.fair_shares import AUDIT_SECONDS, RETRY_SECONDS, FairShares
from fairbind.kube.fair_shares.solver_process import AuditQuestion, ExactSolveError
from fairbind.kube.observer import SilentObserver
from fairbind.model import Placement, PolicySettings, ServerTable, Snapshot, Targets, Task, TaskClass, Tenant
from fairbind.model.hierarchy import Hierarchy, InnerTenant, Place
from fairbind.model.tenants import Holding
from fairbind.scheduling.fair_shares.audit import AuditReport, audit
from fairbind.scheduling.fair_shares.problem import (
    ExactProblem,
    ExactShares,
    is_same,
    make_exact_problem,
    solve_exactly,
)

EVERYWHERE = Placement(np.ones(1, dtype=np.bool_))


def make_snapshot(*, waiting: int = 4, running: int = 0, cpus: int = 10) -> Snapshot:
    """Two tenants that want tasks of one CPU each on one server; a's run in part, b's wait."""
    classes = [make_class("b", 4)] + ([make_class("a", waiting)] if waiting else [])
    holdings = (Holding((1,), (1,), running, EVERYWHERE),) if running else ()
    return Snapshot(
        resources=("cpu",),
        counts_r=(True,),
        total_r=(cpus,),
        servers=ServerTable(
            names=("n",),
            capacity_kr=np.array([[cpus]]),
            free_kr=np.array([[cpus - running]]),
            usable_k=np.ones(1, dtype=np.bool_),
            class_k=np.zeros(1, dtype=np.int32),
            class_names=("n",),
        ),
        tenants=(
            Tenant("a", allocated_r=(running,), holdings=holdings, allocated_by_server={"n": (running,)}),
            Tenant("b", allocated_r=(0,)),
        ),
        task_classes=tuple(classes),
    )


def make_class(tenant: str, count: int) -> TaskClass:
    tasks = tuple(Task(f"{tenant}{n}", f"{tenant}/{n}", 0, 0.0) for n in range(count))
    return TaskClass(tenant, (1,), (1,), EVERYWHERE, tasks)


class FakeWorld:
    def __init__(self) -> None:
        self.settings = PolicySettings()
        self.snapshot = make_snapshot()
        self.targets: Targets | None = None
        self.on_detail: Callable[[], None] = lambda: None

    def build_snapshot(self) -> Snapshot:
        return self.snapshot

    def build_detailed_snapshot(self) -> Snapshot:
        self.on_detail()
        return self.snapshot

    def set_targets(self, targets: Targets | None) -> None:
        self.targets = targets


class FakeSolver:
    """Solves at once, in the same process; or fails as told."""

    def __init__(self) -> None:
        self.asked: list[ExactProblem] = []
        self.error: ExactSolveError | None = None
        self.is_closed = False
        self.audits = 0

    async def solve(self, problem: ExactProblem) -> ExactShares:
        self.asked.append(problem)
        if self.error is not None:
            raise self.error
        return solve_exactly(problem)

    async def audit(self, question: AuditQuestion) -> AuditReport:
        self.audits += 1
        if self.error is not None:
            raise self.error
        return audit(question.scene, question.fair_shares)

    async def close(self) -> None:
        self.is_closed = True


class CountingObserver(SilentObserver):
    def __init__(self) -> None:
        self.results: list[str] = []

    def exact_solve_finished(self, result: str, seconds: float) -> None:
        assert seconds >= 0
        self.results.append(result)


class Bench:
    """Everything together, with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.world, self.solver, self.observer = FakeWorld(), FakeSolver(), CountingObserver()
        self.fair = FairShares(self.world, self.solver, self.observer, clock=lambda: self.now)

    async def refresh(self, snapshot: Snapshot | None = None, **settings: object) -> None:
        self.world.snapshot = snapshot or self.world.snapshot
        if settings:
            self.world.settings = replace(self.world.settings, **settings)  # type: ignore[arg-type]
        await self.fair.refresh()


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_what_everybody_wants_fits_so_everybody_s_fair_share_is_what_it_wants(bench: Bench) -> None:
    await bench.refresh()
    assert bench.fair.shares == pytest.approx({"a": 0.4, "b": 0.4})
    assert bench.world.targets is not None
    assert bench.observer.results == ["solved"]
    assert bench.fair.describe()[:2] == ("True", "Solved")


async def test_a_binding_alone_is_nothing_new_to_solve(bench: Bench) -> None:
    await bench.refresh()
    await bench.refresh(make_snapshot(waiting=1, running=3))
    assert len(bench.solver.asked) == 1
    await bench.refresh(make_snapshot(waiting=2, running=3))
    assert len(bench.solver.asked) == 2
    assert bench.fair.shares == pytest.approx({"a": 0.5, "b": 0.4})


async def test_a_failed_solve_keeps_the_last_answer_and_is_told_and_tried_again(bench: Bench) -> None:
    await bench.refresh()
    bench.solver.error = ExactSolveError("timeout", "drfh had no answer within 60 s")
    await bench.refresh(make_snapshot(waiting=6))
    assert bench.fair.shares == pytest.approx({"a": 0.4, "b": 0.4})
    assert bench.observer.results == ["solved", "timeout"]
    status, reason, message = bench.fair.describe()
    assert (status, reason) == ("False", "SolveFailed")
    assert "no answer within 60 s" in message

    bench.solver.error = None
    await bench.refresh()
    assert len(bench.solver.asked) == 2  # not yet
    bench.now = RETRY_SECONDS
    await bench.refresh()
    assert bench.fair.shares == pytest.approx({"a": 0.6, "b": 0.4})
    assert bench.fair.describe()[:2] == ("True", "Solved")


async def test_questions_that_take_long_to_pose_are_posed_less_often(bench: Bench) -> None:
    def take_long() -> None:
        bench.now += 1.0

    bench.world.on_detail = take_long
    await bench.refresh()
    bench.now = AUDIT_SECONDS / 2
    await bench.fair.refresh_audit()
    assert bench.solver.audits == 0
    bench.now = 2 * AUDIT_SECONDS
    await bench.fair.refresh_audit()
    assert bench.solver.audits == 1


async def test_another_mechanism_s_answer_does_not_stay(bench: Bench) -> None:
    await bench.refresh()
    bench.solver.error = ExactSolveError("failed", "no")
    await bench.refresh(policy="tsf")
    assert bench.fair.shares is None
    assert bench.world.targets is None
    assert bench.solver.asked[-1].mechanism == "tsf"


async def test_a_policy_without_an_exact_mechanism_has_no_fair_shares(bench: Bench) -> None:
    await bench.refresh()
    await bench.refresh(policy="fifo")
    assert bench.fair.shares is None
    assert bench.fair.describe()[:2] == ("False", "NoExactMechanism")
    await bench.refresh(policy="best-fit-drfh")
    assert bench.fair.shares == pytest.approx({"a": 0.4, "b": 0.4})


async def test_who_wants_nothing_has_a_fair_share_of_nothing(bench: Bench) -> None:
    await bench.refresh(replace(make_snapshot(), task_classes=()))
    assert bench.fair.shares == {"a": 0.0, "b": 0.0}
    assert bench.solver.asked == []


def make_tree() -> Snapshot:
    """Both tenants below team."""
    inner = {"team": InnerTenant(Tenant("team"), Place())}
    return replace(make_snapshot(), hierarchy=Hierarchy({"a": Place("team"), "b": Place("team")}, inner))


async def test_inner_tenants_have_fair_shares_too(bench: Bench) -> None:
    assert bench.fair.inner_shares is None
    await bench.refresh(make_tree())
    assert bench.fair.shares == pytest.approx({"a": 0.4, "b": 0.4})
    assert bench.fair.inner_shares == pytest.approx({"team": 0.8})
    assert bench.fair.describe()[1] == "Solved"
    await bench.refresh(replace(make_tree(), task_classes=()))
    assert bench.fair.inner_shares == {"team": 0.0}


async def test_a_tree_that_is_flattened_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.refresh(make_tree(), policy="drf")
    assert bench.fair.describe() == (
        "True", "SolvedInPart", "Of the tree of tenants only weights and limits count: its mechanism takes no tree."
    )  # fmt: skip
    monkeypatch.setattr("fairbind.scheduling.fair_shares.problem.TREE_EFFORT", 1)
    await bench.refresh(make_tree(), policy="ps-dsf")
    assert bench.fair.shares == pytest.approx({"a": 0.4, "b": 0.4})
    assert bench.fair.describe() == (
        "True",
        "SolvedInPart",
        "Of the tree of tenants only weights and limits count: ps-dsf: it takes more steps than it is given.",
    )


async def test_everything_that_changes_the_answer_makes_another_problem() -> None:
    settings = PolicySettings()
    base = make_exact_problem(make_snapshot(), settings)
    assert base is not None
    same = make_exact_problem(make_snapshot(), settings)
    assert same is not None
    assert is_same(base, same)
    heavier = replace(make_snapshot(), tenants=(Tenant("a", weight=Tenant("x").weight * 2), Tenant("b")))
    for other in (make_snapshot(waiting=5), make_snapshot(cpus=11), heavier):
        changed = make_exact_problem(other, settings)
        assert changed is not None
        assert not is_same(base, changed)


async def test_no_fair_shares_are_those_of_a_part_of_the_tasks(bench: Bench) -> None:
    await bench.refresh()
    await bench.refresh(replace(make_snapshot(waiting=6), is_whole=False))
    assert len(bench.solver.asked) == 1
    await bench.refresh(make_snapshot(waiting=6))
    assert bench.fair.shares == pytest.approx({"a": 0.6, "b": 0.4})


async def test_an_audit_is_not_about_tasks_of_which_it_is_not_known_where_they_may_go(bench: Bench) -> None:
    snapshot = make_snapshot(waiting=20, running=9)
    await bench.refresh(replace(snapshot, stale=frozenset(snapshot.task_classes[:1])))
    assert len(bench.solver.asked) == 1
    await bench.fair.refresh_audit()
    assert bench.solver.audits == 0
    await bench.refresh(snapshot)
    await bench.fair.refresh_audit()
    assert bench.solver.audits == 1


async def test_an_audit_is_made_now_and_then_when_something_changed(bench: Bench) -> None:
    await bench.refresh(make_snapshot(waiting=20, running=9))
    await bench.fair.refresh_audit()
    assert bench.fair.audit is not None
    assert bench.fair.audit.envy_pairs["history"] == 1  # b waits for everything, and a runs nearly everywhere
    assert bench.fair.audit.sharing_incentive_violations["history"] == 1

    await bench.refresh(make_snapshot(waiting=4, running=1))
    await bench.fair.refresh_audit()
    assert bench.solver.audits == 1  # not yet
    bench.now = AUDIT_SECONDS
    await bench.fair.refresh_audit()
    assert bench.solver.audits == 2
    assert sum(bench.fair.audit.envy_pairs.values()) <= 1
    bench.now = 2 * AUDIT_SECONDS
    await bench.fair.refresh_audit()
    assert bench.solver.audits == 2  # nothing has changed


async def test_an_audit_that_fails_keeps_the_last_one(bench: Bench) -> None:
    await bench.refresh(make_snapshot(waiting=20, running=9))
    await bench.fair.refresh_audit()
    before = bench.fair.audit
    bench.now, bench.solver.error = AUDIT_SECONDS, ExactSolveError("failed", "no")
    await bench.refresh(make_snapshot(waiting=4, running=1))
    await bench.fair.refresh_audit()
    assert bench.fair.audit is before
