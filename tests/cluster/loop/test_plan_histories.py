"""Random histories of plans: whatever fails, each begins whole or not at all, limits hold but for one, and all end."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf

import pytest

from fairbind.cluster.loop import pacing as pacing_module
from fairbind.cluster.loop.pacing import Pacing
from fairbind.cluster.loop.pacing_events import (
    BackOff,
    BindAwaits,
    BindEnded,
    BindResult,
    BindStalled,
    BindWithdrawn,
    Changed,
    CycleEnded,
    Decided,
    Event,
    Forget,
    Instruction,
    NothingWaits,
    PodArrived,
    Resume,
    RunCycle,
    Tick,
    WakeAt,
)
from fairbind.cluster.other_schedulers.gate_limiter import GateLimiter
from fairbind.model import Bind, Plan, Task
from seeds import draw_seeds

MOST = 16
"""Decisions that are outstanding at most, and places of gate mode."""
TROUBLE_SECONDS = 60.0
"""Until then bindings fail."""
END_SECONDS = 900.0


class Group:
    """Pods that are decided together. waiting: those that may be decided; left: those that are not bound yet."""

    def __init__(self, number: int, count: int, tenant: str, namespace: str) -> None:
        self.tenant = tenant
        self.tasks = {f"{number}-{n}": Task(f"{number}-{n}", f"{namespace}/{number}-{n}", 0, 0.0) for n in range(count)}
        self.waiting, self.left = set(self.tasks), set(self.tasks)
        self.plan: Plan | None = None
        self.is_broken = False


class World:
    """What pacing is told and obeyed by. draw: randomness. is_gated: whether decisions open gates. fails: how often."""

    def __init__(self, draw: random.Random, *, is_gated: bool, fails: float = 0.3) -> None:
        self.draw, self.is_gated, self.fails = draw, is_gated, fails
        self.now = 0.0
        self.limiter = GateLimiter(most=MOST, timeout_seconds=20.0)
        self.pacing = Pacing(self.limiter)
        self.groups: list[Group] = []
        self.group_of: dict[str, Group] = {}
        self.largest = 1
        self.wake_at = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(self, count: int, tenant: str, namespace: str) -> Group:
        group = Group(len(self.groups), count, tenant, namespace)
        self.groups.append(group)
        self.group_of.update(dict.fromkeys(group.tasks, group))
        self.largest = max(self.largest, count)
        self.feed(Changed())
        return group

    def at(self, seconds: float, happen: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), happen))  # type: ignore[misc]

    def run(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Let time pass until it is over; fail after so many seconds."""
        while not is_over():
            assert self.now < seconds, [(len(group.left), len(group.waiting)) for group in self.groups if group.left]
            if self.wake_at <= min(self.now, self._events[0][0] if self._events else inf):
                self.feed(Tick())
            elif not self._events or self.wake_at <= self._events[0][0]:
                self.now = max(self.now, self.wake_at)
                self.feed(Tick())
            else:
                at, _, happen = heapq.heappop(self._events)
                self.now = max(self.now, at)
                happen()

    def feed(self, event: Event) -> None:
        self.obey(self.pacing.handle(event, self.now))

    def obey(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case WakeAt(at):
                    self.wake_at = at
                case RunCycle():
                    self.run_cycle(instruction)
                case BackOff(uid):
                    self.group_of[uid].waiting.discard(uid)
                case Resume(uid):
                    self.let_wait(uid)
                case Forget(uid, postponed):
                    self.group_of[uid].waiting.discard(uid)
                    if not postponed:
                        self.let_wait(uid)

    def let_wait(self, uid: str) -> None:
        group = self.group_of[uid]
        if uid in group.left and (group.plan is None or all(bind.task.uid != uid for bind in group.plan.binds)):
            group.waiting.add(uid)
            self.feed(Changed())

    # --- cycles ---

    def run_cycle(self, order: RunCycle) -> None:
        ready = [group for group in self.groups if group.left and group.waiting >= group.left and group.plan is None]
        if not ready:
            return self.feed(NothingWaits())
        begins = self.limiter.begin_round(self.now) if order.opens else self.limiter.let_newcomers_in(self.now)
        plans: list[Plan] = []
        complete, is_rationed = True, False
        for group in ready:
            if sum(len(plan.binds) for plan in plans) >= order.limit:
                complete = False
                break
            if self.is_gated and not begins.take(group.tenant, len(group.left)):
                is_rationed = True
                continue
            plans.append(Plan(tuple([Bind(group.tasks[uid], group.tenant, "node") for uid in sorted(group.left)])))
        opens = frozenset(bind.task.uid for plan in plans for bind in plan.binds if self.is_gated)
        instructions = self.pacing.handle(
            Decided(plans, complete, len(ready), opens, is_rationed=is_rationed), self.now
        )
        self.judge(plans, instructions)
        for plan in instructions:
            if isinstance(plan, Plan):
                self.begin(plan)
        self.obey(each for each in instructions if not isinstance(each, Plan))
        self.feed(CycleEnded(0.0))
        return None

    def judge(self, plans: Sequence[Plan], instructions: Sequence[Instruction]) -> None:
        """A plan begins whole, or some of its pods are backed off and nothing of it begins."""
        begun = [each for each in instructions if isinstance(each, Plan)]
        backed_off = {each.uid for each in instructions if isinstance(each, BackOff)}
        for plan in plans:
            uids = {bind.task.uid for bind in plan.binds}
            assert (plan in begun) == uids.isdisjoint(backed_off)
        assert all(plan in plans for plan in begun)
        assert self.pacing.get_state().outstanding < MOST + self.largest
        on_way = [uid for uid in self.group_of if uid in self.limiter and not self.limiter.is_overdue(uid)]
        assert len(on_way) < MOST + self.largest

    # --- bindings ---

    def begin(self, plan: Plan) -> None:
        group = self.group_of[plan.binds[0].task.uid]
        uids = [bind.task.uid for bind in plan.binds]
        if self.is_in_trouble(0.1):
            is_stuck = len(uids) > 1 and self.draw.random() < 0.5
            for uid in uids:
                self.feed(BindWithdrawn(uid, is_stuck))
            return
        group.plan, group.is_broken = plan, False
        group.waiting.difference_update(uids)
        claims = self.draw.choice([0.0, 0.0, 5.0])  # for so long its claims are awaited
        for uid in uids if claims else ():
            self.feed(BindAwaits(uid, awaits=True))
            self.at(claims, partial(self.feed, BindAwaits(uid, awaits=False)))
        for uid in uids:
            self.at(claims + self.draw.uniform(0.0, 0.5), partial(self.send, group, uid))

    def is_in_trouble(self, probability: float) -> bool:
        return self.now < TROUBLE_SECONDS and self.draw.random() < probability

    def send(self, group: Group, uid: str) -> None:
        if group.is_broken or not self.pacing.may_send(uid):
            return self.end(group, uid, BindResult.DEFERRED)
        if self.is_in_trouble(0.1):
            self.at(self.draw.uniform(0.0, 1.0), partial(self.feed, BindStalled(uid, failed=self.draw.random() < 0.5)))
        failures = [result for result in BindResult if not result.is_done]
        result = self.draw.choice(failures) if self.is_in_trouble(self.fails) else BindResult.BOUND
        self.at(self.draw.uniform(3.0, 4.0), partial(self.end, group, uid, result))
        return None

    def end(self, group: Group, uid: str, result: BindResult) -> None:
        assert group.plan is not None
        group.is_broken |= not result.is_done
        left = tuple([bind for bind in group.plan.binds if bind.task.uid != uid])
        group.plan = Plan(left) if left else None
        if result.is_done:
            group.left.discard(uid)
            if self.is_gated:
                self.at(self.draw.expovariate(0.2), partial(self.feed, PodArrived(uid, is_bound=True)))
        self.feed(BindEnded(uid, result))


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing_module, "MAX_OUTSTANDING", MOST)
    monkeypatch.setattr(pacing_module, "LOW_WATER", MOST // 2)


@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("seed", draw_seeds(60))
def test_in_any_history_of_plans_all_pods_are_bound(seed: int, *, is_gated: bool) -> None:
    draw = random.Random(seed)
    world = World(draw, is_gated=is_gated, fails=draw.choice([0.05, 0.3, 0.8]))
    for _ in range(draw.randint(1, 12)):
        tenant = f"t{draw.randrange(3)}"
        count = draw.choice([1, 1, 2, 5, MOST, 3 * MOST])
        world.at(draw.uniform(0.0, 30.0), partial(world.add, count, tenant, f"{tenant}-{draw.randrange(2)}"))
    world.at(31.0, lambda: None)
    world.run(lambda: world.now > 30.0 and not any(group.left for group in world.groups), END_SECONDS)
    world.run(lambda: world.now > END_SECONDS, 2 * END_SECONDS)
    assert world.pacing.get_state().outstanding == 0
    assert world.pacing.get_state().postponed == 0
    assert len(world.limiter) == 0


@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("count", [MOST // 2, MOST, 20 * MOST])
def test_a_large_plan_does_not_wait_for_the_end_of_a_stream_of_single_pods(count: int, *, is_gated: bool) -> None:
    world = World(random.Random(1), is_gated=is_gated, fails=0.0)

    def go_on() -> None:
        for tenant in ("a", "b", "c", "large"):
            world.add(1, tenant, tenant)
        world.at(0.2, go_on)

    go_on()
    world.run(lambda: world.now > 20.0, 30.0)
    large = world.add(count, "large", "large")
    world.groups.insert(0, world.groups.pop())  # it is the next by its tenant's share
    world.run(lambda: not large.left, 60.0)
