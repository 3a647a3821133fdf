"""Best fit: the paper's numbers, one server as many, and demands without a direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.model import MAX_AMOUNT, Fit, Snapshot
from fairbind.scheduling.policies.fit import BestFit, FirstFit, Score
from scheduling.strategies import snapshots
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, decide, places_of

# The example of DRFH (TPDS 2015) after eq. 9, in parts of 120: what remains is (1/5, 1/15) and (1/8, 1/4).
PAPER_FREE = {"busy": (0, 0), "first": (15, 30), "second": (24, 8)}
PAPER_CAPACITY = {"busy": (40, 40), "first": (40, 40), "second": (40, 40)}
PAPER_DEMAND = (12, 4)


def build_paper_example() -> Snapshot:
    servers = build_servers(PAPER_CAPACITY, free=PAPER_FREE)
    return build_snapshot(servers, [build_class("i", PAPER_DEMAND, build_placement(servers))])


def score_all(score: Score, snapshot: Snapshot) -> list[float]:
    servers = snapshot.servers
    left_rn = np.maximum(servers.free_kr.T, 0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores: list[float] = score.score_many(np.arange(len(servers.names)), left_rn).tolist()
    return scores


def test_h_of_the_papers_example_is_zero_and_five_thirds() -> None:
    snapshot = build_paper_example()

    scores = score_all(BestFit(snapshot).build_score(PAPER_DEMAND), snapshot)

    assert scores[1:] == pytest.approx([5 / 3, 0.0])


def test_best_fit_takes_the_server_that_looks_like_the_task_and_first_fit_the_first() -> None:
    assert places_of(decide(build_paper_example(), "best-fit-drfh")) == ["second"]
    assert places_of(decide(build_paper_example(), "first-fit-drfh")) == ["first"]


def test_a_demand_of_nothing_of_the_first_resource_is_no_division_by_zero() -> None:
    servers = build_servers({"cpu-rich": (90, 10), "memory-rich": (10, 90)})
    snapshot = build_snapshot(servers, [build_class("i", (0, 4), build_placement(servers))])

    assert places_of(decide(snapshot)) == ["memory-rich"]


@pytest.mark.parametrize("resources", [("cpu", "memory"), ("memory", "cpu")])
def test_the_choice_does_not_depend_on_the_order_of_the_resources(resources: tuple[str, str]) -> None:
    """Both resources are dominant here; with the paper's reference, "resource 1", the choice would turn round."""

    def order(cpu: int, memory: int) -> tuple[int, ...]:
        amounts = {"cpu": cpu, "memory": memory}
        return tuple(amounts[name] for name in resources)

    free = {"a": order(20, 8), "b": order(20, 34), "rest": order(0, 0)}
    servers = build_servers(dict.fromkeys(free, order(40, 40)), free=free)
    snapshot = build_snapshot(servers, [build_class("i", order(8, 8), build_placement(servers))], resources=resources)

    assert places_of(decide(snapshot)) == ["a"]


def test_a_server_with_a_device_is_left_to_those_who_need_it() -> None:
    servers = build_servers({"a-gpu": (8, 8, 4), "b-plain": (8, 8, 0)})
    placement = build_placement(servers)
    snapshot = build_snapshot(servers, [build_class("i", (1, 1, 0), placement)], resources=("cpu", "memory", "gpu"))

    assert places_of(decide(snapshot)) == ["b-plain"]


def test_tasks_without_a_fairness_demand_go_to_the_least_loaded_server_in_turn() -> None:
    """Only `pods` counts them, which is no fairness resource; without a rule they would all pile up on the first."""
    servers = build_servers({"a": (10, 10, 10), "b": (10, 10, 10), "c": (10, 10, 10)}, free={"a": (4, 10, 9)})
    task_class = build_class("i", (0, 0, 1), build_placement(servers), 4, share_demand_r=(1, 1, 0))
    snapshot = build_snapshot(servers, [task_class], resources=("cpu", "memory", "pods"), counts_r=(True, True, False))

    assert places_of(decide(snapshot)) == ["b", "c", "b", "c"]


@pytest.mark.parametrize("fit", Fit)
def test_equal_proportions_of_different_sizes_tie_and_go_by_name(fit: Fit) -> None:
    """0.1 + 0.2 must not decide: each quotient is rounded once."""
    free = {"a": (30, 21), "b": (10, 7), "c": (70, 49)}
    servers = build_servers(dict.fromkeys(free, (100, 100)), free=free)
    snapshot = build_snapshot(servers, [build_class("i", (3, 3), build_placement(servers))])
    snapshot = replace(snapshot, fit=fit)

    scores = score_all(BestFit(snapshot).build_score((3, 3)), snapshot)

    assert scores[0] == scores[1] == scores[2]
    assert places_of(decide(snapshot)) == ["a"]


def score_paper_example(fit: Fit, demand_r: Sequence[int] = PAPER_DEMAND) -> list[float]:
    snapshot = replace(build_paper_example(), fit=fit)
    return score_all(BestFit(snapshot).build_score(demand_r), snapshot)[1:]


def test_the_angle_of_the_papers_example() -> None:
    """(1/10, 1/30) and (1/8, 1/4): the cosine is (3 x 1 + 1 x 2) / sqrt(10 x 5)."""
    assert score_paper_example(Fit.COSINE) == pytest.approx([1 - 1 / sqrt(2), 0.0])


def test_the_distance_is_relative_to_the_first_resource_where_that_is_chosen() -> None:
    """The task asks most of the memory, (1/30, 1/10); the servers have 2 and 1/3 times as much of it as CPUs."""
    assert score_paper_example(Fit.FIRST_RESOURCE, (4, 12)) == pytest.approx([1.0, 8 / 3])
    assert score_paper_example(Fit.DOMINANT_RESOURCE, (4, 12)) == pytest.approx([1 / 6, 8 / 3])


def test_the_first_resource_is_the_first_by_name() -> None:
    """With the first axis as the reference `a` is 0.6 away and `b` 0.7, with the second 1.5 and 0.41."""
    free = {"a": (20, 8), "b": (20, 34), "rest": (80, 78)}
    servers = build_servers(dict.fromkeys(free, (40, 40)), free=free)
    for resources, best in ((("cpu", "memory"), "a"), (("memory", "cpu"), "b")):
        classes = [build_class("i", (8, 8), build_placement(servers, only=["a", "b"]))]
        snapshot = build_snapshot(servers, classes, resources=resources)
        assert places_of(decide(replace(snapshot, fit=Fit.FIRST_RESOURCE))) == [best]


@pytest.mark.parametrize("fit", Fit)
def test_zero_demands_and_nothing_left_are_defined(fit: Fit) -> None:
    """One server has no memory left, which the task does not ask for; a task of nothing goes to the least loaded."""
    servers = build_servers({"a": (10, 10), "b": (10, 10)}, free={"a": (10, 0), "b": (9, 9)})
    for demand_r, best in (((4, 0), "a"), ((0, 4), "b"), ((0, 0), "b")):
        snapshot = build_snapshot(servers, [build_class("i", demand_r, build_placement(servers))])
        assert places_of(decide(replace(snapshot, fit=fit))) == [best]


@given(snapshot=snapshots(), fit=st.sampled_from(Fit))
def test_one_server_is_scored_like_many_to_the_bit(snapshot: Snapshot, fit: Fit) -> None:
    """Otherwise it would matter for the choice how many servers changed since the last look."""
    snapshot = replace(snapshot, fit=fit)
    for task_class in snapshot.task_classes:
        for score in (BestFit(snapshot).build_score(task_class.demand_r), FirstFit(snapshot).build_score(())):
            for k, many in enumerate(score_all(score, snapshot)):
                row = snapshot.servers.free_kr[k].tolist()
                if has_capacity(row, task_class.demand_r):
                    assert score.score_one(k, row) == many


@given(amounts=st.lists(st.integers(1, MAX_AMOUNT), min_size=6, max_size=6))
def test_the_largest_amounts_lose_no_bit_either(amounts: list[int]) -> None:
    half = [amount // 2 for amount in amounts]
    servers = build_servers({"a": amounts[:3], "b": amounts[3:]}, free={"a": half[:3], "b": half[3:]})
    demand_r = [min(half[0], half[3]), min(half[1], half[4]) // 2, 0]
    snapshot = build_snapshot(
        servers, [build_class("i", demand_r, build_placement(servers))], resources=("cpu", "memory", "gpu")
    )
    score = BestFit(snapshot).build_score(demand_r)
    scores = score_all(score, snapshot)
    for k in (0, 1):
        row = servers.free_kr[k].tolist()
        if has_capacity(row, demand_r):
            assert score.score_one(k, row) == scores[k]


def has_capacity(row: Sequence[int], demand_r: Sequence[int]) -> bool:
    return all(demand == 0 or demand <= free for demand, free in zip(demand_r, row, strict=True))
