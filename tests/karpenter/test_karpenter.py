"""What Karpenter buys for pods of fairbind: what a group needs and uses, and nothing for whom a node would not help."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import make_pod
from e2e.waiting import never, wait_for
from e2e.workloads import count_bound, create_pods, find_bound, find_condition, find_waiting, list_pods
from karpenter.conftest import GPU

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant

pytestmark = pytest.mark.needs_tools

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
SETTLED_SECONDS = 15.0
"""Three of Karpenter's longest batches."""
ARRIVALS, MEAN_PAUSE_SECONDS, MEAN_RUN_SECONDS = 60, 3.0, 20
"""An hour of a cluster with a job a minute, each of some minutes, in a twentieth of the time."""
MOST_UNUSED = 10
"""One of so many nodes: pods end while a node is on its way, and those that waited for it start where they were."""


def make_members(group: str, count: int, requests: Json, *, total: int | None = None, **more: Any) -> list[Json]:
    """Return pods of a group that say how many belong to it. total: so many; by default those that there are."""
    pods = [make_pod(requests, labels={"kueue.x-k8s.io/pod-group-name": group}, **more) for _ in range(count)]
    for pod in pods:
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(total or count)
    return pods


def list_bought(api: Api) -> list[str]:
    """Return the names of what Karpenter has bought and not sold."""
    return [claim["metadata"]["name"] for claim in api.items(CLAIMS)]


def wait_sold(api: Api) -> None:
    wait_for(lambda: not list_bought(api), describe="Karpenter to sell all empty nodes")


def test_for_a_group_it_buys_the_nodes_that_the_group_uses(
    api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    wait_sold(api)
    mine = namespace()
    tenant(namespaces=[mine])

    create_pods(api, mine, make_members("g", 4, {"cpu": "8", GPU: "8"}))

    wait_for(lambda: count_bound(api, mine) == 4, describe="the whole group to start")
    never(lambda: len(list_bought(api)) != 4, SETTLED_SECONDS, "Karpenter buys four nodes and keeps them")
    assert len({pod["spec"]["nodeName"] for pod in find_bound(api, mine)}) == 4


def test_it_buys_nothing_for_who_waits_for_something_else_than_a_node(
    api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    wait_sold(api)
    limited, incomplete, blocked = namespace(), namespace(), namespace()
    tenant(namespaces=[limited], limit=[{"resources": {GPU: 0}}])
    tenant(namespaces=[incomplete])
    tenant(namespaces=[blocked])
    create_pods(api, limited, [make_pod({"cpu": "1", GPU: "1"}) for _ in range(3)])
    create_pods(api, limited, make_members("whole", 2, {"cpu": "1", GPU: "8"}))
    create_pods(api, incomplete, make_members("part", 3, {"cpu": "8", GPU: "8"}, total=4))
    create_pods(api, blocked, [make_pod({"cpu": "1"}, resourceClaims=[{"name": "c", "resourceClaimName": "c"}])])

    reasons = {limited: "AtLimit", incomplete: "GangIncomplete", blocked: "NotSupported"}
    for where, reason in reasons.items():
        wait_for(
            functools.partial(has_reason, api, where, reason), describe=f"all pods of {where} to wait with {reason}"
        )
    never(lambda: list_bought(api), SETTLED_SECONDS, "Karpenter buys for nobody")


def has_reason(api: Api, namespace: str, reason: str) -> bool:
    """Tell whether all waiting pods of a namespace have this reason."""
    return {find_condition(pod).get("reason") for pod in find_waiting(api, namespace)} == {reason}


@dataclass
class History:
    """What was bought over time, and who used it. claims: by node that was bought. used: pods by node.

    ended: pods that ran to their end; they go with their nodes.
    """

    claims: dict[str, str] = field(default_factory=dict)
    used: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    ended: set[str] = field(default_factory=set)

    def look(self, api: Api, namespaces: list[str]) -> None:
        """Note what is there now."""
        for claim in api.items(CLAIMS):
            node = claim.get("status", {}).get("nodeName")
            if node:
                self.claims[node] = claim["metadata"]["name"]
        for namespace in namespaces:
            for pod in list_pods(api, namespace):
                name = pod["metadata"]["name"]
                if pod["spec"].get("nodeName"):
                    self.used[pod["spec"]["nodeName"]].add(name)
                if pod["status"].get("phase") == "Succeeded":
                    self.ended.add(name)

    def list_unused(self) -> list[str]:
        """Return the nodes that were bought and never used."""
        return sorted(set(self.claims) - set(self.used))


def test_over_an_hour_of_arrivals_it_buys_what_is_used(api: Api, namespace: MakeNamespace, tenant: MakeTenant) -> None:
    wait_sold(api)
    random, history = Random(1), History()
    teams = [namespace() for _ in range(3)]
    for team in teams:
        tenant(namespaces=[team])
    stuck = namespace()
    tenant(namespaces=[stuck], limit=[{"resources": {GPU: 4}}])
    create_pods(api, stuck, make_members("beyond", 2, {"cpu": "1", GPU: "8"}))
    create_pods(api, stuck, make_members("part", 2, {"cpu": "1", GPU: "1"}, total=3))
    expected = 0
    for number in range(ARRIVALS):
        seconds = 5 + int(random.expovariate(1 / MEAN_RUN_SECONDS))
        if random.random() < 0.5:
            requests = random.choice([{"cpu": "8", GPU: "8"}, {"cpu": "4", GPU: "4"}, {"cpu": "12"}])
            pods = make_members(f"g{number}", random.randint(2, 4), requests, run_seconds=seconds)
        else:
            pods = [make_pod(random.choice([{"cpu": "4"}, {"cpu": "2", GPU: "1"}]), run_seconds=seconds)]
        create_pods(api, random.choice(teams), pods)
        expected += len(pods)
        until = time.monotonic() + random.expovariate(1 / MEAN_PAUSE_SECONDS)
        while time.monotonic() < until:
            history.look(api, [*teams, stuck])
            time.sleep(0.2)

    def count_ended() -> int:
        history.look(api, [*teams, stuck])
        return len(history.ended)

    wait_for(lambda: count_ended() == expected, describe="all pods of the three teams to run to their end")
    assert count_bound(api, stuck) == 0
    wait_sold(api)  # nothing is kept for those that wait for a limit or for members
    print(f"\n{len(history.claims)} nodes were bought for {expected} pods; unused: {len(history.list_unused())}")
    assert len(history.list_unused()) <= len(history.claims) / MOST_UNUSED
