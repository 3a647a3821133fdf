"""Policies are guided by the exact answer on a real API server; gate mode: tests/e2e/test_gate_mode.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.example import CORES, SMALL_CORES, create_backlog, make_nodes, place_guided
from e2e.workloads import wait_full

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.api import Api
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator


@pytest.fixture
def backlog(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The nodes of the example and its pods; the namespaces and the tenants of `edge` and `batch`."""
    nodes(make_nodes())
    edge, batch = namespace(), namespace()
    names = tenant(namespaces=[edge]), tenant(namespaces=[batch])
    create_backlog(api, edge, batch)
    return (edge, batch), names


@pytest.mark.parametrize("chosen", ["best-fit-drfh", "tsf", "ps-dsf"])
def test_the_nodes_that_one_tenant_needs_are_left_to_it(
    api: Api,
    backlog: tuple[tuple[str, str], tuple[str, str]],
    policy: Callable[..., None],
    operator: StartOperator,
    chosen: str,
) -> None:
    """By their own rules best fit and TSF give it half of them: docs/policies.md."""
    policy(policy=chosen)

    assert place_guided(api, operator, *backlog) == (SMALL_CORES, CORES - SMALL_CORES)


@pytest.mark.parametrize(("chosen", "of_edge"), [("best-fit-drfh", 8), ("ps-dsf", 16), ("rps-dsf", 16)])
def test_the_rules_alone_give_what_the_documents_say(
    api: Api,
    backlog: tuple[tuple[str, str], tuple[str, str]],
    policy: Callable[..., None],
    operator: StartOperator,
    chosen: str,
    of_edge: int,
) -> None:
    """docs/policies.md."""
    policy(policy=chosen, guided=False)

    operator()

    assert wait_full(api, CORES, *backlog[0]) == (of_edge, CORES - of_edge)
