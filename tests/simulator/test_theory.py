"""What theory says of simple systems, and what a simulation says of them."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from simulator.scenarios import SECOND, make_entry, make_scenario, run

BATCHES = 20


def compute_erlang_wait(arrivals: float, services: float, servers: int) -> float:
    """The mean wait in an M/M/c queue: Erlang's C formula."""
    load = arrivals / services
    full = load**servers / factorial(servers) / (1 - load / servers)
    waits = full / (sum(load**n / factorial(n) for n in range(servers)) + full)
    return waits / (servers * services - arrivals)


@pytest.mark.slow
def test_waits_of_a_queue_are_those_of_the_closed_form() -> None:
    """Batch means, so that waits of neighbours, which resemble each other, do not make the interval too narrow."""
    entry = make_entry(tasks=3000, cpu=2, arrival={"poisson": 1.2}, duration={"exponential": 1})
    result = run(make_scenario(entry, seed=5, measureEvery=1e6), "fifo")
    waits = np.array([row.start - row.arrival for row in result.tasks if row.start is not None]) / SECOND

    means = waits[200:].reshape(BATCHES, -1).mean(axis=1)
    half = stats.t.ppf(0.9995, BATCHES - 1) * stats.sem(means)
    assert abs(means.mean() - compute_erlang_wait(1.2, 1.0, 2)) <= half
    assert half < 0.5, "an interval as wide as the wait would say nothing"


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf", "drfh"])
def test_tiny_tasks_come_to_the_shares_of_the_exact_mechanism(policy: str) -> None:
    """The two servers of DRFH's first example, one with much memory and one with many cpus, in hundreds of tasks."""
    document = make_scenario(
        make_entry("aw", tasks=900, pod={"requests": {"cpu": "20m", "memory": "100Mi"}}),
        make_entry("bw", tenant="b", tasks=900, pod={"requests": {"cpu": "100m", "memory": "20Mi"}}),
        tenants="ab",
        horizon=5,
    )
    document["cluster"] = [
        {"shape": "high-memory", "capacity": {"cpu": 10, "memory": "60000Mi"}},
        {"shape": "high-cpu", "capacity": {"cpu": 60, "memory": "10000Mi"}},
    ]
    rows = run(document, policy).shares

    assert all(row.pending > 0 for row in rows)
    for row in rows:
        assert row.fair_share is not None
        assert row.dominant_share == pytest.approx(row.fair_share, rel=0.01)
