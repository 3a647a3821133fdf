"""The filters against the kube-scheduler that runs on the control plane: docs/reliability/differential.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from differential.living import FIRST_SEED, PODS_OF_A_WORLD, Stage, play
from differential.oracle import run_oracle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.clusters import Cluster


@pytest.fixture
def stage(cluster: Cluster) -> Iterator[Stage]:
    """The control plane, with kube-scheduler."""
    plane = cluster.plane
    assert plane is not None
    stage = Stage(plane)
    plane.start_component("kube-scheduler")
    try:
        stage.set_up()
        yield stage
    finally:
        plane.stop_component("kube-scheduler")
        stage.tear_down()


@pytest.mark.nightly
@pytest.mark.local_plane
def test_it_places_a_hundred_pods_where_the_filters_allow_it(stage: Stage) -> None:
    with run_oracle() as oracle:
        tally = play(stage, oracle, range(FIRST_SEED, FIRST_SEED + 120 // PODS_OF_A_WORLD))  # some pods are left out

    assert tally.faults == []
    assert tally.cases > 80
    assert 20 < tally.bound < tally.cases - 20
    named = (
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "InterPodAffinity",
        "PodTopologySpread",
        "NodePorts",
    )
    assert [plugin for plugin in named if not tally.plugins[plugin]] == []
