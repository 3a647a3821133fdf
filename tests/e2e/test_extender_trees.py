"""Extender mode with a tree of Tenants: kube-scheduler asks first, and the tree's order and promises hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.test_extender_mode import start_leader
from e2e.trees_by_mode import CASES
from e2e.turns import extending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from localplane.extender import Extended

pytestmark = pytest.mark.local_plane


@pytest.fixture(scope="module")
def extended(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    with extending(cluster, tmp_path_factory.mktemp("extender")) as extended:
        yield extended


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_a_tree_gives_what_it_gives_in_bind_mode(
    cluster: Cluster,
    extended: Extended,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    check: Callable[..., None],
) -> None:
    def start() -> None:
        _, port = start_leader(extended, operator)
        extended.start_scheduler(port)

    try:
        check(cluster.api, nodes, tenant, [namespace() for _ in range(3)], start)
    finally:
        if "kube-scheduler" in extended.plane.running():
            extended.plane.stop_component("kube-scheduler")
