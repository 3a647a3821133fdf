"""A plan of three of which the second fails is taken back, in bind mode and in gate mode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.cluster.other_schedulers.gate_limiter import GateLimiter
from fairbind.kube.operator.loop import GateRules, SchedulingLoop
from fairbind.kube.operator.plan_carrier import NothingToPrepare, Readiness
from fairbind.model import CycleReport, Placement, Plan, Task, TaskClass, TaskGroup
from kube.operator.test_loop import PATIENCE, Bench


class Joining(Decider):
    """Joins the decisions of the first cycle to one plan. before: called with it."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.before = before
        self.plans: list[Plan] = []

    def decide(self, *arguments: Any, **options: Any) -> CycleReport:
        report = super().decide(*arguments, **options)
        if self.plans:
            return report
        self.plans = [Plan(report.bindings)]
        self.before()
        return replace(report, plans=tuple(self.plans))


class Sending:
    """Sends one binding after the other, and asks before each whether it may. fails: whose fails, the first time."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.sent: list[str] = []
        self.may_send: Callable[[str], bool] = lambda _uid: True
        self._slot = asyncio.Lock()

    async def bind(self, _namespace: str, _name: str, uid: str, _node: str, _on_stall: object) -> BindResult:
        async with self._slot:
            await asyncio.sleep(0)
            if not self.may_send(uid):
                return BindResult.DEFERRED
            self.sent.append(uid)
            fails, self.fails = self.fails == uid, "" if self.fails == uid else self.fails
            return BindResult.FAILED if fails else BindResult.BOUND


class Claims(NothingToPrepare):
    """Readiness of pods, of which some have claims that must be bound before.

    obstacles: how bindings end unsent, of the first time they are asked about. claims: how binding the claims of a pod
    ends. began, abandoned: whose was begun, and was ended before its end.
    """

    def __init__(
        self, obstacles: Mapping[str, BindResult] | None = None, claims: Mapping[str, BindResult | None] | None = None
    ) -> None:
        self.obstacles = dict(obstacles or {})
        self.claims = dict(claims or {})
        self.began: list[str] = []
        self.abandoned: list[str] = []
        self.go = asyncio.Event()

    def find_obstacle(self, uid: str, _node: str) -> BindResult | None:
        return self.obstacles.pop(uid, None)

    def must_prepare(self, uid: str) -> bool:
        return uid in self.claims

    async def prepare(self, _namespace: str, uid: str, _node: str) -> BindResult | None:
        if uid not in self.claims:
            return None
        self.began.append(uid)
        if self.claims[uid] is None:
            await self.go.wait()
        result = self.claims.pop(uid)
        return BindResult.DEFERRED if uid in self.abandoned else result

    def abandon(self, uid: str) -> None:
        self.abandoned.append(uid)
        self.go.set()


class PlanBench(Bench):
    """A loop that decides a plan of three. is_gated: whether it opens gates. readiness: see `SchedulingLoop`."""

    def __init__(self, binder: Sending, *, is_gated: bool, readiness: Readiness | None = None, most: int = 8) -> None:
        super().__init__(10)
        self.gates = GateRules(GateLimiter(most=most), lambda _uid: True, lambda _uid: False) if is_gated else None
        self.sending = binder
        self.loop = SchedulingLoop(
            self.world,
            binder,
            self.recorder,
            observer=self.observer,
            health=self.health,
            may_decide=lambda: True,
            wall_clock=lambda: 100.0,
            gates=self.gates,
            readiness=readiness,
        )
        binder.may_send = self.loop.may_send
        self.joining = self.loop._decider = Joining()
        self.world.on_change = self.loop.wake

    async def run(self, condition: Callable[[], bool]) -> None:
        self.add("a", "b", "c")
        task = asyncio.create_task(self.loop.run())
        await self.until(condition)
        task.cancel()
        await asyncio.wait([task])
        assert await self.loop.drain(PATIENCE)


both = pytest.mark.parametrize("is_gated", [False, True])


@both
async def test_a_plan_is_carried_out_whole(*, is_gated: bool) -> None:
    bench = PlanBench(Sending(), is_gated=is_gated)
    await bench.run(lambda: len(bench.sending.sent) == 3)
    assert len(bench.joining.plans[0].binds) == 3
    assert bench.world.forgotten == []
    assert bench.loop.decided == 3


@both
async def test_where_the_second_goes_meanwhile_nothing_is_sent(*, is_gated: bool) -> None:
    bench = PlanBench(Sending(), is_gated=is_gated)
    bench.joining.before = lambda: bench.world.pods.pop("b")  # type: ignore[assignment]
    forgotten: list[str] = []
    withdraw = bench.loop._withdraw

    def note(plan: Plan, taken: int = 0, *, is_stuck: bool = False) -> None:
        forgotten.extend(each for each in "abc" if each in bench.world.held)
        assert not is_stuck
        withdraw(plan, taken)
        assert bench.world.held == {}
        assert bench.sending.sent == []
        assert bench.loop._pacing.get_state().outstanding == 0

    bench.loop._withdraw = note  # type: ignore[method-assign]
    await bench.run(lambda: len(bench.sending.sent) == 2)  # the others are decided again, each for itself
    assert forgotten == ["a"]
    assert sorted(bench.sending.sent) == ["a", "c"]


@both
@pytest.mark.parametrize("result", [BindResult.STALE, BindResult.OVERCOMMITTED, BindResult.FAILED])
async def test_where_the_second_has_an_obstacle_nothing_is_sent(result: BindResult, *, is_gated: bool) -> None:
    readiness = Claims({"b": result})
    bench = PlanBench(Sending(), is_gated=is_gated, readiness=readiness)
    await bench.run(lambda: {"a", "c"} <= set(bench.sending.sent))  # decided again, each for itself, and at once
    assert bench.world.forgotten == ["a", "b", "c"]
    assert bench.world.postponed == ({"b"} if result is BindResult.FAILED else set())


@both
async def test_nothing_is_sent_before_the_claims_of_all_are_bound_and_places_are_left_meanwhile(
    *, is_gated: bool
) -> None:
    readiness = Claims(claims={"a": None, "c": None})
    bench = PlanBench(Sending(), is_gated=is_gated, readiness=readiness)

    def look() -> bool:
        if len(readiness.began) == 2 and not readiness.go.is_set():
            assert bench.sending.sent == []
            assert bench.loop._pacing.get_state().outstanding == 0
            readiness.go.set()
        return len(bench.sending.sent) == 3

    await bench.run(look)
    assert bench.world.forgotten == []


@both
async def test_where_the_claims_of_one_fail_those_of_the_others_are_given_up_and_nothing_is_sent(
    *, is_gated: bool
) -> None:
    readiness = Claims(claims={"a": None, "b": BindResult.FAILED})
    bench = PlanBench(Sending(), is_gated=is_gated, readiness=readiness)
    await bench.run(lambda: {"a", "c"} <= set(bench.sending.sent))  # decided again, each for itself, and at once
    assert readiness.abandoned[:1] == ["a"]
    assert bench.world.forgotten[:3] == ["a", "b", "c"]
    assert bench.world.postponed == {"b"}


@both
async def test_what_comes_in_the_way_while_claims_are_bound_is_seen(*, is_gated: bool) -> None:
    readiness = Claims(claims={"a": None})
    bench = PlanBench(Sending(), is_gated=is_gated, readiness=readiness)

    def look() -> bool:
        if readiness.began and not readiness.go.is_set():
            readiness.obstacles["c"] = BindResult.STALE
            readiness.go.set()
        return len(bench.sending.sent) == 3

    await bench.run(look)
    assert bench.world.forgotten == ["a", "b", "c"]


@both
async def test_an_error_before_it_is_sent_takes_a_plan_back(
    caplog: pytest.LogCaptureFixture, *, is_gated: bool
) -> None:
    class Broken(Claims):
        async def prepare(self, namespace: str, uid: str, node: str) -> BindResult | None:
            if uid == "b" and "a plan of 3 pods could not be prepared" not in caplog.messages:
                raise RuntimeError("broken")
            return await super().prepare(namespace, uid, node)

    readiness = Broken(claims={"a": None})
    bench = PlanBench(Sending(), is_gated=is_gated, readiness=readiness)
    await bench.run(lambda: len(bench.world.postponed) == 3)
    assert bench.world.held == {}
    assert bench.sending.sent == []
    assert "a" in readiness.abandoned


async def test_a_plan_whose_second_finds_no_volume_beside_the_first_leaves_the_order_for_a_while() -> None:
    bench = PlanBench(Sending(), is_gated=False)
    assume = bench.world.assume
    bench.world.assume = lambda uid, node, joins=False: not joins and assume(uid, node)  # type: ignore[method-assign, misc]
    await bench.run(lambda: bench.world.postponed == {"a", "b", "c"})
    assert bench.world.held == {}
    assert bench.sending.sent == []
    assert bench.loop._pacing.get_state().outstanding == 0


@both
async def test_where_the_second_is_refused_the_third_is_not_sent_and_the_first_stays(
    caplog: pytest.LogCaptureFixture, *, is_gated: bool
) -> None:
    bench = PlanBench(Sending(fails="b"), is_gated=is_gated)
    await bench.run(lambda: len(bench.world.forgotten) == 2)
    assert bench.world.forgotten == ["b", "c"]
    assert bench.sending.sent[:2] == ["a", "b"]
    assert bench.world.held["a"] == "only"
    assert "a plan is torn: 1 of 3 pods are bound (ns/a, ns/b, ns/c)" in caplog.messages


@pytest.mark.parametrize(("lacking", "may_begin"), [(1, True), (2, False)])
async def test_amid_a_round_no_cycle_begins_for_a_group_that_takes_several_places(
    lacking: int, *, may_begin: bool
) -> None:
    bench = PlanBench(Sending(), is_gated=True)
    tasks = tuple(Task(uid, f"ns/{uid}", 0, 0.0) for uid in "ab")
    task_class = TaskClass("t", (1,), (1,), Placement(np.array([True])), tasks, is_rationed=True)
    assert bench.loop._may_begin(task_class)
    assert bench.loop._may_begin(replace(task_class, group=TaskGroup("ns/g", lacking))) == may_begin


async def test_where_no_place_is_left_no_gate_is_opened() -> None:
    bench = PlanBench(Sending(), is_gated=True, most=8)
    assert bench.gates is not None
    for n in range(8):
        bench.gates.gate_limiter.recover(f"other{n}", "u", time.monotonic())
    await bench.run(lambda: bench.world.postponed == {"a", "b", "c"})
    assert bench.sending.sent == []
    assert bench.world.held == {}
