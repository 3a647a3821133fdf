"""Extender mode with a backlog of two thousand pods: tenants get what they get in bind mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.backlogs import Backlog, make_case, opening_backlog
from e2e.test_extender_mode import start_leader
from e2e.turns import extending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Json
    from e2e.clusters import Cluster
    from e2e.conftest import StartOperator
    from e2e.test_operator_policies import Case
    from localplane.extender import Extended

pytestmark = [pytest.mark.local_plane, pytest.mark.nightly]


@pytest.fixture(scope="module")
def extended(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    with extending(cluster, tmp_path_factory.mktemp("extender")) as extended:
        yield extended


@pytest.fixture(scope="module")
def backlog(cluster: Cluster, extended: Extended) -> Iterator[Backlog]:
    del extended  # no pod may be without the chart of extender mode
    with opening_backlog(cluster, is_unbound) as backlog:
        yield backlog


def is_unbound(pod: Json) -> bool:
    return not pod["spec"].get("nodeName")


@pytest.mark.parametrize("case", [make_case("best-fit-drfh"), make_case("ps-dsf")], ids=lambda case: case.policy)
def test_shares_of_two_thousand_pods_are_those_of_bind_mode(
    extended: Extended, backlog: Backlog, policy: Callable[..., None], operator: StartOperator, case: Case
) -> None:
    """kube-scheduler starts when all is there, because the first tenant alone would have all the room."""
    backlog.stock()
    policy(policy=case.policy, **case.spec)
    expected = backlog.compute_expected(case)
    _, port = start_leader(extended, operator)
    extended.start_scheduler(port)
    try:
        backlog.wait_shared(expected)
    finally:
        extended.plane.stop_component("kube-scheduler")
