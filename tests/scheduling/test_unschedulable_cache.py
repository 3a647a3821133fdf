"""A memory of what fitted nowhere changes no decision, whatever happens to servers and tasks between two cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.model import (
    CycleReport,
    DomainRules,
    ExclusiveKeys,
    InvalidProblemError,
    LimitRule,
    Pin,
    Placement,
    PolicySettings,
    SeparationRule,
    ServerTable,
    Snapshot,
    Task,
    TaskClass,
    TaskGroup,
    Tenant,
    Wait,
)
from fairbind.model.servers import FloatArray, IndexArray
from fairbind.scheduling import UnschedulableCache, run_cycle
from fairbind.scheduling.cycle import cycle, draft
from fairbind.scheduling.cycle.order.task_queues import ClassQueue
from fairbind.scheduling.cycle.servers.shapes import Shape
from fairbind.scheduling.cycle.waits import deferred, unschedulable_cache
from fairbind.scheduling.cycle.waits import store as remembered
from rejections import unsupported
from scheduling.rules import FOUR, FULL, OWN, ZONES, build_counter, build_domains
from scheduling.strategies import POLICY_IDS
from scheduling.worlds import apply_report, build_class, build_placement, build_servers, build_snapshot
from seeds import draw_seeds


def carry_out(snapshot: Snapshot, report: CycleReport) -> Snapshot:
    """Return the world after the bindings; classes of which nothing was placed are the same objects."""
    after, same = apply_report(snapshot, report), {each.tasks: each for each in snapshot.task_classes}
    placed = {bind.task for bind in report.bindings}
    whole = {c.group for c in snapshot.task_classes if c.group is not None and not placed.isdisjoint(c.tasks)}
    left = (
        replace(each, group=None) if each.group in whole else same.get(each.tasks, each) for each in after.task_classes
    )
    return replace(after, task_classes=tuple(left))


def build_world(draw: np.random.Generator, *, classes: int) -> Snapshot:
    """Return four servers that are nearly full and so many classes of three tenants, most of which fit nowhere.

    Some placements have many of the classes, others a few.
    """
    names = ["w", "x", "y", "z"]
    servers = build_servers(
        dict.fromkeys(names, (9, 9)), free={name: draw.integers(0, 4, 2).tolist() for name in names}
    )
    ports = ExclusiveKeys(frozenset({"p"}), frozenset({"p"}))
    placements = [
        build_placement(servers),
        build_placement(servers, exclusive_keys=ports),
        *(build_placement(servers, only=draw.choice(names, 2, replace=False).tolist()) for _ in range(2)),
    ]
    made = [
        TaskClass(
            tenant="abc"[draw.integers(3)],
            demand_r=tuple(demand := draw.integers(0, 6, 2).tolist()),
            share_demand_r=tuple(demand),
            placement=placements[draw.choice(4, p=(0.5, 0.1, 0.2, 0.2))],
            # Names run against uids: `fifo` has another order than the rest.
            tasks=tuple(Task(f"u{n}-{m}", f"ns/{99 - n}-{m}", 0, float(n % 2)) for m in range(draw.integers(1, 5))),
            blocked=unsupported("not honoured") if draw.random() < 0.1 else None,
        )
        for n in range(classes)
    ]
    made = [pin(draw, each, names) if draw.random() < 0.3 else each for each in made]
    return build_snapshot(servers, list(join_groups(draw, made)))


def join_groups(draw: np.random.Generator, task_classes: list[TaskClass]) -> Iterator[TaskClass]:
    """Let some classes be a group each, and some two of a tenant one together."""
    of_tenant: dict[str, TaskGroup] = {}
    for n, each in enumerate(task_classes):
        group = TaskGroup(f"g{n}", int(draw.integers(1, len(each.tasks) + 1)))
        if draw.random() < 0.2:
            group = of_tenant.setdefault(each.tenant, group)
        yield replace(each, group=group) if draw.random() < 0.3 else each


def pin(draw: np.random.Generator, task_class: TaskClass, names: list[str]) -> TaskClass:
    """Let a class use only one of its servers, or none of them."""
    server = int(draw.integers(len(names)))
    may_use = bool(task_class.placement.eligible_k[server])
    return replace(task_class, pin=Pin(names[server], server if may_use else None))


def change(draw: np.random.Generator, snapshot: Snapshot) -> Snapshot:
    """Return the world after somebody's pods have ended, and often no more than that."""
    if draw.random() < 0.3:  # somebody has enough of waiting
        first, *others = snapshot.task_classes or [None]
        left = [replace(first, tasks=first.tasks[1:])] if first is not None and len(first.tasks) > 1 else []
        snapshot = replace(snapshot, task_classes=(*others, *left))
    servers, taken_keys = snapshot.servers, dict(snapshot.servers.taken_keys)
    free_kr, usable_k = servers.free_kr.copy(), servers.usable_k.copy()
    server, resource = draw.integers(len(servers.names)), draw.integers(2)
    free_kr[server, resource] = min(9, free_kr[server, resource] + draw.integers(4))
    if draw.random() < 0.3:
        snapshot = replace(snapshot, task_classes=tuple(lead_elsewhere(draw, snapshot)))
    what = draw.choice(["nothing"] * 4 + ["ports", "usable"])
    if what == "ports":
        taken_keys = {int(server): frozenset({"p"})} if draw.random() < 0.5 else {}
    elif what == "usable":
        usable_k[server] ^= True
    return replace(snapshot, servers=replace(servers, free_kr=free_kr, usable_k=usable_k, taken_keys=taken_keys))


def lead_elsewhere(draw: np.random.Generator, snapshot: Snapshot) -> Iterator[TaskClass]:
    """Yield the classes after a node has changed, which opens or closes it to those that share some placement."""
    chosen = {id(each.placement) for each in snapshot.task_classes if draw.random() < 0.5}
    server, changed = draw.integers(len(snapshot.servers.names)), dict[int, Placement]()
    for each in snapshot.task_classes:
        before = each.placement
        if id(before) not in chosen or each.pin is not None:
            yield each
            continue
        if id(before) not in changed:
            eligible_k = before.eligible_k.copy()
            eligible_k[server] ^= True
            changed[id(before)] = replace(before, eligible_k=eligible_k)
        yield replace(each, placement=changed[id(before)])


def describe(report: CycleReport) -> tuple[object, ...]:
    """Return what a memory must not change: all but what explanations count and compare."""
    bindings = [(bind.task.uid, bind.server) for bind in report.bindings]
    waits = [(wait.task_class.tenant, wait.first.uid, wait.waiting, wait.blocked) for wait in report.waits]
    return bindings, waits, report.complete, report.weighted_shares


@pytest.mark.parametrize("seed", draw_seeds(60, nightly=240))
def test_it_changes_no_decision(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "SINGLES_PART", 1 + seed % 2)
    for module in (remembered, deferred):
        monkeypatch.setattr(module, "SINGLE_CLASSES", (1, 3, 5, 16)[seed % 4])
    monkeypatch.setattr(unschedulable_cache, "SINGLE_SCORES", seed % 4)
    draw = np.random.default_rng(seed)
    unschedulable, policy = UnschedulableCache(), POLICY_IDS[seed % len(POLICY_IDS)]
    snapshot = build_world(draw, classes=60 if seed % 5 == 0 else 10)
    for _ in range(12):
        if draw.random() < 0.2:
            policy = POLICY_IDS[draw.integers(len(POLICY_IDS))]
        limit = 1 if draw.random() < 0.2 else None
        explains = draw.random() < 0.3
        some = frozenset(each for each in snapshot.task_classes if draw.random() < 0.3)
        snapshot = replace(snapshot, stale=some if draw.random() < 0.2 else frozenset())
        remembering = run_cycle(
            snapshot, PolicySettings(policy), 0.0, limit=limit, unschedulable=unschedulable, explains=explains
        )
        afresh = run_cycle(snapshot, PolicySettings(policy), 0.0, limit=limit)
        certain = [wait for wait in remembering.waits if wait.task_class not in snapshot.stale]
        assert snapshot.stale.isdisjoint(wait.task_class for wait in afresh.waits)
        if limit is None:
            assert describe(replace(remembering, waits=tuple(certain))) == describe(afresh)
        else:  # then afresh may not yet have seen of everybody that it fits nowhere
            assert describe(remembering)[0] == describe(afresh)[0]
            assert set(map(id_of, afresh.waits)) <= set(map(id_of, remembering.waits))
        if draw.random() < 0.8:  # else nothing of it could be carried out
            snapshot = carry_out(snapshot, remembering)
        snapshot = change(draw, snapshot)


def id_of(wait: Wait) -> str:
    return wait.first.uid


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tenants of the classes at which cycles look, in the order in which they do."""
    looks: list[str] = []

    class Watched(ClassQueue):
        def __init__(self, task_class: TaskClass, *arguments: Any, **more: Any) -> None:
            looks.append(task_class.tenant)
            super().__init__(task_class, *arguments, **more)

    monkeypatch.setattr(draft, "ClassQueue", Watched)
    return looks


def test_only_what_may_fit_on_servers_that_have_gained_room_is_looked_at(looked: list[str]) -> None:
    full = build_servers({"x": (8, 8), "y": (8, 8)}, free={"x": (1, 8), "y": (1, 8)})
    everywhere, at_y, nowhere = (build_placement(full, only=only) for only in (None, ["y"], []))
    kinds = {"large": (6, everywhere), "small": (3, everywhere), "pinned": (2, at_y), "lost": (0, nowhere)}
    classes = [build_class(name, (cpu, min(cpu, 1)), at) for name, (cpu, at) in kinds.items()]
    unschedulable, settings = UnschedulableCache(), PolicySettings()

    def decide(servers: ServerTable) -> list[str]:
        looked.clear()
        report = run_cycle(build_snapshot(servers, classes), settings, 0.0, unschedulable=unschedulable)
        assert len(report.waits) + len(report.bindings) == len(kinds)
        return [bind.tenant for bind in report.bindings]

    gained = replace(full, free_kr=full.free_kr + np.array([[3, 0], [0, 0]]))
    assert (decide(full), sorted(looked)) == ([], sorted(kinds))
    assert (decide(full), looked) == ([], [])
    assert (decide(replace(full, free_kr=full.free_kr - 1)), looked) == ([], [])
    assert (decide(gained), looked) == (["small"], ["small"])
    unschedulable.forget()
    assert (decide(full), sorted(looked)) == ([], sorted(kinds))


def test_those_that_come_too_late_for_new_room_ask_no_other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for one comes back, and many may have it: only the first of them scores all servers."""
    servers = build_servers(dict.fromkeys("vwxyz", (8, 8)), free=dict.fromkeys("vwxyz", (1, 8)))
    classes = [build_class(f"t{n:02}", (3, n), build_placement(servers)) for n in range(8)]
    unschedulable, scored = UnschedulableCache(), list[int]()
    score_many = Shape._score_many

    def note(shape: Shape, chosen: IndexArray) -> FloatArray:
        scored.append(len(chosen))
        return score_many(shape, chosen)

    def decide(free: int, *, explains: bool = False) -> tuple[int, list[Wait]]:
        snapshot = build_snapshot(
            replace(servers, free_kr=servers.free_kr + np.array([[free, 0], *[[0, 0]] * 4])), classes
        )
        report = run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable, explains=explains)
        return len(report.bindings), list(report.waits)

    _, before = decide(0)
    monkeypatch.setattr(Shape, "_score_many", note)
    bound, after = decide(3)

    assert (bound, scored[0], len(scored)) == (1, 5, 1)
    assert set(map(id, after)) < set(map(id, before)), "they keep their explanations"
    assert set(map(id, decide(4, explains=True)[1])).isdisjoint(map(id, before)), "unless they are asked for"


def test_those_that_come_too_late_for_new_room_are_not_looked_at(looked: list[str]) -> None:
    """Two or three of eight tenants get the room that came back."""
    servers = build_servers(dict.fromkeys("xy", (8, 8)), free=dict.fromkeys("xy", (1, 8)))
    classes = [build_class(f"t{n}", (3, 1), build_placement(servers)) for n in range(8)]
    unschedulable = UnschedulableCache()

    def decide(free: int, *, limit: int | None = None) -> tuple[list[str], list[str]]:
        looked.clear()
        now = replace(servers, free_kr=servers.free_kr + np.array([[free, 0], [0, 0]]))
        snapshot = build_snapshot(now, classes)
        report = run_cycle(snapshot, PolicySettings(), 0.0, limit=limit, unschedulable=unschedulable, explains=False)
        assert len(report.waits) + len(report.bindings) == (8 if limit is None else 1)
        return [bind.tenant for bind in report.bindings], sorted(looked)

    assert decide(0) == ([], [f"t{n}" for n in range(8)])
    assert decide(6, limit=1) == (["t0"], ["t0", "t1"])
    assert decide(6) == (["t0", "t1"], [f"t{n}" for n in range(8)]), "the limit left room: nothing is known of anyone"
    assert decide(8) == (["t0", "t1", "t2"], ["t0", "t1", "t2"])


@pytest.mark.parametrize("few", [0, 1, 15, 16])
@pytest.mark.parametrize("many", [1, 16, 40])
def test_classes_are_held_although_none_of_some_other_placement_fits(few: int, many: int) -> None:
    """Room came back for small classes; those of the other placements are too large for it, or there are none."""
    servers = build_servers({"x": (90, 90), "y": (90, 90)}, free={"x": (1, 8), "y": (0, 0)})
    everywhere, also, only = (build_placement(servers, only=some) for some in (None, ["x", "y"], ["x"]))
    classes = [
        *(build_class(f"t{n:02}", (3, n % 3), everywhere) for n in range(many)),
        *(build_class(f"t{n:02}", (9, n % 3), also) for n in range(few)),
        *(build_class(f"u{n:02}", (8, n % 3), only) for n in range(few // 2)),
    ]
    unschedulable = UnschedulableCache()

    def decide(free: int) -> int:
        now = replace(servers, free_kr=servers.free_kr + np.array([[free, 0], [0, 0]]))
        snapshot = build_snapshot(now, classes)
        report = run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable, explains=False)
        assert len(report.waits) + len(report.bindings) == len(classes)
        return len(report.bindings)

    assert (decide(0), decide(5)) == (0, min(2, many))


def test_a_limit_that_leaves_room_again_has_the_class_looked_at() -> None:
    """What took the last place asks for nothing, so when it is gone no server has gained room."""
    servers = build_servers({"x": (8, 8)})
    everywhere, domains = build_placement(servers), build_domains([0])
    unschedulable = UnschedulableCache()
    first = replace(build_class("a", (0, 0), everywhere), brings=(("disks", 1),))
    waiting = build_class("b", (1, 1), everywhere)

    def decide(*others: TaskClass) -> list[str]:
        rule = LimitRule(build_counter("disks", domains, [0]), 1, np.array([1]), FULL)
        now = replace(waiting, rules=DomainRules((rule,)), brings=(("disks", 1),))
        snapshot = build_snapshot(servers, [*others, now])
        report = run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable)
        return [bind.tenant for bind in report.bindings]

    assert decide(first) == ["a"]
    assert decide() == ["b"]


def test_after_a_cycle_that_failed_at_its_end_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decisions are lost. What they closed to others is open, and no server has gained room."""
    rules = DomainRules((SeparationRule(build_counter("red", ZONES, [0, 0, 0]), OWN),))
    first = replace(build_class("a", (1, 1), build_placement(FOUR, only=["a1"])), counts_as=frozenset({"red"}))
    second = replace(build_class("b", (1, 1), build_placement(FOUR, only=["a2"])), rules=rules)
    tenants = [Tenant("a"), Tenant("b", allocated_r=(5, 5))]
    unschedulable, settings = UnschedulableCache(), PolicySettings()
    with monkeypatch.context() as patch:
        patch.setattr(cycle._Cycle, "_compute_shares", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_cycle(
                build_snapshot(FOUR, [first, second], tenants=tenants), settings, 0.0, unschedulable=unschedulable
            )

    report = run_cycle(build_snapshot(FOUR, [second], tenants=tenants), settings, 0.0, unschedulable=unschedulable)

    assert [bind.tenant for bind in report.bindings] == ["b"]


def test_what_was_looked_at_in_vain_is_remembered_again(looked: list[str]) -> None:
    servers = build_servers({"x": (8, 8)}, free={"x": (1, 8)})
    classes = [build_class(name, (3, size), build_placement(servers)) for size, name in enumerate("abc")]
    unschedulable = UnschedulableCache()

    def decide(free: int) -> list[str]:
        looked.clear()
        now = replace(servers, free_kr=np.array([[free, 8]]))
        report = run_cycle(
            build_snapshot(now, classes), PolicySettings(), 0.0, unschedulable=unschedulable, explains=False
        )
        return [bind.tenant for bind in report.bindings]

    assert decide(1) == []
    assert decide(3) == ["a"]
    del classes[0]
    assert (decide(0), looked) == ([], [])


def test_what_has_reserved_room_is_looked_at_whatever_seems_to_be_left() -> None:
    """The server has more pods than it can hold, also when one of them has gone; room is reserved all the same."""
    full = build_servers({"x": (8, 8)}, free={"x": (-2, 8)})
    waiting = build_class("a", (3, 1), replace(build_placement(full), reserved={0: (4, 0)}))
    unschedulable = UnschedulableCache()

    def decide(free: int) -> int:
        snapshot = build_snapshot(replace(full, free_kr=np.array([[free, 8]])), [waiting])
        return len(run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable).bindings)

    assert (decide(-2), decide(-1)) == (0, 1)


def test_a_class_that_needs_no_port_any_more_is_looked_at() -> None:
    servers = replace(build_servers({"x": (8, 8)}), taken_keys={0: frozenset({"p"})})
    ports = ExclusiveKeys(frozenset({"p"}), frozenset({"p"}))
    unschedulable, waiting = (
        UnschedulableCache(),
        build_class("a", (1, 1), build_placement(servers, exclusive_keys=ports)),
    )

    def decide(task_class: TaskClass) -> int:
        snapshot = build_snapshot(servers, [task_class])
        return len(run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable).bindings)

    assert decide(waiting) == 0
    assert decide(replace(waiting, placement=build_placement(servers))) == 1


def test_it_holds_for_one_order_of_tasks_only() -> None:
    full, free = (build_servers({"x": (8, 8)}, free={"x": (left, 8)}) for left in (1, 8))
    classes = [build_class("a", (2, 0), build_placement(full))]
    unschedulable, fair, fifo = UnschedulableCache(), PolicySettings(), PolicySettings("fifo")

    assert run_cycle(build_snapshot(full, classes), fair, 0.0, unschedulable=unschedulable).bindings == ()
    assert run_cycle(build_snapshot(free, classes), fifo, 0.0, limit=0, unschedulable=unschedulable).bindings == ()
    assert len(run_cycle(build_snapshot(free, classes), fifo, 0.0, unschedulable=unschedulable).bindings) == 1


def test_a_tenant_that_is_missing_is_noticed_although_its_tasks_were_known() -> None:
    servers = build_servers({"x": (8, 8)})
    snapshot, unschedulable = (
        build_snapshot(servers, [build_class("a", (9, 0), build_placement(servers))]),
        UnschedulableCache(),
    )
    assert len(run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable).waits) == 1

    with pytest.raises(InvalidProblemError, match="'a' is not one of the tenants"):
        run_cycle(replace(snapshot, tenants=()), PolicySettings(), 0.0, unschedulable=unschedulable)
