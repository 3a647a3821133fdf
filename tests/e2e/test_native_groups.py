"""PodGroups of Kubernetes itself, also those that its Job controller makes, on an API server that serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.clusters import Cluster
from e2e.objects import make_name, make_pod
from e2e.waiting import never, wait_for
from e2e.workloads import count_bound, create_pod, find_condition, find_waiting, list_pods
from localplane.nodes import make_node
from localplane.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from localplane.tools import Tools

FEATURE_GATES = ("GenericWorkload", "WorkloadWithJob")
VERSION = "scheduling.k8s.io/v1beta1"
POD_GROUPS = f"/apis/{VERSION}/namespaces/{{}}/podgroups"

pytestmark = pytest.mark.local_plane


@pytest.fixture(scope="module")
def cluster(tools: Tools) -> Iterator[Cluster]:
    """A cluster with what is off in Kubernetes as it comes."""
    with (
        ControlPlane(tools, feature_gates=FEATURE_GATES, apis=[VERSION]) as plane,
        Cluster.connect(plane.kubeconfig, tools, plane) as cluster,
    ):
        cluster.install_chart({"operator": {"enabled": False}})
        yield cluster


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return cluster.api


@pytest.fixture
def mine(nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant) -> str:
    """The namespace of a tenant, beside one node of four cores."""
    nodes([make_node(make_name("n"), allocatable={"cpu": "4", "memory": "64Gi", "pods": "110"})])
    mine = namespace()
    tenant(namespaces=[mine])
    return mine


def make_job(parallelism: int, cpu: str, scheduling: Json) -> Json:
    pod = make_pod({"cpu": cpu, "memory": "64Mi"})
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": {**pod["spec"], "restartPolicy": "Never"}}
    counts = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": make_name("job")},
        "spec": {**counts, **scheduling, "template": template},
    }


def create_job(api: Api, namespace: str, job: Json) -> None:
    api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)


def wait_condition(api: Api, namespace: str, status: str, reason: str) -> None:
    """Wait until the one PodGroup of a namespace says so of its start."""

    def find() -> list[tuple[str, str]]:
        (group,) = api.items(POD_GROUPS.format(namespace))
        conditions = group.get("status", {}).get("conditions", [])
        return [(one["status"], one["reason"]) for one in conditions if one["type"] == "PodGroupInitiallyScheduled"]

    wait_for(lambda: find() == [(status, reason)], describe=lambda: f"the PodGroup to say {status}, not {find()}")


def test_a_job_that_is_a_gang_starts_whole_and_its_pod_group_says_so(
    api: Api, mine: str, operator: StartOperator
) -> None:
    operator()
    gang: Json = {"scheduling": {"schedulingPolicy": {"gang": {}}}}
    create_job(api, mine, make_job(4, "1500m", gang))

    wait_for(lambda: len(list_pods(api, mine)) == 4, describe="the Job's pods")
    wait_for(
        lambda: all("of 4" in find_condition(pod).get("message", "") for pod in find_waiting(api, mine)),
        describe="all four to be told what their group lacks",
    )
    wait_condition(api, mine, "False", "Unschedulable")
    never(lambda: count_bound(api, mine) > 0, describe="a member that starts alone", seconds=3.0)

    (job,) = api.items(f"/apis/batch/v1/namespaces/{mine}/jobs")
    api.delete(f"/apis/batch/v1/namespaces/{mine}/jobs/{job['metadata']['name']}?propagationPolicy=Background")
    wait_for(lambda: not list_pods(api, mine) and not api.items(POD_GROUPS.format(mine)), describe="the Job to go")
    create_job(api, mine, make_job(4, "1", gang))

    wait_for(lambda: count_bound(api, mine) == 4, describe="all four to start")
    wait_condition(api, mine, "True", "Scheduled")


def test_any_job_with_a_pod_group_of_its_own_starts_pod_by_pod(api: Api, mine: str, operator: StartOperator) -> None:
    operator()
    create_job(api, mine, make_job(4, "1500m", {}))

    wait_for(lambda: len(api.items(POD_GROUPS.format(mine))) == 1, describe="the controller to make a PodGroup")
    wait_for(lambda: count_bound(api, mine) == 2, describe="as many as fit to start")
    wait_condition(api, mine, "True", "Scheduled")


def test_pods_that_a_quota_refuses_are_told_by_its_name(api: Api, mine: str, operator: StartOperator) -> None:
    operator()
    quotas = f"/api/v1/namespaces/{mine}/resourcequotas"
    api.post(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "2500m"}}})
    wait_for(lambda: "used" in api.get(f"{quotas}/small").get("status", {}), describe="the quota to count")
    create_job(api, mine, make_job(4, "1", {"scheduling": {"schedulingPolicy": {"gang": {}}}}))

    def find_words() -> list[str]:
        messages = [find_condition(pod).get("message", "") for pod in find_waiting(api, mine)]
        return [message.rpartition(": ")[2] for message in messages]

    wait_for(
        lambda: find_words() == ["2 of 4 pods exist; quota small refuses more."] * 2,
        describe=lambda: f"both pods to be told of the quota, not {find_words()}",
        timeout=60.0,
    )
    api.patch(f"{quotas}/small", {"spec": {"hard": {"requests.cpu": "4"}}})
    wait_for(lambda: count_bound(api, mine) == 4, describe="all four to start")


def test_members_wait_for_their_pod_group(api: Api, mine: str, operator: StartOperator) -> None:
    operator()
    for number in range(2):
        pod = make_pod({"cpu": "1", "memory": "64Mi"}, name=f"m-{number}")
        pod["spec"]["schedulingGroup"] = {"podGroupName": "late"}
        create_pod(api, mine, pod)
    wait_for(
        lambda: all(
            "PodGroup" in find_condition(pod).get("message", "")
            and find_condition(pod).get("reason") == "GangIncomplete"
            for pod in find_waiting(api, mine)
        ),
        describe="both to wait for the PodGroup",
    )

    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {"apiVersion": VERSION, "kind": "PodGroup", "metadata": {"name": "late"}, "spec": spec}
    api.post(POD_GROUPS.format(mine), body)

    wait_for(lambda: count_bound(api, mine) == 2, describe="both to start")
    wait_condition(api, mine, "True", "Scheduled")
