"""A tenant whose pods are larger than those of another has its share, and without reservations it has nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.workload import draw_workload

pytestmark = pytest.mark.slow  # some hundred thousand decisions

NODES, CPUS, MEAN, HORIZON = 8, 8, 20, 400
LENGTHS: dict[str, Any] = {
    "exponential": {"exponential": MEAN},
    "uniform": {"uniform": [MEAN / 2, 1.5 * MEAN]},
    "lognormal": {"lognormal": {"median": MEAN / 2, "sigma": 1.2}},
}


def measure_part(large: int, length: str, reservations: dict[str, Any]) -> tuple[float, float]:
    """Return which part of the cluster the tenant with the larger pods holds in the second half, and what all hold."""
    total = NODES * CPUS
    workload = [
        {"tenant": "small", "name": "s", "tasks": 5 * total * HORIZON // MEAN, "pod": {"requests": {"cpu": "500m"}}},
        {"tenant": "large", "name": "l", "tasks": 2 * total * HORIZON // (MEAN * large), "arrival": {"at": MEAN}}
        | {"pod": {"requests": {"cpu": str(large)}}},
    ]
    document = {
        "horizon": HORIZON,
        "measureEvery": HORIZON,
        "reservations": reservations,
        "cluster": [{"shape": "n", "count": NODES, "capacity": {"cpu": str(CPUS)}}],
        "tenants": [{"name": "small"}, {"name": "large"}],
        "workload": [entry | {"duration": LENGTHS[length]} for entry in workload],
    }
    scenario = parse_scenario(document)
    held = {"small": 0.0, "large": 0.0}
    for row in simulate(scenario, draw_workload(scenario), "best-fit-drfh").tasks:
        if row.start is not None:
            end = HORIZON if row.end is None else min(row.end / 1e9, HORIZON)
            held[row.tenant] += (
                max(end - max(row.start / 1e9, HORIZON / 2), 0) * {"small": 0.5, "large": large}[row.tenant]
            )
    possible = total * HORIZON / 2
    return held["large"] / possible, sum(held.values()) / possible


@pytest.mark.parametrize("length", sorted(LENGTHS))
@pytest.mark.parametrize("large", [1, 2, 4])
def test_it_has_its_share_and_nothing_is_lost(large: int, length: str) -> None:
    part, used = measure_part(large, length, {})

    assert part >= 0.45
    assert used >= 0.99


def test_pods_of_whole_nodes_have_most_of_it() -> None:
    part, used = measure_part(CPUS, "exponential", {})

    assert part >= 0.25
    assert used >= 0.85  # at most one of eight nodes drains at a time


@pytest.mark.parametrize("large", [1, 4])
def test_without_reservations_it_has_nothing(large: int) -> None:
    part, _ = measure_part(large, "exponential", {"mode": "Off"})

    assert part < 0.05
