"""A plan of three of which the second fails is taken back, in bind mode and in gate mode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.cluster.other_schedulers.gate_limiter import GateLimiter
from fairbind.kube.operator.loop import GateRules, SchedulingLoop
from fairbind.model import CycleReport, Plan
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


class PlanBench(Bench):
    """A loop that decides a plan of three. is_gated: whether it opens gates. ready: what is asked before it begins."""

    def __init__(self, binder: Sending, *, is_gated: bool, ready: Callable[[str, str], bool], most: int = 8) -> None:
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
            is_ready=ready,
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
    bench = PlanBench(Sending(), is_gated=is_gated, ready=lambda _uid, _node: True)
    await bench.run(lambda: len(bench.sending.sent) == 3)
    assert len(bench.joining.plans[0].binds) == 3
    assert bench.world.forgotten == []
    assert bench.loop.decided == 3


@both
async def test_where_the_second_goes_meanwhile_nothing_is_sent(*, is_gated: bool) -> None:
    bench = PlanBench(Sending(), is_gated=is_gated, ready=lambda _uid, _node: True)
    bench.joining.before = lambda: bench.world.pods.pop("b")  # type: ignore[assignment]
    forgotten: list[str] = []
    withdraw = bench.loop._withdraw

    def note(plan: Plan, taken: int = 0) -> None:
        forgotten.extend(each for each in "abc" if each in bench.world.held)
        withdraw(plan, taken)
        assert bench.world.held == {}
        assert bench.sending.sent == []
        assert bench.loop._pacing.get_state().outstanding == 0

    bench.loop._withdraw = note  # type: ignore[method-assign]
    await bench.run(lambda: len(bench.sending.sent) == 2)  # the others are decided again, each for itself
    assert forgotten == ["a"]
    assert sorted(bench.sending.sent) == ["a", "c"]


@both
async def test_where_the_second_is_not_ready_nothing_is_sent(*, is_gated: bool) -> None:
    refused: list[str] = []

    def is_ready(uid: str, _node: str) -> bool:
        refused.extend([uid] if uid == "b" else [])
        return uid != "b"

    bench = PlanBench(Sending(), is_gated=is_gated, ready=is_ready)
    await bench.run(lambda: len(bench.sending.sent) == 3)  # decided again, each for itself
    assert refused == ["b"]
    assert bench.world.forgotten == ["a", "b", "c"]
    assert bench.world.postponed == set()


@both
async def test_where_the_second_is_refused_the_third_is_not_sent_and_the_first_stays(
    caplog: pytest.LogCaptureFixture, *, is_gated: bool
) -> None:
    bench = PlanBench(Sending(fails="b"), is_gated=is_gated, ready=lambda _uid, _node: True)
    await bench.run(lambda: len(bench.world.forgotten) == 2)
    assert bench.world.forgotten == ["b", "c"]
    assert bench.sending.sent[:2] == ["a", "b"]
    assert bench.world.held["a"] == "only"
    assert "a plan is torn: 1 of 3 pods are bound (ns/a, ns/b, ns/c)" in caplog.messages


async def test_where_no_place_is_left_for_the_third_no_gate_is_opened() -> None:
    bench = PlanBench(Sending(), is_gated=True, ready=lambda _uid, _node: True, most=8)
    assert bench.gates is not None
    for n in range(6):
        bench.gates.gate_limiter.recover(f"other{n}", "u", time.monotonic())
    await bench.run(lambda: bench.world.postponed == {"a", "b", "c"})
    assert bench.sending.sent == []
    assert bench.world.held == {}
