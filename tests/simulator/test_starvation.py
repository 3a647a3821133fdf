"""A tenant whose pods are larger than those of another has its share, and without reservations it has nothing."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from nights import leave_to_nights
from simulator.starvation import (
    LENGTHS,
    PAGE,
    RESULTS,
    Case,
    find_first,
    format_page,
    measure,
    read_results,
    summarise,
)

CPUS = 8
RUN_TIMES = pytest.mark.parametrize("run_times", leave_to_nights([14, 20], but=[14]))
"""How many mean run times are simulated: the first half is for what runs at the beginning to end."""


def measure_part(large: int, length: str, run_times: int, mode: str = "On") -> tuple[float, float]:
    """Return which part of its share the tenant with the larger pods holds in the second half, and what all hold."""
    line = measure(Case("small", ((8, CPUS),), ("500m", str(large)), run_times=run_times), length, 1, mode)
    half = len(line["used"]) // 2
    return statistics.fmean(line["of_share"][half:]), statistics.fmean(line["used"][half:])


@pytest.mark.slow  # some hundred thousand decisions
@RUN_TIMES
@pytest.mark.parametrize("length", sorted(LENGTHS))
@pytest.mark.parametrize("large", [1, 2, 4])
def test_it_has_its_share_and_nothing_is_lost(large: int, length: str, run_times: int) -> None:
    part, used = measure_part(large, length, run_times)

    assert part >= 0.9
    assert used >= 0.99


@pytest.mark.slow
@RUN_TIMES
def test_it_has_its_share_on_nodes_of_several_sizes(run_times: int) -> None:
    """The exact answer puts it on the small nodes first; capacity that comes free on the large ones serves it, too."""
    case = Case("sizes", ((4, CPUS), (1, 2 * CPUS)), ("500m", "4"), run_times=run_times)
    line = measure(case, "exponential", 1, "On")
    half = len(line["used"]) // 2

    assert statistics.fmean(line["of_share"][half:]) >= 0.9
    assert statistics.fmean(line["used"][half:]) >= 0.99


@pytest.mark.slow
def test_pods_of_whole_nodes_have_most_of_it() -> None:
    part, used = measure_part(CPUS, "exponential", 20)

    assert part >= 0.5
    assert used >= 0.85  # at most one of eight nodes drains at a time


@pytest.mark.slow
@RUN_TIMES
@pytest.mark.parametrize("large", [1, 4])
def test_without_reservations_it_has_nothing(large: int, run_times: int) -> None:
    part, _ = measure_part(large, "exponential", run_times, "Off")

    assert part < 0.1


def test_what_is_published_says_who_never_reaches_its_share() -> None:
    near: dict[str, Any] = {
        "case": "c",
        "length": "fixed",
        "seed": 0,
        "mode": "On",
        "of_share": [0.0, 1.0, 0.9, 1.0],
        "used": [1.0] * 4,
    }
    far = near | {"mode": "Off", "of_share": [0.0, 0.95, 0.0, 0.1]}
    rows = summarise([near, near | {"seed": 1, "of_share": [0.0, 0.0, 0.0, 1.0]}, far])

    assert find_first(far["of_share"]) is None
    assert [(row["reached"], row["median"], row["worst"]) for row in rows[:1]] == [(2, 1.0, 1.5)]
    page = format_page({"versions": "v"}, rows).splitlines()
    assert "| c | fixed | On | 2 | 2 | 1.0 | 1.5 | 72.5% | 100.0% |" in page
    assert "| c | fixed | Off | 1 | 0 | - | - | 5.0% | 100.0% |" in page


def test_the_page_is_what_the_result_says() -> None:
    head, lines = read_results(RESULTS)
    assert PAGE.read_text(encoding="utf-8") == format_page(head, summarise(lines))
