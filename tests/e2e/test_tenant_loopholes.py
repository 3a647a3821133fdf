"""What ordinary or generous rights do bring a tenant, and what closes it: the other half of docs/security.md.

Each test first shows that it works, so that nobody believes the document more or less than the cluster, and then that
the means which the document names closes it. Pods that skip the scheduler are refused in `test_admission`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.checks import check_metrics
from e2e.members import try_pod, wait_refused
from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import SMALL, count_bound, create_pods, find_condition, list_pods, wait_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api, Json
    from e2e.conftest import MakeTenant, StartOperator

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def top(api: Api) -> Iterator[str]:
    """A PriorityClass that some administrator has made for something important."""
    name = make_name("top")
    api.post(CLASSES, {"metadata": {"name": name}, "value": 1_000_000})
    yield name
    api.delete(f"{CLASSES}/{name}")


def set_quota(api: Api, namespace: str, hard: dict[str, str], **spec: Any) -> None:
    """Set a ResourceQuota, which its members cannot change."""
    body = {"metadata": {"name": make_name("quota")}, "spec": {"hard": hard, **spec}}
    api.post(f"/api/v1/namespaces/{namespace}/resourcequotas", body)


def limit_scope(scope: str, operator: str = "Exists", *values: str) -> Json:
    """Return the scope of a quota that counts some pods only."""
    expression: Json = {"scopeName": scope, "operator": operator}
    return {"matchExpressions": [{**expression, "values": list(values)} if values else expression]}


def test_pods_that_chose_their_node_take_room_at_once_but_count_as_held(
    api: Api,
    member: Api,
    mine: str,
    theirs: str,
    node: str,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    """It jumps the queue once. Afterwards the room counts as its own, and others come first."""
    cheater, victim = tenant(namespaces=[mine]), tenant(namespaces=[theirs])
    create_pods(member, mine, [make_pod(SMALL, scheduler_name="nobody", nodeName=node) for _ in range(8)])
    create_pods(member, mine, [make_pod(SMALL) for _ in range(6)])
    create_pods(api, theirs, [make_pod(SMALL) for _ in range(6)])
    running = operator()

    assert wait_full(api, 12, mine, theirs) == (8, 4)
    check_metrics(api, running, [mine, theirs])
    metrics = running.metrics()
    assert metrics.value("fairbind_tenant_dominant_share", tenant=cheater) == pytest.approx(8 / 12)
    assert metrics.value("fairbind_tenant_dominant_share", tenant=victim) == pytest.approx(4 / 12)


def test_under_fifo_a_priority_is_worth_something_until_a_quota_forbids_it(
    api: Api,
    member: Api,
    mine: str,
    theirs: str,
    node: str,
    top: str,
    policy: Callable[..., None],
    operator: StartOperator,
) -> None:
    """Fair policies compare priorities within one tenant only; fifo has no fairness to defend."""
    policy(policy="fifo")
    create_pods(api, theirs, [make_pod(SMALL) for _ in range(12)])
    create_pods(member, mine, [make_pod(SMALL, priorityClassName=top) for _ in range(12)])
    operator()
    assert wait_full(api, 12, mine, theirs) == (12, 0)
    assert {pod["spec"]["nodeName"] for pod in list_pods(api, mine)} == {node}

    set_quota(api, mine, {"pods": "0"}, scopeSelector=limit_scope("PriorityClass", "In", top))
    wait_refused(lambda: try_pod(member, mine, make_pod(SMALL, priorityClassName=top)), "exceeded quota")
    try_pod(member, mine, make_pod(SMALL))


def test_a_pod_that_repels_everybody_keeps_a_node_for_itself_until_a_quota_forbids_it(
    api: Api, member: Api, mine: str, theirs: str, node: str, operator: StartOperator
) -> None:
    """Required anti-affinity works both ways, across namespaces too, whichever scheduler has placed the pod."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
    repelling = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tiny = {"cpu": "1m", "memory": "1Mi"}
    create_pods(member, mine, [make_pod(tiny, scheduler_name="nobody", nodeName=node, affinity=repelling)])
    operator()
    create_pods(api, theirs, [make_pod(SMALL)])
    wait_for(
        lambda: "anti-affinity" in find_condition(list_pods(api, theirs)[0]).get("message", ""),
        describe="the other tenant's pod to be kept away",
    )
    assert count_bound(api, theirs) == 0

    set_quota(api, mine, {"pods": "0"}, scopes=["CrossNamespacePodAffinity"])
    wait_refused(lambda: try_pod(member, mine, make_pod(tiny, affinity=repelling)), "exceeded quota")
    try_pod(member, mine, make_pod(tiny))
    member.delete(f"/api/v1/namespaces/{mine}/pods", {"gracePeriodSeconds": 0})
    wait_for(lambda: count_bound(api, theirs) == 1, describe="the other tenant's pod to be let in")


def test_pods_that_request_nothing_and_pods_without_end_are_stopped_by_a_quota(
    api: Api, member: Api, mine: str
) -> None:
    """Shares are of requests: what pods use beyond them is between kubelets and limits."""
    try_pod(member, mine, make_pod())

    set_quota(api, mine, {"requests.cpu": "100", "requests.memory": "100Gi", "pods": "3"})

    wait_refused(lambda: try_pod(member, mine, make_pod()), "must specify requests.cpu")
    create_pods(member, mine, [make_pod(SMALL) for _ in range(3)])
    wait_refused(lambda: try_pod(member, mine, make_pod(SMALL)), "exceeded quota")
