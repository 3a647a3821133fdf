"""Large pods beside small ones that come and go, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2e.starvation import check_share, make_nodes

if TYPE_CHECKING:
    from e2e.api import Api
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator


def test_a_tenant_of_large_pods_gets_its_share_beside_one_of_small_ones(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes(make_nodes())
    small, large = namespace(), namespace()
    tenant(namespaces=[small], weight=1)
    waiting = tenant(namespaces=[large], weight=1)

    check_share(api, operator(), (small, large), waiting)
