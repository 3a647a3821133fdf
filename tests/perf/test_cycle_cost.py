"""The measurement of one change plays each of its clusters, also small ones."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from perf.cycle_cost import ALL_FIT, COMES, ENDS, list_cases, measure


@pytest.fixture
def collector() -> Iterator[None]:
    """The garbage collector, as it was when the test has ended."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_every_change_is_measured_in_every_cluster(policy: str) -> None:
    rows = [row for case in list_cases(part=0.01) for row in measure(case, rounds=2, policy=policy)]

    assert [row.change for row in rows] == [COMES, ENDS, ALL_FIT, COMES, COMES]
    assert all(row.all > 0.0 for row in rows)
