"""Scores that stay from one cycle to the next equal freshly computed ones, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fairbind.model import PolicySettings, Snapshot
from fairbind.model.servers import FloatArray, IndexArray, IntArray
from fairbind.scheduling import CycleState, run_cycle
from fairbind.scheduling.cycle import scored_demands
from fairbind.scheduling.cycle.draft import Draft, expect_undefined_scores
from fairbind.scheduling.cycle.layouts import Layout
from fairbind.scheduling.cycle.room import compute_left
from fairbind.scheduling.cycle.scored_demands import FEW, MAX_STALE, KeptScores, ScoredDemand
from fairbind.scheduling.policies.fit import BestFit
from fairbind.scheduling.policies.level_pools import compute_cluster_pool
from fairbind.scheduling.policies.registry import get_policy
from scheduling.worlds import (
    apply_report,
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    build_tasks,
    places_of,
)

COUNT = 400
NAMES = [f"s{n:03}" for n in range(COUNT)]
DEMAND = (3, 2)
NOTHING = np.zeros(0, dtype=np.intp)


@pytest.fixture(autouse=True)
def as_in_a_cycle() -> Iterator[None]:
    with expect_undefined_scores():
        yield


def build_cluster(only: Sequence[str] | None = None) -> tuple[Snapshot, Layout]:
    """Four hundred servers, of which a placement allows all or only some."""
    draw = np.random.default_rng(1)
    servers = build_servers(
        dict.fromkeys(NAMES, (9, 9)), free={name: draw.integers(-1, 9, 2).tolist() for name in NAMES}
    )
    placement = build_placement(servers, only=only)
    snapshot = build_snapshot(servers, [build_class("a", DEMAND, placement)])
    return snapshot, Layout(placement, servers, compute_cluster_pool(snapshot))


def make_anew(known: KeptScores, layout: Layout, free_kr: IntArray) -> tuple[ScoredDemand, FloatArray]:
    scored = ScoredDemand(DEMAND, known.fit.build_score(DEMAND))
    scores = scored.score_many(layout.servers, compute_left(free_kr[layout.servers]))
    return scored, np.append(scores, np.inf)


def begin(snapshot: Snapshot, layout: Layout, most: int = 2) -> KeptScores:
    """Return scores that know those of one demand."""
    free_kr = snapshot.servers.free_kr
    known = KeptScores(BestFit(snapshot), free_kr, most)
    known.keep(layout, DEMAND, *make_anew(known, layout, free_kr), NOTHING)
    return known


def check(known: KeptScores, layout: Layout, free_kr: IntArray) -> None:
    """Compare the scores that are known with those that would be made now."""
    found = known.find(layout, DEMAND)
    assert found is not None
    np.testing.assert_array_equal(found[1][:-1], make_anew(known, layout, free_kr)[1][:-1])


def change(draw: np.random.Generator, free_kr: IntArray, count: int) -> tuple[IntArray, IndexArray]:
    changed = np.sort(draw.choice(COUNT, count, replace=False))
    free_kr = free_kr.copy()
    free_kr[changed] = draw.integers(-1, 10, (count, 2))
    return free_kr, changed


@pytest.mark.parametrize("only", [None, NAMES[50:90]], ids=["all", "some"])
@pytest.mark.parametrize("counts", [[1], [FEW], [FEW + 1], [200], [3, 4], [9, 30]], ids=str)
def test_servers_that_changed_are_scored_again(only: list[str] | None, counts: list[int]) -> None:
    snapshot, layout = build_cluster(only)
    draw, known, free_kr = np.random.default_rng(2), begin(snapshot, layout), snapshot.servers.free_kr
    for _ in range(5):
        for count in counts:  # so many cycles do not ask for it
            free_kr, changed = change(draw, free_kr, count)
            known.follow(free_kr, changed)
        check(known, layout, free_kr)


def test_scores_from_amid_a_cycle_are_not_taken_for_those_of_its_beginning() -> None:
    """Whatever a cycle places may never come about."""
    snapshot, layout = build_cluster()
    free_kr = snapshot.servers.free_kr
    amid_kr, changed = change(np.random.default_rng(3), free_kr, 20)
    known = KeptScores(BestFit(snapshot), free_kr, 2)
    known.keep(layout, DEMAND, *make_anew(known, layout, amid_kr), changed)
    known.follow(free_kr, NOTHING)

    check(known, layout, free_kr)


def test_they_are_not_kept_on_where_nobody_knows_what_changed_or_too_much_has() -> None:
    snapshot, layout = build_cluster()
    free_kr = snapshot.servers.free_kr
    known = begin(snapshot, layout)
    known.follow(free_kr, np.arange(MAX_STALE))
    assert known.find(layout, DEMAND) is not None
    known.follow(free_kr, np.arange(MAX_STALE))
    known.follow(free_kr, np.arange(1))
    assert known.find(layout, DEMAND) is None

    known = begin(snapshot, layout)
    known.follow(free_kr, None)
    assert known.find(layout, DEMAND) is None


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    snapshot, layout = build_cluster()
    free_kr = snapshot.servers.free_kr
    known = begin(snapshot, layout)
    known.keep(layout, (1, 1), *make_anew(known, layout, free_kr), NOTHING)
    assert known.find(layout, DEMAND) is not None
    known.keep(layout, (2, 2), *make_anew(known, layout, free_kr), NOTHING)

    found = {demand: known.find(layout, demand) is not None for demand in (DEMAND, (1, 1), (2, 2))}
    assert found == {DEMAND: True, (1, 1): False, (2, 2): True}


def test_the_next_cycle_scores_no_more_than_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []

    def watch(self: ScoredDemand, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        scored.append(len(servers))
        return score_many(self, servers, left_rn)

    score_many = ScoredDemand.score_many
    monkeypatch.setattr(scored_demands.ScoredDemand, "score_many", watch)
    snapshot, _ = build_cluster()
    state, settings, placement = CycleState(), PolicySettings("best-fit-drfh"), snapshot.task_classes[0].placement
    placed: list[list[str]] = []
    for cycle in range(4):
        waiting = build_class("a", DEMAND, placement, build_tasks(f"t{cycle}-", 2))
        snapshot = build_snapshot(snapshot.servers, [waiting], tenants=snapshot.tenants)
        report = run_cycle(snapshot, settings, 0.0, state=state)
        assert places_of(report) == places_of(run_cycle(snapshot, settings, 0.0, state=CycleState()))
        placed.append(places_of(report))
        snapshot = apply_report(snapshot, report)

    assert all(len(places) == 2 for places in placed)
    assert scored == [COUNT, COUNT, COUNT, COUNT, COUNT], "once by the state that goes on, and by each of the others"


def test_room_that_is_kept_for_tasks_counts_as_it_is_now() -> None:
    """On "far" little is free, but what is kept there suits the tasks best."""
    servers = build_servers({"far": (9, 9), "near": (9, 9)}, free={"far": (0, 0), "near": (9, 2)})
    placement = replace(build_placement(servers), reserved={0: DEMAND})
    snapshot = build_snapshot(servers, [build_class("a", DEMAND, placement)])
    state, settings = CycleState(), PolicySettings("best-fit-drfh")
    assert places_of(run_cycle(snapshot, settings, 0.0, state=state)) == ["far"]

    servers = replace(servers, free_kr=np.array([[0, 1], [9, 2]]))
    snapshot = build_snapshot(servers, [build_class("a", DEMAND, placement)])
    assert places_of(run_cycle(snapshot, settings, 0.0, state=state)) == ["far"]


def test_what_a_draft_closes_is_closed_in_this_draft_only() -> None:
    servers = build_servers({"a": (9, 9), "b": (9, 9)})
    placement = build_placement(servers)
    snapshot = build_snapshot(servers, [build_class("a", DEMAND, placement)])
    state = CycleState()
    chosen = []
    for closed in ([0], [], [0], []):
        draft = Draft(snapshot, get_policy("best-fit-drfh"), state=state)
        if closed:
            draft.restrict(placement, closed)
        choice = draft.find_choice()
        assert choice is not None
        chosen.append(choice.server)
        draft.end()
    assert chosen == [1, 0, 1, 0]


def test_where_capacities_are_others_all_servers_are_scored_again() -> None:
    """The totals are the same, and so is what is free."""
    state, settings = CycleState(), PolicySettings("best-fit-drfh")
    servers = build_servers({"a": (4, 4), "b": (9, 9)}, free={"a": (4, 4), "b": (4, 4)})
    placement = build_placement(servers)
    for table, expected in ((servers, "a"), (replace(servers, capacity_kr=servers.capacity_kr[::-1].copy()), "b")):
        snapshot = build_snapshot(table, [build_class("a", (0, 0), placement)])
        assert places_of(run_cycle(snapshot, settings, 0.0, state=state)) == [expected], "the least loaded one"
