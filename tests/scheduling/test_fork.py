"""A fork decides as a draft that is made anew of the same state, and its draft goes on as if there had been none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings

from fairbind.model import (
    AffinityRule,
    DomainCounter,
    DomainRules,
    Domains,
    InvalidProblemError,
    InvariantError,
    PolicySettings,
    Rejection,
    RejectionKind,
    RunningTask,
    Snapshot,
    TaskClass,
    Tenant,
)
from fairbind.scheduling import POLICIES, CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.draft import Draft, expect_undefined_scores
from fairbind.scheduling.cycle.fork import Fork
from fairbind.scheduling.cycle.order.kept_back import KeptFrom
from fairbind.scheduling.cycle.order.tree import Tree
from scheduling.drafts import busy_snapshots
from scheduling.random_trees import add_tree
from scheduling.rules import add_rules
from scheduling.strategies import POLICY_IDS
from scheduling.walks import Step, Walk, fill, full_before, steps
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    with expect_undefined_scores():
        yield


class Trial(Walk):
    """A walk of a fork, which begins where that of its draft stands."""

    def __init__(self, walk: Walk) -> None:
        self.snapshot, self.policy = walk.snapshot, walk.policy
        self.fork = Fork(walk.draft)
        self.draft, self.story, self.marks = self.fork, walk.story.copy(), []

    def place(self, first: int, server: int) -> None:
        fitting: list[TaskClass] = [
            each
            for each in self.fork.snapshot.task_classes
            if self.fork.fits(each, server) and self.fork.get_queue(each) is not None
        ]
        if fitting:
            task_class = fitting[first % len(fitting)]
            queue = self.fork.get_queue(task_class)
            assert queue is not None
            self.fork.place(queue, server)
            self.story.placed.append((task_class, server))


def capture(draft: Draft) -> dict[str, Any]:
    """Return all that a fork shares with its draft and must leave as it was."""
    pools, topology = draft.measure.pools, draft.topology
    return {
        "room": (draft.free.left_rk.tolist(), {k: v for k, v in draft.free.taken_keys.items() if v}),
        "looked at": (draft.free.log_size, list(draft.free.gains)),
        "journal": (len(draft._journal), list(draft.bindings), set(draft._evicted)),
        "held": {name: progress.held_r for name, progress in draft.progress_of.items()},
        "pools": [list(amount_r) for amount_r in pools.amount_pr],
        "waiting": [(id(queue.task_class.tasks), queue.sort_key and queue.waiting) for queue in draft.queues],
        "remembered": [id(wait) for wait in draft.remembered.waits],
        "counters": [
            (counter.version, counter.count_d.tolist())
            for key, counter in topology._counters.items()
            if counter.version and not isinstance(key.subject, KeptFrom)
        ],
        "kept": {each: kept for each, kept in topology._moved.items() if kept != draft.snapshot.held[each]},
        "tree": None if draft.tree is None else list_inner(draft.tree),
        "openings": [each.openings for each in topology._filters.values() if each.openings],
    }


def list_inner(tree: Tree) -> dict[str, Any]:
    """What all below inner tenants hold, what is used of guarantees, and what waiting tasks ask for at least."""
    return {
        "held": [tree.get_progress(each).held_r for each in tree.hierarchy.inner.values()],
        "used": {each: used for each, used in tree._used.items() if used != tree._snapshot.held.get(each, 0)},
        "least": list(tree.least.least_r),
    }


def hold_to_it(snapshot: Snapshot, before: list[Step], trial: list[Step], full: frozenset[int] | None) -> None:
    for policy in POLICY_IDS:
        note(policy)
        walk, other = (Walk(snapshot, policy, full) for _ in range(2))
        for step in before:
            walk.do(step)
            other.do(step)
        start = capture(walk.draft)
        tried = Trial(walk)
        for step in trial:
            tried.do(step)
            tried.check()
        tried.fork.discard()

        assert capture(walk.draft) == start
        assert fill(walk.draft) == fill(other.draft)
        assert capture(walk.draft) == capture(other.draft) | {"remembered": capture(walk.draft)["remembered"]}
        walk.go_back_to_the_start()


@pytest.mark.slow
@given(snapshot=busy_snapshots(), before=steps, trial=steps, full=full_before)
@settings(max_examples=2 * settings().max_examples)
def test_it_decides_like_one_made_anew_and_leaves_no_trace(
    snapshot: Snapshot, before: list[Step], trial: list[Step], full: frozenset[int] | None
) -> None:
    hold_to_it(snapshot, before, trial, full)


@pytest.mark.slow
@given(snapshot=busy_snapshots().flatmap(add_rules), before=steps, trial=steps, full=full_before)
@settings(max_examples=2 * settings().max_examples)
def test_it_does_so_where_placements_close_and_open_domains(
    snapshot: Snapshot, before: list[Step], trial: list[Step], full: frozenset[int] | None
) -> None:
    hold_to_it(snapshot, before, trial, full)


@pytest.mark.slow
@given(snapshot=busy_snapshots().flatmap(add_tree), before=steps, trial=steps, full=full_before)
def test_it_does_so_in_trees(
    snapshot: Snapshot, before: list[Step], trial: list[Step], full: frozenset[int] | None
) -> None:
    hold_to_it(snapshot, before, trial, full)


AFFINITY = Rejection(RejectionKind.AFFINITY)
FULL = build_servers({"x": (4, 4), "y": (4, 4), "z": (4, 4)}, free={"x": (0, 0), "y": (1, 1), "z": (0, 0)})


def run(uid: str, server: str, demand_r: tuple[int, ...]) -> RunningTask:
    return RunningTask(uid, "b", server, 0, 0.0, None, demand_r, demand_r)


def have_waited(snapshot: Snapshot, **free: tuple[int, int]) -> tuple[UnschedulableCache, CycleState, Snapshot]:
    """Return what a cycle has seen that placed nothing, and the snapshot in which so much is free."""
    memory, state = UnschedulableCache(), CycleState()
    assert not run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=memory, state=state).bindings
    free_kr = np.array([free.get(name, row) for name, row in zip("xyz", FULL.free_kr.tolist(), strict=True)])
    return memory, state, replace(snapshot, servers=replace(FULL, free_kr=free_kr))


def test_a_domain_that_a_placement_opens_lets_in_what_fitted_nowhere() -> None:
    """The room is on another server of the domain than that of the eviction."""
    counter = DomainCounter("k", Domains(np.array([0, 1, 1], dtype=np.int32), 2), np.array([0, 0], dtype=np.int64))
    rules = DomainRules((AffinityRule((counter,), may_begin=False, rejection=AFFINITY),))
    follower = replace(build_class("a", (1, 1), build_placement(FULL)), rules=rules)
    bringer = replace(build_class("c", (3, 3), build_placement(FULL)), counts_as=frozenset({"k"}))
    running = run("r", "z", (3, 3))
    world = replace(build_snapshot(FULL, [follower, bringer], tenants=[Tenant("b")]), running={"z": (running,)})
    memory, state, world = have_waited(world)
    draft = Draft(world, POLICIES["best-fit-drfh"], unschedulable=memory, state=state, defers=True)
    assert draft.find_choice() is None

    with Fork(draft) as fork:
        fork.evict(running)
        assert fill(fork) == [("c-3-3-0000", "z"), ("a-1-1-0000", "y")]

    assert draft.find_choice() is None
    assert draft.bindings == []


def test_a_server_that_is_closed_to_a_placement_is_so_to_a_fork() -> None:
    servers = build_servers({"x": (4, 4)})
    everywhere = build_placement(servers)
    draft = Draft(build_snapshot(servers, [build_class("a", (1, 1), everywhere)]), POLICIES["best-fit-drfh"])
    draft.restrict(everywhere, [0])

    with Fork(draft) as fork:
        assert fork.find_choice() is None
        fork.reopen([0])
        assert fork.find_choice() is not None

    assert draft.find_choice() is None


@pytest.mark.parametrize("is_over", [False, True])
def test_what_a_draft_defers_may_be_placed_in_a_fork(*, is_over: bool) -> None:
    """Room has come back on few servers, and nobody has had a turn yet; or the draft ended before."""
    memory, state, world = have_waited(
        build_snapshot(FULL, [build_class("a", (2, 2), build_placement(FULL))]), y=(3, 3)
    )
    draft = Draft(world, POLICIES["best-fit-drfh"], unschedulable=memory, state=state, defers=True)
    if is_over:
        draft.end()

    with Fork(draft) as fork:
        assert fill(fork) == [("a-2-2-0000", "y")]

    assert fill(draft) == ([] if is_over else [("a-2-2-0000", "y")])


def test_what_is_blocked_or_stale_is_not_placed_in_a_fork() -> None:
    servers = build_servers({"x": (4, 4)})
    blocked = replace(build_class("a", (1, 1), build_placement(servers)), blocked=AFFINITY)
    stale = build_class("b", (1, 1), build_placement(servers))
    snapshot = replace(build_snapshot(servers, [blocked, stale]), stale=frozenset({stale}))

    with Fork(Draft(snapshot, POLICIES["best-fit-drfh"])) as fork:
        assert fill(fork) == []
        assert fork.get_queue(blocked) is fork.get_queue(stale) is None


def test_a_fork_has_no_forks_of_its_own() -> None:
    with (
        Fork(Draft(build_snapshot(FULL, []), POLICIES["fifo"])) as fork,
        pytest.raises(InvariantError, match="no forks"),
    ):
        Fork(fork)


def test_a_fork_is_thrown_away_when_what_it_tries_fails() -> None:
    running = run("r", "x", (4, 4))
    world = replace(build_snapshot(FULL, [], tenants=[Tenant("b", allocated_r=(4, 4))]), running={"x": (running,)})
    draft = Draft(world, POLICIES["best-fit-drfh"])

    def try_twice() -> None:
        with Fork(draft) as fork:
            fork.evict(running)
            fork.evict(running)

    with pytest.raises(InvalidProblemError, match="does not run"):
        try_twice()

    assert draft.progress_of["b"].held_r == [4, 4]
    assert draft.free.get_row(0) == [0, 0]


def test_a_trial_looks_at_the_classes_of_one_tenant_where_thousands_wait() -> None:
    """Forty tenants with 50 classes each, all of which would fit in the room of the task that is evicted."""
    large = build_servers(dict.fromkeys("xyz", (9000, 9000)), free=dict.fromkeys("xyz", (0, 0)))
    everywhere = build_placement(large)
    classes = [build_class(f"t{n % 40:02}", (1_000 + n, 1), everywhere) for n in range(2_000)]
    running = run("r", "x", (4_000, 4_000))
    world = replace(build_snapshot(large, classes, tenants=[Tenant("b")]), running={"x": (running,)})
    memory, state = UnschedulableCache(), CycleState()
    for _ in range(2):
        run_cycle(world, PolicySettings(), 0.0, unschedulable=memory, state=state, explains=False)
    draft = Draft(world, POLICIES["best-fit-drfh"], unschedulable=memory, state=state, defers=True)
    assert draft.find_choice() is None

    with Fork(draft) as fork:
        assert fork.looked_at == 0
        fork.evict(running)
        choice = fork.find_choice()
        assert choice is not None
        fork.take(choice)
        assert fork.looked_at == 50

    assert draft.queues == []
    assert draft.find_choice() is None
