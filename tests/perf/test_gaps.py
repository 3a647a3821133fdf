"""The measurement of the loop's gaps plays all of its phases, also in a small cluster."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kube.assembled.processes import run_processes
from perf.gaps import Size, find_too_long, play, render
from perf.meter import metering


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Give back the collector of garbage as it was: an operator sets it to its needs."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_small_cluster_has_all_phases() -> None:
    with metering() as meter:
        run_processes(play(Size(nodes=30, pods=120, sets=2, waiting=20), meter))

    assert find_too_long(meter, 60.0) == []
    meter.phases[2].longest = 60.5
    assert find_too_long(meter, 60.0) == ["100 pods come and are bound: 60.50 s at a stretch"]
    assert len(meter.phases) == 7
    assert all(phase.seconds > 0.0 for phase in meter.phases)
    assert render(meter).count("\n") == 8
