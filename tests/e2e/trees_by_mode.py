"""Trees of Tenants where kube-scheduler places the pods: what a mode that is not bind mode must give as well.

Each case makes its pods before any of them may be placed, because the first tenant alone would have all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from e2e.objects import TENANTS, make_name
from e2e.turns import ONE_CORE, count_bound, make_default
from e2e.waiting import never, wait_for
from e2e.workloads import create_pods, delete_pods, find_bound
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2e.api import Api
    from e2e.conftest import MakeNodes, MakeTenant

TEN = {"cpu": "10", "memory": "10Gi", "pods": "110"}
TEN_CORES = {"cpu": "10", "memory": "64Gi", "pods": "110"}
STAYS_SECONDS = 3.0

Start = Callable[[], object]
"""Lets pods be placed."""


def check_a_department_and_its_projects(
    api: Api, nodes: MakeNodes, tenant: MakeTenant, teams: Sequence[str], start: Start
) -> None:
    """Let a department's projects have half of all cpu and half of all memory."""
    nodes([make_node(make_name("n"), allocatable=TEN)])
    science, development, production = teams
    engineering = tenant(weight=50)
    tenant(weight=50, namespaces=[science])
    tenant(parent=engineering, namespaces=[development])
    tenant(parent=engineering, namespaces=[production])
    demands: list[Mapping[str, str]] = [{"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}, {"memory": "1Gi"}]
    for team, demand in zip(teams, demands, strict=True):
        create_pods(api, team, [make_default(demand) for _ in range(10)])
    start()
    wait_counts(api, teams, [5, 5, 5])


def check_the_limit_of_a_parent(
    api: Api, nodes: MakeNodes, tenant: MakeTenant, teams: Sequence[str], start: Start
) -> None:
    """Hold two children within their parent's limit together, and let them have more when it is raised."""
    nodes([make_node(make_name("n"), allocatable=TEN_CORES)])
    top = tenant(limit=[{"resources": {"cpu": "4"}}])
    tenant(parent=top, namespaces=[teams[0]])
    tenant(parent=top, namespaces=[teams[1]])
    tenant(namespaces=[teams[2]])
    for team, count in zip(teams, (9, 9, 2), strict=True):
        create_pods(api, team, [make_default() for _ in range(count)])
    start()
    wait_counts(api, teams, [2, 2, 2])

    api.patch(f"{TENANTS}/{top}", {"spec": {"limit": [{"resources": {"cpu": "6"}}]}})
    wait_counts(api, teams, [3, 3, 2])


def check_what_is_not_lent(api: Api, nodes: MakeNodes, tenant: MakeTenant, teams: Sequence[str], start: Start) -> None:
    """Keep a guarantee free for whom it is, and keep it again when that one no longer uses it."""
    nodes([make_node(make_name("n"), allocatable=TEN_CORES)])
    keeping, below, other = teams
    top = tenant(guarantee=[{"resources": {"cpu": "4"}}], lending="Never")
    tenant(parent=top, namespaces=[below])
    tenant(parent=top, namespaces=[keeping])
    tenant(namespaces=[other])
    create_pods(api, other, [make_default() for _ in range(20)])
    start()
    wait_counts(api, teams, [0, 0, 6])

    create_pods(api, keeping, [make_default() for _ in range(4)])
    wait_counts(api, teams, [4, 0, 6])
    delete_pods(api, keeping, [pod["metadata"]["name"] for pod in find_bound(api, keeping)[:2]])
    wait_counts(api, teams, [2, 0, 6])
    create_pods(api, below, [make_default(ONE_CORE) for _ in range(3)])
    wait_counts(api, teams, [2, 2, 6])


CASES = (check_a_department_and_its_projects, check_the_limit_of_a_parent, check_what_is_not_lent)


def wait_counts(api: Api, teams: Sequence[str], expected: list[int]) -> None:
    """Wait until each namespace has so many bound pods, and see that it stays so."""
    wait_for(
        lambda: count_bound(api, teams) == expected,
        describe=lambda: f"{expected} bound pods, not {count_bound(api, teams)}",
    )
    never(
        lambda: any(count > most for count, most in zip(count_bound(api, teams), expected, strict=True)),
        STAYS_SECONDS,
        f"more than {expected} bound pods",
    )
