"""A state that is kept from cycle to cycle changes no report, whatever happens between two cycles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from derived import find_wrong
from fairbind.model import (
    MAX_AMOUNT,
    NO_EXCLUSIVE_KEYS,
    ClassChanges,
    DomainRules,
    ExclusiveKeys,
    InvalidProblemError,
    PolicySettings,
    Snapshot,
    Targets,
    Tenant,
)
from fairbind.scheduling import CycleState, UnschedulableCache, compute_server_classes, run_cycle
from fairbind.scheduling.cycle import state as state_module
from fairbind.scheduling.cycle.draft import Draft
from fairbind.scheduling.policies import levels
from scheduling.strategies import POLICY_IDS
from scheduling.worlds import (
    apply_report,
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    build_tasks,
    describe,
    weigh,
)
from seeds import draw_seeds

NAMES = [f"s{n:02}" for n in range(24)]
PORT = frozenset({"tcp/80"})
Draw = np.random.Generator


def build_world(draw: Draw) -> Snapshot:
    """Twenty-four servers of three kinds, five tenants, and tasks that come to two cycles' worth of room."""
    kinds = [(8, 8), (12, 6), (4, 16)]
    capacities = {name: kinds[n % 3] for n, name in enumerate(NAMES)}
    servers = build_servers(capacities, free={name: draw.integers(-2, 7, 2).tolist() for name in NAMES})
    snapshot = build_snapshot(servers, [], tenants=[weigh(name, 1 + n) for n, name in enumerate("abcde")])
    return add_tasks(draw, snapshot)


def add_tasks(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """A pod arrives."""
    wishes = {name: int(draw.integers(2)) for name in NAMES} if draw.random() < 0.3 else None
    only = None if draw.random() < 0.5 else draw.choice(NAMES, 8, replace=False).tolist()
    placements = [c.placement for c in snapshot.task_classes] or [build_placement(snapshot.servers)]
    keys = ExclusiveKeys(PORT, PORT) if draw.random() < 0.3 else NO_EXCLUSIVE_KEYS
    placement = build_placement(snapshot.servers, only=only, wishes=wishes, exclusive_keys=keys)
    if draw.random() < 0.2:
        placement = replace(
            placement, reserved={int(draw.integers(len(NAMES))): tuple(draw.integers(1, 4, 2).tolist())}
        )
    if draw.random() < 0.6:
        placement = placements[draw.integers(len(placements))]
    tasks = build_tasks(f"t{draw.integers(10**9)}", int(draw.integers(1, 5)))
    tenant = snapshot.tenants[draw.integers(len(snapshot.tenants))].name
    return replace(
        snapshot,
        task_classes=(*snapshot.task_classes, build_class(tenant, draw.integers(0, 4, 2).tolist(), placement, tasks)),
    )


def free_room(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """Pods end, on one server or on most."""
    free_kr = snapshot.servers.free_kr.copy()
    chosen = draw.choice(len(NAMES), int(draw.choice([1, 1, 20])), replace=False)
    free_kr[chosen] = np.minimum(free_kr[chosen] + draw.integers(0, 4, 2), snapshot.servers.capacity_kr[chosen])
    return replace(snapshot, servers=replace(snapshot.servers, free_kr=free_kr))


def free_keys(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """The port of some nodes is free again."""
    servers = snapshot.servers
    taken_keys = {index: keys for index, keys in servers.taken_keys.items() if draw.random() < 0.7}
    return replace(snapshot, servers=replace(servers, taken_keys=taken_keys))


def change_tenant(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """A tenant gets another weight, in all or in one resource, and holds something else."""
    n = int(draw.integers(len(snapshot.tenants)))
    tenant = snapshot.tenants[n]
    changed = replace(tenant, allocated_r=tuple(draw.integers(0, 9, 2).tolist()))
    if draw.random() < 0.5:
        changed = replace(changed, weight=tenant.weight + 1)
    else:
        changed = replace(changed, resource_weights={"cpu": Fraction(int(draw.integers(1, 9)))})
    return replace(snapshot, tenants=(*snapshot.tenants[:n], changed, *snapshot.tenants[n + 1 :]))


def change_tenants(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """A tenant comes, or one goes that wants nothing."""
    wanting = {task_class.tenant for task_class in snapshot.task_classes}
    tenants = [t for t in snapshot.tenants if t.name in wanting or draw.random() < 0.5]
    return replace(snapshot, tenants=(*tenants, Tenant(f"z{draw.integers(10**9)}", Fraction(3))))


def shuffle_tenants(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """Nobody has promised that tenants come in one order."""
    return replace(snapshot, tenants=tuple(snapshot.tenants[n] for n in draw.permutation(len(snapshot.tenants))))


def change_capacity(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """A server is another one now."""
    servers = snapshot.servers
    capacity_kr = servers.capacity_kr.copy()
    capacity_kr[draw.integers(len(NAMES))] = draw.integers(1, 20, 2)
    class_k, class_names = compute_server_classes(capacity_kr, [0] * len(NAMES), servers.names, 0.0)
    table = replace(servers, capacity_kr=capacity_kr, class_k=class_k, class_names=class_names)
    return with_totals(replace(snapshot, servers=table))


def change_usable(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """A node is cordoned, or no more."""
    usable_k = snapshot.servers.usable_k.copy()
    usable_k[draw.integers(len(NAMES))] ^= True
    return with_totals(replace(snapshot, servers=replace(snapshot.servers, usable_k=usable_k)))


def with_totals(snapshot: Snapshot) -> Snapshot:
    servers = snapshot.servers
    return replace(snapshot, total_r=tuple(servers.capacity_kr[servers.usable_k].sum(axis=0).tolist()))


def change_classes(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """Other tasks wait, so other servers are alike."""
    signatures = draw.integers(0, 2, len(NAMES)).tolist()
    servers = snapshot.servers
    class_k, class_names = compute_server_classes(servers.capacity_kr, signatures, servers.names, 0.0)
    return replace(snapshot, servers=replace(servers, class_k=class_k, class_names=class_names))


def change_counts(_: Draw, snapshot: Snapshot) -> Snapshot:
    """The administrator has other fairness resources."""
    return replace(snapshot, counts_r=(True, not snapshot.counts_r[1]))


def change_fits(_: Draw, snapshot: Snapshot) -> Snapshot:
    """Other resources say how well a task suits a server."""
    return replace(snapshot, fits_r=(True, False) if snapshot.fits_r is None else None)


def change_targets(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """The exact mechanism has an answer."""
    shares = {t.name: tuple(draw.integers(0, 3, 2) / 8) for t in snapshot.tenants}
    targets = Targets(
        "drfh", ("cpu", "memory"), shares, ("x",), dict.fromkeys(NAMES[:9], 0), dict.fromkeys(shares, (0.5,))
    )
    return replace(snapshot, targets=targets)


CHANGES: list[Callable[[Draw, Snapshot], Snapshot]] = [
    *[add_tasks, free_room] * 4,
    free_keys,
    change_tenant,
    change_tenants,
    shuffle_tenants,
    change_capacity,
    change_usable,
    change_classes,
    change_counts,
    change_fits,
    change_targets,
]


def share_objects(before: Snapshot, after: Snapshot) -> Snapshot:
    """The cache's way: what has not changed is the same object."""
    tenants = {tenant.name: tenant for tenant in before.tenants}
    classes = {each.tasks: each for each in before.task_classes}
    return replace(
        after,
        tenants=tuple(tenants[t.name] if tenants.get(t.name) == t else t for t in after.tenants),
        task_classes=tuple(classes.get(each.tasks, each) for each in after.task_classes),
    )


@pytest.mark.parametrize("seed", draw_seeds(60))
def test_it_changes_no_report(seed: int) -> None:
    draw = np.random.default_rng(seed)
    snapshot, policy, state = build_world(draw), POLICY_IDS[seed % len(POLICY_IDS)], CycleState()
    memories = (UnschedulableCache(), UnschedulableCache()) if seed % 2 else (None, None)
    for _ in range(16):
        if draw.random() < 0.2:
            policy = POLICY_IDS[draw.integers(len(POLICY_IDS))]
        limit = 2 if draw.random() < 0.3 else None
        settings = PolicySettings(policy, seed=seed)
        given: dict[str, Any] = {"limit": limit, "explains": draw.random() < 0.5}
        with_it = run_cycle(snapshot, settings, 0.0, unschedulable=memories[0], state=state, **given)
        without = run_cycle(snapshot, settings, 0.0, unschedulable=memories[1], **given)
        assert describe(with_it) == describe(without)
        assert draw.random() < 0.5 or find_wrong(state) == []
        before = snapshot
        if draw.random() < 0.8:  # else nothing of it could be carried out
            snapshot = share_objects(snapshot, apply_report(snapshot, with_it))
        for _ in range(draw.integers(3)):
            snapshot = CHANGES[draw.integers(len(CHANGES))](draw, snapshot)
        snapshot = replace(snapshot, changes=say_changes(draw, before, snapshot))
        if draw.random() < 0.1:
            fail_amid(draw, snapshot, settings, memories, state)


def say_changes(draw: Draw, before: Snapshot, after: Snapshot) -> ClassChanges | None:
    """What changed, nothing, or what changed between snapshots of which one is another."""
    known = replace(after, changes=None).compute_changes(before.task_classes)
    if draw.random() < 0.2:
        return replace(known, before=(*known.before,) if draw.random() < 0.5 else (), added=(), removed=())
    if draw.random() < 0.2:
        return replace(known, after=(*known.after, *known.removed), added=(), removed=known.added)
    return known if draw.random() < 0.8 else None


def fail_amid(
    draw: Draw,
    snapshot: Snapshot,
    settings: PolicySettings,
    memories: Sequence[UnschedulableCache | None],
    state: CycleState,
) -> None:
    """A cycle does not come to its end."""
    where = ["find_choice", "take", "_build_queues", "_build_filling"][draw.integers(4)]
    as_it_is = getattr(Draft, where)

    def fail_after(*given: object) -> None:
        as_it_is(*given)
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft, where, fail_after)
        for memory, its_state in zip(memories, (state, None), strict=True):
            with pytest.raises(ZeroDivisionError) if where != "take" else suppress(ZeroDivisionError):
                run_cycle(snapshot, settings, 0.0, unschedulable=memory, state=its_state)


@pytest.mark.parametrize("names", ["", "b", "bc"])
def test_a_class_that_was_checked_before_is_refused_when_its_tenant_is_gone(names: str) -> None:
    servers, state = build_servers({"x": (8, 8)}), CycleState()
    snapshot = build_snapshot(servers, [build_class("a", (9, 0), build_placement(servers))], tenants=[weigh("a")])
    run_cycle(snapshot, PolicySettings(), 0.0, state=state)

    with pytest.raises(InvalidProblemError, match="task_classes: 'a' is not one of the tenants"):
        run_cycle(replace(snapshot, tenants=tuple(map(weigh, names))), PolicySettings(), 0.0, state=state)


def test_a_class_that_was_checked_before_is_checked_again_where_there_are_other_resources() -> None:
    servers, more, state = build_servers({"x": (8, 8)}), build_servers({"x": (8, 8, 8)}), CycleState()
    waiting = build_class("a", (9, 0), build_placement(servers))
    run_cycle(build_snapshot(servers, [waiting]), PolicySettings(), 0.0, state=state)

    with pytest.raises(InvalidProblemError, match="it needs 3 entries"):
        run_cycle(
            build_snapshot(more, [waiting], resources=("cpu", "gpu", "memory")), PolicySettings(), 0.0, state=state
        )


def test_classes_with_rules_that_went_are_let_go() -> None:
    servers, state = build_servers({"x": (8, 8)}), CycleState()
    ruled = replace(build_class("a", (9, 0), build_placement(servers)), rules=DomainRules(()))
    run_cycle(build_snapshot(servers, [ruled]), PolicySettings(), 0.0, state=state)
    assert list(state.get_ruled()) == [ruled]
    run_cycle(build_snapshot(servers, []), PolicySettings(), 0.0, state=state)
    assert list(state.get_ruled()) == []


def test_what_has_not_changed_is_not_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def watch(tenant: Tenant, snapshot: Snapshot) -> levels.Progress:
        computed.append(tenant.name)
        return levels.compute_progress(tenant, snapshot)

    monkeypatch.setattr(state_module, "compute_progress", watch)
    servers = build_servers({"x": (9, 9), "y": (9, 9)})
    tenants = [weigh(name) for name in "abc"]
    snapshot = build_snapshot(servers, [build_class("b", (1, 1), build_placement(servers))], tenants=tenants)
    state, settings = CycleState(), PolicySettings("ps-dsf")

    run_cycle(snapshot, settings, 0.0, state=state)
    assert computed == ["a", "b", "c"]
    computed.clear()
    run_cycle(snapshot, settings, 0.0, state=state)
    assert computed == ["b"], "it was counted in"


@pytest.mark.parametrize("field", ["free_kr", "capacity_kr"])
def test_amounts_that_are_too_large_are_refused_each_time(field: str) -> None:
    state, servers = CycleState(), build_servers({"x": (4, 4), "y": (4, 4)})
    snapshot = build_snapshot(servers, [build_class("a", (1, 1), build_placement(servers))])
    run_cycle(snapshot, PolicySettings(), 0.0, state=state)
    too_large = getattr(servers, field).copy()
    too_large[1, 0] = MAX_AMOUNT + 1
    wrong = replace(snapshot, servers=replace(servers, **{field: too_large}))
    for _ in range(2):  # what was refused is no better the second time
        with pytest.raises(InvalidProblemError, match="must not exceed"):
            run_cycle(wrong, PolicySettings(), 0.0, state=state)


def test_a_tenant_is_checked_when_it_is_new() -> None:
    servers = build_servers({"x": (9, 9)})
    state, good = CycleState(), build_snapshot(servers, [], tenants=[weigh("a"), weigh("b")])
    run_cycle(good, PolicySettings(), 0.0, state=state)
    with pytest.raises(InvalidProblemError, match="tenant 'b': weights must be above 0"):
        run_cycle(replace(good, tenants=(good.tenants[0], weigh("b", 0))), PolicySettings(), 0.0, state=state)
    with pytest.raises(InvalidProblemError, match="'a' is there twice"):
        run_cycle(replace(good, tenants=(*good.tenants, good.tenants[0])), PolicySettings(), 0.0, state=state)
