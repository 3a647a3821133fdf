"""Two draws: uniform, the same for the same seed and task, and never a reason to leave room empty."""

from __future__ import annotations

from collections import Counter

import pytest

from fairbind.model import CycleReport, PolicySettings, Snapshot
from fairbind.scheduling import run_cycle
from fairbind.scheduling.cycle.servers.random_choices import RandomChoices
from scheduling.reference import check_report
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, places_of


def draw(snapshot: Snapshot, seed: int) -> CycleReport:
    return run_cycle(snapshot, PolicySettings("two-choices-drfh", seed=seed), 0.0)


def build_many(*, servers: int = 40, tasks: int = 30) -> Snapshot:
    table = build_servers({f"s{k:02}": (10, 10 + k % 3) for k in range(servers)})
    return build_snapshot(table, [build_class("a", (1, 1), build_placement(table), tasks)])


def test_all_pairs_are_equally_likely_and_never_twice_the_same() -> None:
    draws, count, rounds = RandomChoices(3), 5, 20_000

    pairs = Counter(draws.draw_two(f"task {n}", count) for n in range(rounds))

    assert len(pairs) == count * (count - 1)
    assert all(first != second for first, second in pairs)
    # The standard deviation of each is about 31.
    assert all(abs(seen - rounds / 20) < 160 for seen in pairs.values())


def test_two_servers_are_both_drawn() -> None:
    assert {frozenset(RandomChoices(0).draw_two(f"{n}", 2)) for n in range(20)} == {frozenset({0, 1})}


def test_a_task_draws_the_same_whatever_was_drawn_before() -> None:
    draws = RandomChoices(1)
    first = draws.draw_two("a", 1000)
    draws.draw_two("b", 1000)

    assert draws.draw_two("a", 1000) == first == RandomChoices(1).draw_two("a", 1000)
    assert RandomChoices(2).draw_two("a", 1000) != first


def test_the_seed_decides() -> None:
    snapshot = build_many()

    assert places_of(draw(snapshot, 7)) == places_of(draw(snapshot, 7))
    assert places_of(draw(snapshot, 7)) != places_of(draw(snapshot, 8))
    assert places_of(draw(snapshot, -1)) != places_of(draw(snapshot, 1))
    assert len(places_of(draw(snapshot, 10**100))) == 30


@pytest.mark.parametrize("seed", range(3))
def test_each_step_takes_the_better_of_the_two_or_the_best_of_all(seed: int) -> None:
    snapshot = build_many(servers=6, tasks=70)

    report = draw(snapshot, seed)

    check_report(snapshot, report, seed=seed)
    assert len(report.bindings) == 60


def test_it_spreads_where_best_fit_would_not() -> None:
    """Thirty tasks on forty servers: best fit fills one after the other."""
    snapshot = build_many()

    assert len(set(places_of(draw(snapshot, 0)))) > 15
    assert len(set(places_of(run_cycle(snapshot, PolicySettings(), 0.0)))) < 10
