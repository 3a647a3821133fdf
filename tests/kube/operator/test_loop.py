from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pytest

from fairbind.cluster.loop import pacing, postponements, rounds
from fairbind.cluster.loop.bind_limits import FAILURES_IN_A_ROW
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.kube.observer import SilentObserver
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.loop import SchedulingLoop
from fairbind.model import Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant, Wait
from fairbind.model.reservations import Reservation

PATIENCE = 60.0


@dataclass
class Pod:
    namespace: str
    name: str
    ready_since: float = 0.0
    tenant: str = "t"


@dataclass
class FakeWorld:
    """A cluster of one server, whose pods all take one slot."""

    slots: int
    pods: dict[str, Pod] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    waits: Sequence[Wait] = ()
    looks_on: list[bool] = field(default_factory=list)
    withholds: int = 0
    lacks: int = 0
    snapshots: int = 0
    fault: Exception | None = None
    postponed: set[str] = field(default_factory=set)
    task_class: TaskClass | None = None
    on_change: Callable[[], None] = lambda: None
    settings: PolicySettings = field(default_factory=PolicySettings)

    def add(self, *names: str) -> None:
        for name in names:
            self.pods[name] = Pod("ns", name)

    def build_snapshot(self) -> Snapshot:
        self.snapshots += 1
        if self.fault is not None:
            raise self.fault
        servers = ServerTable(
            names=("only",),
            capacity_kr=np.array([[self.slots]], dtype=np.int64),
            free_kr=np.array([[self.slots - len(self.held)]], dtype=np.int64),
            usable_k=np.array([True]),
            class_k=np.zeros(1, dtype=np.int32),
            class_names=("only",),
        )
        waiting = [uid for uid in sorted(self.pods) if uid not in self.held and uid not in self.postponed]
        tasks = tuple(Task(uid, f"ns/{uid}", 0, 0.0) for uid in waiting)
        placement = Placement(np.array([True]))
        if self.task_class is None or self.task_class.tasks != tasks:  # the same object as long as nothing changes
            self.task_class = TaskClass("t", (1,), (1,), placement, tasks)
        classes = (self.task_class,) if tasks else ()
        tenants = (Tenant("t", allocated_r=(len(self.held),)),)
        stale = frozenset(classes if self.withholds else ())
        classes = () if self.lacks else classes
        return Snapshot(
            ("cpu",), (True,), (self.slots,), servers, tenants, classes, stale=stale, is_whole=not self.lacks
        )

    def assume(self, uid: str, node: str, *, joins: bool = False) -> bool:
        assert joins in {False, bool(self.held)}
        if uid not in self.pods or uid in self.held:
            return False
        self.held[uid] = node
        return True

    def forget(self, uid: str, *, postponed: bool = False) -> None:
        self.forgotten.append(uid)
        self.held.pop(uid, None)
        if postponed:
            self.postponed.add(uid)
        self.on_change()

    def back_off(self, uid: str) -> None:
        self.postponed.add(uid)

    def resume(self, uid: str) -> None:
        self.postponed.discard(uid)
        self.on_change()

    def find_pod(self, uid: str) -> Pod | None:
        return self.pods.get(uid)

    def note_waits(self, waits: Sequence[Wait], *, rotates: bool = True) -> bool:
        assert rotates
        self.waits = waits
        if self.withholds or self.lacks:
            self.withholds, self.lacks = max(0, self.withholds - 1), max(0, self.lacks - 1)
            return True
        return self.looks_on.pop(0) if self.looks_on else False


class FakeBinder:
    """Answers at once, or when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.asked_at: list[float] = []
        self.stalls: dict[str, Callable[[bool], None]] = {}
        self.answers: dict[str, list[BindResult]] = {}
        self.open = asyncio.Event()
        self.open.set()

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, on_stall: Callable[[bool], None]
    ) -> BindResult:
        assert (namespace, node) == ("ns", "only")
        self.stalls[uid] = on_stall
        assert name == uid
        self.asked.append(uid)
        self.asked_at.append(asyncio.get_running_loop().time())
        await self.open.wait()
        answers = self.answers.get(uid)
        return answers.pop(0) if answers else BindResult.BOUND


class FakeRecorder:
    def __init__(self) -> None:
        self.bound: list[str] = []
        self.waits: list[Sequence[Wait]] = []

    def scheduled(self, namespace: str, name: str, uid: str, node: str) -> None:
        self.bound.append(f"{namespace}/{name} {uid} {node}")

    def note_waits(self, waits: Sequence[Wait], node_count: int) -> None:
        assert node_count == 1
        self.waits.append(waits)


class CountingObserver(SilentObserver):
    def __init__(self) -> None:
        self.cycles = 0
        self.failures = 0
        self.pods: list[float] = []
        self.failed_parts: list[str] = []

    def part_failed(self, part: str) -> None:
        self.failed_parts.append(part)

    def cycle_finished(self, seconds: float) -> None:
        assert seconds >= 0
        self.cycles += 1

    def cycle_failed(self) -> None:
        self.failures += 1

    def pod_scheduled(self, tenant: str, seconds: float) -> None:
        assert tenant == "t"
        self.pods.append(seconds)


class Bench:
    """A loop with everything around it faked."""

    def __init__(self, slots: int) -> None:
        self.world = FakeWorld(slots)
        self.binder = FakeBinder()
        self.recorder = FakeRecorder()
        self.observer = CountingObserver()
        self.health = Health()
        self.leads = True
        self.decider = Decider()
        self.loop = SchedulingLoop(
            self.world,
            self.binder,
            self.recorder,
            observer=self.observer,
            health=self.health,
            may_decide=lambda: self.leads,
            wall_clock=lambda: 100.0,
            decider=self.decider,
        )
        self.world.on_change = self.loop.wake

    def add(self, *names: str) -> None:
        self.world.add(*names)
        self.loop.wake()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - conditions are of many kinds
                await asyncio.sleep(0.005)


@asynccontextmanager
async def running(slots: int = 10) -> AsyncIterator[Bench]:
    bench = Bench(slots)
    task = asyncio.create_task(bench.loop.run())
    yield bench
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    bench.binder.open.set()
    assert await bench.loop.drain(PATIENCE)


async def test_a_pod_that_fits_is_bound_and_announced() -> None:
    async with running() as bench:
        bench.add("a")
        await bench.until(lambda: bench.recorder.bound == ["ns/a a only"])
        assert bench.world.held == {"a": "only"}
        assert bench.observer.pods == [100.0]


async def test_the_line_of_a_binding_has_pod_node_tenant_and_result_in_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "fairbind")
    async with running() as bench:
        bench.add("a")
        await bench.until(lambda: "ns/a -> only: bound" in caplog.messages)
    (record,) = (record for record in caplog.records if record.getMessage() == "ns/a -> only: bound")
    fields = {name: record.__dict__[name] for name in ("pod", "node", "tenant", "reason")}
    assert fields == {"pod": "ns/a", "node": "only", "tenant": bench.world.pods["a"].tenant, "reason": "bound"}


@pytest.mark.parametrize("steps", range(5))
async def test_it_ends_when_it_is_told_to_also_in_the_moment_of_a_change(steps: int) -> None:
    async with asyncio.timeout(PATIENCE) as limit, running() as bench:
        await asyncio.sleep(0.01)  # it waits for a change
        bench.loop.wake()
        for _ in range(steps):
            await asyncio.sleep(0)
    assert not limit.expired()


async def test_changes_that_come_together_are_decided_in_one_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "COALESCE_SECONDS", 1.0)  # on a busy machine they come less close together
    async with running() as bench:
        for name in "abcde":
            bench.add(name)
            await asyncio.sleep(0)
        await bench.until(lambda: len(bench.recorder.bound) == 5)
        assert bench.observer.cycles == 1


@pytest.mark.parametrize("leads", [True, False])
async def test_what_was_reserved_is_forgotten_where_nothing_waits_and_where_another_decides(*, leads: bool) -> None:
    """Else the first cycle after a pause, however long, keeps capacity for whoever was next before it."""
    async with running() as bench:
        snapshot = bench.world.build_snapshot()
        bench.decider.reservations.restore([Reservation("t", "only", (1,), 1, 0.0, 1.0)], snapshot)
        bench.leads = leads
        if not leads:
            bench.world.add("a")
        bench.loop.wake()
        await bench.until(lambda: not bench.decider.reservations.list_all())


async def test_a_decision_counts_before_it_is_carried_out() -> None:
    async with running(slots=1) as bench:
        bench.binder.open.clear()
        bench.add("a")
        await bench.until(lambda: bench.binder.asked == ["a"])
        bench.add("b")
        await bench.until(lambda: bench.observer.cycles == 2)
        assert bench.binder.asked == ["a"]
        assert [wait.waiting for wait in bench.world.waits] == [1]


async def test_nothing_is_decided_without_leading() -> None:
    async with running() as bench:
        bench.leads = False
        bench.add("a")
        await asyncio.sleep(4 * pacing.COALESCE_SECONDS)
        assert bench.world.snapshots == 0
        bench.leads = True
        bench.loop.wake()
        await bench.until(lambda: bench.binder.asked == ["a"])


@pytest.mark.slow
@pytest.mark.parametrize("result", [BindResult.CONFLICT, BindResult.GONE, BindResult.INVALID, BindResult.FAILED])
async def test_a_failed_binding_gives_its_room_back_and_its_pod_waits(
    result: BindResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postponements, "FIRST_POSTPONE_SECONDS", 2.0)
    async with running(slots=1) as bench:
        bench.binder.answers["a"] = [result]
        bench.add("a", "b")
        await bench.until(lambda: bench.binder.asked[:2] == ["a", "b"])  # b takes the room that a gave back
        assert bench.world.forgotten == ["a"]
        await bench.until(lambda: bench.recorder.bound == ["ns/b b only"])
        del bench.world.pods["b"]
        bench.world.held.clear()
        bench.loop.wake()
        await bench.until(lambda: bench.binder.asked == ["a", "b", "a"])


async def test_a_pod_that_fails_again_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postponements, "FIRST_POSTPONE_SECONDS", 0.1)
    async with running() as bench:
        bench.binder.answers["a"] = [BindResult.FAILED] * 3
        bench.add("a")
        await bench.until(lambda: len(bench.binder.asked) == 4)
        gaps = [later - earlier for earlier, later in itertools.pairwise(bench.binder.asked_at)]
        assert gaps[0] >= 0.09
        assert gaps[1] >= 0.19
        assert gaps[2] >= 0.39


@pytest.mark.parametrize("result", [BindResult.FENCED, BindResult.STALE, BindResult.OVERCOMMITTED, BindResult.DEFERRED])
async def test_a_binding_that_was_not_sent_gives_its_room_back_without_a_wait(result: BindResult) -> None:
    async with running(slots=1) as bench:
        bench.binder.answers["a"] = [result]
        bench.add("a")
        await bench.until(lambda: bench.world.forgotten == ["a"])
        await bench.until(lambda: bench.binder.asked == ["a", "a"])


async def test_a_cycle_that_fails_executes_nothing_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pacing, "FAILED_CYCLE_SECONDS", 0.01)
    async with running() as bench:
        bench.world.fault = RuntimeError("broken")
        bench.add("a")
        await bench.until(lambda: bench.observer.failures >= 2)
        assert bench.binder.asked == []
        bench.world.fault = None
        await bench.until(lambda: bench.binder.asked == ["a"])
    assert "a scheduling cycle failed" in caplog.text
    assert "broken" in caplog.text


async def test_a_long_backlog_is_decided_in_pieces_that_follow_the_binder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "MAX_OUTSTANDING", 8)
    monkeypatch.setattr(pacing, "LOW_WATER", 4)
    names = [f"p{number:02}" for number in range(30)]
    async with running(slots=100) as bench:
        bench.binder.open.clear()
        bench.add(*names)
        await bench.until(lambda: len(bench.binder.asked) == 8)
        await asyncio.sleep(4 * pacing.COALESCE_SECONDS)
        assert len(bench.binder.asked) == 8
        bench.binder.open.set()
        await bench.until(lambda: len(bench.recorder.bound) == 30)
        assert bench.binder.asked == names
        assert bench.observer.cycles >= 4


async def test_a_pod_that_comes_while_the_binder_is_full_is_decided_on_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "MAX_OUTSTANDING", 4)
    monkeypatch.setattr(pacing, "LOW_WATER", 2)
    async with running(slots=10) as bench:
        bench.binder.open.clear()
        bench.add("a", "b", "c", "d")
        await bench.until(lambda: len(bench.binder.asked) == 4)
        bench.add("e")
        await asyncio.sleep(4 * pacing.COALESCE_SECONDS)
        bench.binder.open.set()  # nothing else will wake the loop
        await bench.until(lambda: len(bench.recorder.bound) == 5)


async def test_who_waits_is_told_after_a_complete_cycle() -> None:
    async with running(slots=1) as bench:
        bench.add("a", "b", "c")
        await bench.until(lambda: bool(bench.recorder.waits))
        (wait,) = bench.recorder.waits[-1]
        assert (wait.first.uid, wait.waiting) == ("b", 2)
        for uid in ("b", "c"):
            del bench.world.pods[uid]
        bench.loop.wake()
        await bench.until(lambda: bench.recorder.waits[-1] == ())
        assert bench.world.waits == ()


@pytest.mark.slow
async def test_where_very_many_classes_wait_they_are_explained_anew_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "MANY_CLASSES", 1)
    monkeypatch.setattr(rounds, "EXPLAIN_SECONDS", 4.0)
    async with running(slots=0) as bench:
        bench.add("a")
        await bench.until(lambda: len(bench.recorder.waits) == 1)
        bench.loop.wake()
        await bench.until(lambda: len(bench.recorder.waits) == 2)
        first, second = (waits[0] for waits in bench.recorder.waits)
        assert second is first
        await bench.until(lambda: len(bench.recorder.waits) == 3)  # although nobody woke it
        assert bench.recorder.waits[2][0] is not first
        assert bench.world.waits is bench.recorder.waits[2]


async def test_a_pod_that_went_away_while_it_was_decided_on_is_left_alone() -> None:
    async with running() as bench:
        bench.add("a", "b")
        find_pod = bench.world.find_pod
        bench.world.find_pod = lambda uid: None if uid == "a" else find_pod(uid)  # type: ignore[method-assign]
        await bench.until(lambda: bench.binder.asked == ["b"])
        assert "a" not in bench.world.held


async def test_a_pod_that_waits_no_more_when_its_turn_comes_is_left_alone() -> None:
    async with running() as bench:
        assume = bench.world.assume
        bench.world.assume = lambda uid, node, **_joins: uid != "a" and assume(uid, node)  # type: ignore[method-assign]
        bench.add("a", "b")
        await bench.until(lambda: bench.recorder.bound == ["ns/b b only"])
        assert bench.binder.asked == ["b"]


async def test_the_loop_turns_also_when_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BEAT_SECONDS", 0.02)
    beats: list[None] = []
    async with running() as bench:
        monkeypatch.setattr(bench.health, "beat", lambda: beats.append(None))
        await bench.until(lambda: len(beats) >= 3)
        assert bench.world.snapshots == 0


async def test_a_cycle_looks_at_others_without_any_change() -> None:
    async with running(slots=1) as bench:
        bench.world.looks_on = [True]
        bench.add("a", "b")
        await bench.until(lambda: bench.world.looks_on == [] and bench.world.snapshots == 2)


async def test_cycles_go_on_without_any_change_while_something_is_withheld() -> None:
    """Nothing else of a cycle may differ from the one before, so the reasons are the same."""
    async with running(slots=1) as bench:
        bench.world.withholds = 3
        bench.add("a")
        await bench.until(lambda: bench.binder.asked == ["a"])
        assert bench.world.withholds == 0


async def test_a_snapshot_that_lacks_classes_does_not_say_that_nothing_waits() -> None:
    async with running(slots=1) as bench:
        bench.world.lacks = 2
        bench.add("a")
        await bench.until(lambda: bench.binder.asked == ["a"])


async def test_the_sweep_decides_without_any_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(pacing, "SWEEP_SECONDS", 0.05)
    async with running() as bench:
        bench.world.add("a")  # nobody woke the loop
        await bench.until(lambda: bench.binder.asked == ["a"])


async def test_an_error_amid_the_decisions_holds_no_place_for_those_that_did_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "FAILED_CYCLE_SECONDS", 0.01)
    monkeypatch.setattr(pacing, "MAX_OUTSTANDING", 3)
    async with running() as bench:
        assume, faults = bench.world.assume, iter([False, True])

        def assume_or_fail(uid: str, node: str, **_joins: bool) -> bool:
            if next(faults, False):
                raise RuntimeError("broken")
            return assume(uid, node)

        bench.world.assume = assume_or_fail  # type: ignore[method-assign]
        bench.add("a", "b", "c")
        await bench.until(lambda: len(bench.recorder.bound) == 3)
        assert bench.binder.asked == ["a", "b", "c"]
        assert bench.observer.failures == 1
        assert bench.loop._pacing.get_state().outstanding == 0


async def test_a_pod_that_cannot_be_resumed_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postponements, "FIRST_POSTPONE_SECONDS", 0.01)
    async with running() as bench:
        resumed: list[str] = []

        def fail(uid: str) -> None:
            resumed.append(uid)
            raise RuntimeError("broken")

        bench.world.resume = fail  # type: ignore[method-assign]
        bench.binder.answers["a"] = [BindResult.FAILED]
        bench.add("a")
        await bench.until(lambda: resumed == ["a"])
        bench.add("b")
        await bench.until(lambda: bench.recorder.bound == ["ns/b b only"])
    assert "resuming a failed" in caplog.text


async def test_a_change_before_it_runs_counts() -> None:
    bench = Bench(1)
    bench.add("a")
    task = asyncio.create_task(bench.loop.run())
    await bench.until(lambda: bench.recorder.bound == ["ns/a a only"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_errors_of_who_only_tells_stop_no_decision(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def scheduled(self, *_: object) -> None:
            raise KeyError("a bug")

        def note_waits(self, *_: object) -> None:
            raise KeyError("a bug")

        def record(self, _: object) -> None:
            raise ZeroDivisionError("another bug")

    async with running() as bench:
        bench.loop._announcer = bench.loop._journal = Broken()
        bench.add("a")
        await bench.until(lambda: bench.world.held == {"a": "only"})
        bench.add("b")
        await bench.until(lambda: bench.world.held == {"a": "only", "b": "only"})
        await bench.until(lambda: len(bench.observer.pods) == 2)
        assert bench.observer.failures == 0
        assert set(bench.observer.failed_parts) == {"recorder", "journal"}
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2


async def test_when_bindings_fail_few_go_on_and_the_first_success_lets_all_others_follow() -> None:
    async with running(slots=100) as bench:
        bench.binder.open.clear()
        bench.add(*(f"p{number}" for number in range(FAILURES_IN_A_ROW)))
        await bench.until(lambda: len(bench.binder.asked) == FAILURES_IN_A_ROW)
        for stall in bench.binder.stalls.values():
            stall(True)
        bench.add(*(f"q{number}" for number in range(20)))
        await bench.until(lambda: len(bench.world.postponed) == 20)
        assert len(bench.binder.asked) == FAILURES_IN_A_ROW
        bench.binder.open.set()
        await bench.until(lambda: len(bench.recorder.bound) == FAILURES_IN_A_ROW + 20)
        assert not bench.world.postponed
