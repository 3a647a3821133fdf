"""Gate mode with a tree of Tenants: the real kube-scheduler places the pods, and the tree's order and promises hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.test_admission import ENFORCED
from e2e.trees_by_mode import CASES
from e2e.turns import gating, wait_gated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

pytestmark = pytest.mark.local_plane


@pytest.fixture(scope="module", autouse=True)
def gate_mode(cluster: Cluster) -> Iterator[None]:
    with gating(cluster):
        yield


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_a_tree_gives_what_it_gives_in_bind_mode(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    check: Callable[..., None],
) -> None:
    teams = [namespace(labels=ENFORCED) for _ in range(3)]
    for team in teams:
        wait_gated(cluster.api, team)
    check(cluster.api, nodes, tenant, teams, lambda: operator("--mode", "gate"))
