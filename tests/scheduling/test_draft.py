"""A draft that took things back decides as one that is made anew of the same state, whatever was done before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from fairbind.model import (
    Domains,
    ExclusiveKeys,
    Guarantee,
    Hierarchy,
    Holding,
    InnerTenant,
    InvalidProblemError,
    InvariantError,
    Place,
    PolicySettings,
    RunningTask,
    Snapshot,
    Tenant,
)
from fairbind.scheduling import POLICIES, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.draft import Draft, expect_undefined_scores
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from scheduling.drafts import busy_snapshots
from scheduling.random_trees import add_tree
from scheduling.rules import add_rules
from scheduling.strategies import POLICY_IDS
from scheduling.walks import Step, Walk, fill, full_before, look, steps
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    with expect_undefined_scores():
        yield


def play(snapshot: Snapshot, story: list[Step], *, is_asked: bool, full_before: frozenset[int] | None) -> None:
    """Do the steps under each policy and compare at the end, or after each step, with a draft that is made then."""
    for policy in POLICY_IDS:
        note(policy)
        walk = Walk(snapshot, policy, full_before)
        for step in story:
            walk.do(step)
            if is_asked:
                walk.check()
        walk.check()
        walk.go_back_to_the_start()


@pytest.mark.slow
@given(snapshot=busy_snapshots().flatmap(add_rules), story=steps, is_asked=st.booleans(), full_before=full_before)
@settings(max_examples=2 * settings().max_examples)
def test_with_rules_about_domains_it_decides_like_one_made_anew(
    snapshot: Snapshot, story: list[Step], *, is_asked: bool, full_before: frozenset[int] | None
) -> None:
    """Evicted tasks stay in counters, here and there: a snapshot does not say in which ones running tasks are."""
    play(snapshot, story, is_asked=is_asked, full_before=full_before)


@pytest.mark.slow
@given(snapshot=busy_snapshots(), story=steps, is_asked=st.booleans(), full_before=full_before)
@settings(max_examples=2 * settings().max_examples)
def test_it_decides_like_one_made_anew(
    snapshot: Snapshot, story: list[Step], *, is_asked: bool, full_before: frozenset[int] | None
) -> None:
    """All policies in one world. is_asked: after each step, so that there is much to be closed; or only at the end."""
    play(snapshot, story, is_asked=is_asked, full_before=full_before)


@pytest.mark.slow
@given(
    snapshot=busy_snapshots().flatmap(add_rules).flatmap(add_tree),
    story=steps,
    is_asked=st.booleans(),
    full_before=full_before,
)
def test_in_a_tree_it_decides_like_one_made_anew(
    snapshot: Snapshot, story: list[Step], *, is_asked: bool, full_before: frozenset[int] | None
) -> None:
    play(snapshot, story, is_asked=is_asked, full_before=full_before)


@given(snapshot=busy_snapshots(), policy=st.sampled_from(POLICY_IDS))
def test_it_goes_back_to_the_start_and_does_the_same_again(snapshot: Snapshot, policy: str) -> None:
    draft = Draft(snapshot, POLICIES[policy])
    start = draft.checkpoint()
    first = fill(draft)
    draft.rollback(start)
    assert draft.bindings == []

    assert fill(draft) == first


@given(snapshot=busy_snapshots(), policy=st.sampled_from(POLICY_IDS), closed=st.lists(st.integers(0, 5), max_size=3))
def test_a_restricted_server_is_like_one_that_is_not_eligible(
    snapshot: Snapshot, policy: str, closed: list[int]
) -> None:
    if POLICIES[policy].has_random_choices:
        policy = "best-fit-drfh"  # draws are among all servers that the placement allows, restricted or not
    placement = snapshot.task_classes[0].placement
    servers = [k for k in closed if k < len(snapshot.servers.names)]
    eligible_k = placement.eligible_k.copy()
    eligible_k[servers] = False
    fewer = replace(placement, eligible_k=eligible_k)
    classes = [replace(c, placement=fewer) if c.placement is placement else c for c in snapshot.task_classes]
    draft = Draft(snapshot, POLICIES[policy])
    look(draft)

    draft.restrict(placement, servers)

    assert fill(draft) == fill(Draft(replace(snapshot, task_classes=tuple(classes)), POLICIES[policy]))


@pytest.mark.parametrize("policy", POLICY_IDS)
def test_two_of_four_placements_rolled_back_are_decided_again_the_same_way(policy: str) -> None:
    servers = build_servers({"x": (4, 4), "y": (4, 4)})
    draft = Draft(build_snapshot(servers, [build_class("a", (2, 2), build_placement(servers), 6)]), POLICIES[policy])
    decided, marks = [], []
    while (choice := draft.find_choice()) is not None:
        marks.append(draft.checkpoint())
        bind = draft.take(choice)
        decided.append((bind.task.uid, bind.server))
    assert len(decided) == 4

    draft.rollback(marks[2])

    assert [bind.task.uid for bind in draft.bindings] == [uid for uid, _ in decided[:2]]
    assert fill(draft) == decided[2:]
    assert draft.find_choice() is None


@pytest.mark.parametrize("policy", POLICY_IDS)
def test_from_wherever_it_goes_back_all_classes_of_servers_are_open_again(policy: str) -> None:
    servers = build_servers({"x": (4, 4), "y": (9, 12), "z": (6, 3)})
    tenants = [Tenant("a", allocated_r=(2, 1)), Tenant("b", allocated_r=(1, 3))]
    classes = [
        build_class("a", (1, 1), build_placement(servers), 9),
        build_class("b", (1, 2), build_placement(servers), 9),
    ]
    snapshot = build_snapshot(servers, classes, tenants=tenants)
    whole = fill(Draft(snapshot, POLICIES[policy]))
    for count in range(len(whole)):
        draft = Draft(snapshot, POLICIES[policy])
        start = draft.checkpoint()
        for _ in range(count):
            choice = draft.find_choice()
            assert choice is not None
            draft.take(choice)
        draft.find_choice()

        draft.rollback(start)

        assert fill(draft) == whole


@pytest.mark.parametrize("policy", POLICY_IDS)
def test_a_server_that_becomes_eligible_again_within_a_cycle_is_used(policy: str) -> None:
    """As with a spread over zones: a task in the one zone lets the next one go to the other again."""
    servers = build_servers({"x": (4, 4), "y": (4, 4)})
    everywhere = build_placement(servers)
    draft = Draft(build_snapshot(servers, [build_class("a", (1, 1), everywhere, 8)]), POLICIES[policy])
    draft.restrict(everywhere, [0, 1])
    assert draft.find_choice() is None

    draft.reopen([1])
    used = []
    while (choice := draft.find_choice()) is not None:
        used.append(draft.take(choice).server)
        draft.restrict(everywhere, [choice.server])
        draft.reopen([1 - choice.server])

    assert used == ["y", "x"] * 4


def test_what_was_closed_and_opened_is_taken_back_as_well() -> None:
    servers = build_servers({"x": (4, 4)})
    everywhere = build_placement(servers)
    draft = Draft(build_snapshot(servers, [build_class("a", (1, 1), everywhere, 8)]), POLICIES["best-fit-drfh"])
    free = draft.checkpoint()
    assert draft.find_choice() is not None
    draft.restrict(everywhere, [0])
    assert draft.find_choice() is None
    closed = draft.checkpoint()

    draft.reopen([0])
    assert draft.find_choice() is not None
    draft.rollback(closed)
    assert draft.find_choice() is None
    draft.rollback(free)
    assert draft.find_choice() is not None


def run(uid: str, server: str, demand_r: tuple[int, ...], *ports: str, tenant: str = "b") -> RunningTask:
    return RunningTask(uid, tenant, server, 0, 0.0, None, demand_r, demand_r, frozenset(ports))


def build_full_world() -> tuple[Snapshot, RunningTask]:
    """One full server; b runs there, and a task of a waits that would fit after it. A larger one would not."""
    servers = build_servers({"x": (4, 4)}, free={"x": (0, 0)})
    running = run("r", "x", (2, 2))
    everywhere = build_placement(servers)
    classes = [build_class("a", (2, 2), everywhere, 2), build_class("a", (3, 3), everywhere)]
    holder = Tenant("b", allocated_r=(4, 4))
    return replace(build_snapshot(servers, classes, tenants=[holder]), running={"x": (running,)}), running


@pytest.mark.parametrize("policy", POLICY_IDS)
def test_the_room_of_an_evicted_task_is_used_and_given_back(policy: str) -> None:
    snapshot, running = build_full_world()
    draft = Draft(snapshot, POLICIES[policy])
    assert draft.find_choice() is None
    mark = draft.checkpoint()

    draft.evict(running)

    assert draft.progress_of["b"].held_r == [2, 2]
    assert fill(draft) == [("a-2-2-0000", "x")]
    draft.rollback(mark)
    assert draft.progress_of["b"].held_r == [4, 4]
    assert draft.find_choice() is None


@pytest.mark.parametrize("policy", [policy for policy in POLICY_IDS if policy != "fifo"])
def test_an_eviction_in_a_tree_counts_for_all_above_and_is_taken_back(policy: str) -> None:
    flat, running = build_full_world()
    promise = Guarantee("top", "cpu", 4, Domains(np.array([0], dtype=np.int32), 1))
    top = InnerTenant(Tenant("top", allocated_r=(4, 4)), Place(guarantees=(promise,)))
    tree = Hierarchy({"a": Place("top"), "b": Place("top")}, {"top": top})
    snapshot = replace(flat, hierarchy=tree, held={"top": 4})
    draft = Draft(snapshot, POLICIES[policy])
    assert draft.find_choice() is None
    mark = draft.checkpoint()

    for _ in range(2):
        draft.evict(running)
        assert fill(draft) == [("a-2-2-0000", "x")]
        draft.rollback(mark)
        assert draft.find_choice() is None


def test_an_eviction_also_helps_what_was_remembered_to_fit_nowhere() -> None:
    snapshot, running = build_full_world()
    unschedulable = UnschedulableCache()
    assert len(run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable).waits) == 2
    draft = Draft(snapshot, POLICIES["best-fit-drfh"], unschedulable=unschedulable)
    assert draft.queues == []

    draft.evict(running)

    assert fill(draft) == [("a-2-2-0000", "x")]
    assert len(unschedulable.recall(snapshot, FreeCapacity(snapshot.servers), draft.rule).others) == 2


@pytest.mark.parametrize("remembers", [True, False])
def test_what_is_withheld_is_not_placed_whatever_is_evicted_and_looked_at_later(*, remembers: bool) -> None:
    snapshot, running = build_full_world()
    fits, _ = snapshot.task_classes
    unschedulable = UnschedulableCache() if remembers else None
    run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=unschedulable)
    draft = Draft(replace(snapshot, stale=frozenset({fits})), POLICIES["best-fit-drfh"], unschedulable=unschedulable)
    draft.evict(running)
    assert fill(draft) == []
    assert not draft.fits(fits, 0)
    assert fits in draft.unseen


def test_an_eviction_also_helps_what_was_asked_about_another_server_only() -> None:
    """A server has gained room, for too small a task; what may fit there only fits where a task is evicted, too."""
    full = build_servers({"x": (4, 4), "y": (4, 4)}, free={"x": (0, 0), "y": (1, 4)})
    everywhere, running, unschedulable = build_placement(full), run("r", "x", (2, 2)), UnschedulableCache()
    classes = [build_class("a", (3, 1), everywhere), build_class("c", (2, 2), everywhere)]

    def build(y: int) -> Snapshot:
        servers = replace(full, free_kr=np.array([[0, 0], [y, 4]]))
        return replace(build_snapshot(servers, classes, tenants=[Tenant("b")]), running={"x": (running,)})

    assert len(run_cycle(build(1), PolicySettings(), 0.0, unschedulable=unschedulable).waits) == 2
    draft = Draft(build(3), POLICIES["best-fit-drfh"], unschedulable=unschedulable)
    assert fill(draft) == [("a-3-1-0000", "y")]

    draft.evict(running)

    assert fill(draft) == [("c-2-2-0000", "x")]


def test_a_port_that_two_tasks_share_is_free_when_both_are_gone() -> None:
    servers = build_servers({"x": (9, 9)}, taken_keys={"x": ["p/any"]})
    port = frozenset({"p/any"})
    wildcard = build_class("a", (1, 1), build_placement(servers, exclusive_keys=ExclusiveKeys(port, port)))
    first, second = run("r", "x", (1, 1), "p/any"), run("s", "x", (1, 1), "p/any")
    snapshot = replace(build_snapshot(servers, [wildcard], tenants=[Tenant("b")]), running={"x": (first, second)})
    draft = Draft(snapshot, POLICIES["best-fit-drfh"])

    draft.evict(first)
    assert not draft.fits(wildcard, 0)
    draft.evict(second)
    assert draft.fits(wildcard, 0)


@pytest.mark.parametrize("keeper", ["nobody", "another task", "a placement", "a system pod"])
def test_a_port_is_free_when_nobody_else_holds_it(keeper: str) -> None:
    """All that use a port take "p/any", so two of them may have it at once, on different addresses."""
    fixed = {0: frozenset({"p/any"})} if keeper == "a system pod" else {}
    servers = replace(build_servers({"x": (9, 9)}, taken_keys={"x": ["p/1", "p/any"]}), fixed_keys=fixed)
    running = run("r", "x", (1, 1), "p/1", "p/any")
    others = [run("s", "x", (1, 1), "p/any")] if keeper == "another task" else []
    wildcard = build_placement(servers, exclusive_keys=ExclusiveKeys(frozenset({"p/*", "p/any"}), frozenset({"p/any"})))
    second = build_placement(
        servers, exclusive_keys=ExclusiveKeys(frozenset({"p/2", "p/any"}), frozenset({"p/*", "p/2"}))
    )
    snapshot = build_snapshot(servers, [build_class("a", (1, 1), wildcard), build_class("b", (1, 1), second)])
    draft = Draft(replace(snapshot, running={"x": (running, *others)}), POLICIES["best-fit-drfh"])
    if keeper == "a placement":
        draft.place(draft.queues[1], 0)
    mark = draft.checkpoint()

    draft.evict(running)

    assert draft.fits(snapshot.task_classes[0], 0) == (keeper == "nobody")
    draft.rollback(mark)
    assert {"p/1", "p/any"} <= draft.free.taken_keys[0]
    assert not draft.fits(snapshot.task_classes[0], 0)


@pytest.mark.parametrize("is_told", [False, True])
def test_task_shares_lose_a_task_that_was_told_of_or_a_part_of_the_rest(*, is_told: bool) -> None:
    """The rest counts as one task: (4, 3) without (3, 0) is one of (1, 3), which the cluster runs 8 / 3 times."""
    servers = build_servers({"x": (8, 8)}, free={"x": (4, 5)})
    running = run("r", "x", (3, 0))
    holdings = (Holding((3, 0), (3, 0), 1),) if is_told else ()
    snapshot = build_snapshot(servers, [], tenants=[Tenant("b", allocated_r=(4, 3), holdings=holdings)])
    draft = Draft(replace(snapshot, running={"x": (running,)}), POLICIES["tsf"])
    before = 3 / 8 + 3 / 8 if is_told else 1 / 2
    for _ in range(2):
        assert draft.measure.compute_share(draft.progress_of["b"], 0) == pytest.approx(before)
        mark = draft.checkpoint()
        draft.evict(running)
        assert draft.measure.compute_share(draft.progress_of["b"], 0) == pytest.approx(3 / 8)
        draft.rollback(mark)


def test_what_cannot_be_is_refused() -> None:
    snapshot, running = build_full_world()
    draft = Draft(snapshot, POLICIES["best-fit-drfh"])
    with pytest.raises(InvalidProblemError, match="no task of this class of 'a' fits on 'x'"):
        draft.place(draft.queues[0], 0)
    with pytest.raises(InvalidProblemError, match="task 'other' does not run on 'x'"):
        draft.evict(run("other", "x", (1, 1)))
    draft.evict(running)
    with pytest.raises(InvalidProblemError, match="task 'r' does not run on 'x'"):
        draft.evict(running)
    stranger = run("s", "x", (1, 1), tenant="nobody")
    with pytest.raises(InvalidProblemError, match="'nobody' is not one of the tenants"):
        Draft(replace(snapshot, running={"x": (stranger,)}), POLICIES["fifo"]).evict(stranger)


def test_a_mark_ends_when_the_draft_goes_back_beyond_it() -> None:
    snapshot, running = build_full_world()
    draft, other = (Draft(snapshot, POLICIES["best-fit-drfh"]) for _ in range(2))
    early = draft.checkpoint()
    draft.evict(running)
    late = draft.checkpoint()
    draft.rollback(early)

    for mark in (late, other.checkpoint()):
        with pytest.raises(InvariantError, match="not this draft's, or ended"):
            draft.rollback(mark)
    draft.rollback(early)


def test_a_draft_that_holds_classes_only_decides() -> None:
    servers = build_servers({"x": (8, 8)})
    draft = Draft(
        build_snapshot(servers, [build_class("a", (1, 1), build_placement(servers))]), POLICIES["drfh"], defers=True
    )
    running = RunningTask("u", "a", "x", 0, 0.0, None, (1, 1), (1, 1))
    placement = draft.queues[0].task_class.placement

    for change in (
        lambda: draft.place(draft.queues[0], 0),
        lambda: draft.evict(running),
        lambda: draft.restrict(placement, [0]),
        lambda: draft.reopen([0]),
        draft.checkpoint,
    ):
        with pytest.raises(InvariantError, match="does nothing but decide"):
            change()
    assert fill(draft) == [("a-1-1-0000", "x")]
