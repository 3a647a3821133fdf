"""What users do all day with real containers, and the shares right afterwards."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from e2e.api import ApiError
from e2e.conftest import remove
from e2e.objects import TENANTS, make_name
from e2e.waiting import wait_for
from e2e.workloads import create_pods, find_condition, list_pods
from kind.judge import Picture, check_shares, count_phases, find_refusals, is_running, read_tenant, wait_calm
from kind.owners import create_deployment, create_job, is_job_complete, make_kind_pod, make_pod_spec
from kind.release import is_ready
from kind.workloads import make_container

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant
    from kind.release import Release
    from kindcluster.cluster import Cluster

TINY = {"cpu": "20m", "memory": "32Mi"}
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PORT = 18080
JOB_SECONDS = 300.0


@pytest.fixture(autouse=True)
def calm(api: Api, fairbind_installed: Release) -> Iterator[None]:
    """Begin with nothing left of others, and end without a word of trouble in the operators' logs."""
    wait_calm(api)
    yield
    for name in (pod["metadata"]["name"] for pod in fairbind_installed.pods() if is_ready(pod)):
        log = wait_for(functools.partial(fairbind_installed.log, name, 2000), describe=f"the log of {name}")
        assert "Traceback" not in log


def on(shape: str) -> Mapping[str, str]:
    return {"fairbind.io/shape": shape}


def take_most(cluster: Cluster, api: Api) -> Mapping[str, str]:
    """Return requests of which only one pod fits on the small node at a time."""
    node = cluster.find_worker("small")
    picture = Picture.take(api)
    free = picture.allocatable(node)["cpu"] - picture.used.get(node, {}).get("cpu", Decimal(0))
    return {"cpu": f"{int(free * 1000) // 2 + 5}m", "memory": "32Mi"}


def read_pod(api: Api, namespace: str, name: str) -> Json:
    pod: Json = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    return pod


def delete_pod(api: Api, namespace: str, name: str) -> None:
    """Delete a pod as users do, with its time to end, and wait until it is gone."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    remove(api, path)
    wait_for(lambda: not api.exists(path), describe=f"{name} to be gone")


def wait_running(api: Api, namespace: str, *names: str) -> None:
    for name in names:
        wait_for(functools.partial(runs, api, namespace, name), describe=f"{name} to run")


def runs(api: Api, namespace: str, name: str) -> bool:
    return is_running(read_pod(api, namespace, name))


def test_a_job_ends_and_frees_its_room(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    most_of_it = take_most(kind_cluster, api)
    before = api.get(TENANTS)["metadata"]["resourceVersion"]
    create_job(api, own, "steps", 4, make_pod_spec(most_of_it, "-sleep=1s", nodeSelector=on("small")))
    wait_for(lambda: is_job_complete(api, own, "steps"), JOB_SECONDS, "the Job to be complete")

    shares = check_shares(api, name)[name]
    assert (shares["dominantShare"], shares["allocated"], shares["running"], shares["pending"]) == (0.0, {}, 0, 0)

    def had_share() -> bool:
        """Whether the API remembers a status from while the Job ran."""
        query = {"resourceVersion": before, "fieldSelector": f"metadata.name={name}"}
        history = [*api.watch(TENANTS, timeout_seconds=1, **query)]
        return any(event["object"].get("status", {}).get("dominantShare") for event in history)

    wait_for(had_share, describe="a share in the Tenant's history")
    assert count_phases(api, own) == {"Succeeded": 4}
    assert find_refusals(api, own) == []


def test_what_restarts_and_what_crashes_keeps_its_share(api: Api, namespace: MakeNamespace, tenant: MakeTenant) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    crashing = make_kind_pod(TINY, "-sleep=100ms", "-exit=1", name="crashing", restartPolicy="Always")
    ending = make_kind_pod(TINY, "-sleep=1s", name="ending", restartPolicy="Always")
    failing = make_kind_pod(TINY, "-sleep=100ms", "-exit=2", name="failing", restartPolicy="Never")
    create_pods(api, own, [crashing, ending, failing])

    def is_down_again(pod: str) -> bool:
        """Tell whether it was restarted and is down: kubelets show CrashLoopBackOff only for moments, or not at all."""
        statuses = read_pod(api, own, pod)["status"].get("containerStatuses") or []
        return any(status["restartCount"] >= 1 and "running" not in status["state"] for status in statuses)

    for pod in ("crashing", "ending"):
        wait_for(functools.partial(is_down_again, pod), describe=f"{pod} to be down again")
    wait_for(lambda: read_pod(api, own, "failing")["status"]["phase"] == "Failed", describe="the third to fail")
    places = {pod: read_pod(api, own, pod)["spec"]["nodeName"] for pod in ("crashing", "ending")}

    shares = check_shares(api, name)[name]
    assert (shares["running"], shares["pending"]) == (2, 0)  # they hold their room while they are down
    assert shares["dominantShare"] > 0.0
    assert {pod: read_pod(api, own, pod)["spec"]["nodeName"] for pod in places} == places
    for pod in places:
        delete_pod(api, own, pod)
    assert check_shares(api, name)[name]["running"] == 0


def test_sidecars_and_init_containers_count_as_kubelets_count_them(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    """The sum while it runs is 100m, but while it starts, the init container beside the sidecar, 330m."""
    own = namespace()
    name = tenant(namespaces=[own])
    sidecar = make_container(name="sidecar", requests={"cpu": "30m", "memory": "40Mi"}, restartPolicy="Always")
    setup = make_container("-sleep=300ms", name="setup", requests={"cpu": "300m", "memory": "32Mi"})
    main = make_container(requests={"cpu": "70m", "memory": "48Mi"})
    spec = make_pod_spec(containers=[main], initContainers=[sidecar, setup], nodeSelector=on("large"))
    create_pods(api, own, [{"metadata": {"name": "layered"}, "spec": spec}])
    wait_running(api, own, "layered")

    allocated = check_shares(api, name)[name]["allocated"]
    assert {resource: float(amount) for resource, amount in allocated.items()} == {
        "cpu": pytest.approx(0.33),
        "memory": 88 * 2**20,
        "pods": 1,
    }
    described = kind_cluster.kubectl("describe", "node", kind_cluster.find_worker("large"))
    (row,) = (line.split() for line in described.splitlines() if line.split()[:2] == [own, "layered"])
    assert row[2] == "330m"

    create_job(
        api,
        own,
        "with-sidecar",
        1,
        make_pod_spec(containers=[make_container("-sleep=500ms", requests=TINY)], initContainers=[sidecar]),
    )
    wait_for(lambda: is_job_complete(api, own, "with-sidecar"), JOB_SECONDS, "a Job to end although a sidecar runs")
    assert check_shares(api, name)[name]["running"] == 1


def test_a_host_port_belongs_to_one_pod_of_a_node(api: Api, namespace: MakeNamespace, tenant: MakeTenant) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    port = make_container(requests=TINY, ports=[{"containerPort": 80, "hostPort": PORT}])
    pods = {
        pod: {"metadata": {"name": pod}, "spec": make_pod_spec(containers=[port], nodeSelector=on("large"))}
        for pod in ("first", "second")
    }
    create_pods(api, own, [pods["first"]])
    wait_running(api, own, "first")
    create_pods(api, own, [pods["second"]])
    wait_for(
        lambda: "free ports" in find_condition(read_pod(api, own, "second")).get("message", ""),
        describe="the second to be told which ports are taken",
    )
    shares = check_shares(api, name)[name]
    assert (shares["running"], shares["pending"]) == (1, 1)

    delete_pod(api, own, "first")
    wait_running(api, own, "second")
    assert find_refusals(api, own) == []
    shares = check_shares(api, name)[name]
    assert (shares["running"], shares["pending"]) == (1, 0)


def test_who_has_a_higher_priority_class_goes_first(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    own = namespace()
    name = tenant(namespaces=[own])
    urgent = make_name("urgent")
    api.post(PRIORITY_CLASSES, {"metadata": {"name": urgent}, "value": 1000, "preemptionPolicy": "Never"})
    try:
        most = take_most(kind_cluster, api)

        def make(pod: str, **fields: Any) -> Json:
            return make_kind_pod(most, name=pod, nodeSelector=on("small"), **fields)

        create_pods(api, own, [make("blocker")])
        wait_running(api, own, "blocker")
        create_pods(api, own, [make("early"), make("also-early")])
        wait_for(lambda: read_tenant(api, name).get("pods") == {"running": 1, "pending": 2}, describe="two to wait")
        create_pods(api, own, [make("urgent", priorityClassName=urgent)])
        wait_for(lambda: read_tenant(api, name).get("pods") == {"running": 1, "pending": 3}, describe="three to wait")

        delete_pod(api, own, "blocker")
        wait_running(api, own, "urgent")
        shares = check_shares(api, name)[name]
        assert (shares["running"], shares["pending"]) == (1, 2)
        delete_pod(api, own, "urgent")
        wait_for(lambda: sum(map(is_running, list_pods(api, own))) == 1, describe="one of the others to run")
    finally:
        remove(api, f"{PRIORITY_CLASSES}/{urgent}")


def test_a_namespace_goes_while_its_pods_wait(
    kind_cluster: Cluster, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    going, staying = namespace(), namespace()
    name, other = tenant(namespaces=[going]), tenant(namespaces=[staying])
    create_deployment(api, going, "runs", 3, make_pod_spec(TINY))
    create_deployment(api, going, "waits", 20, make_pod_spec({"cpu": "100", "memory": "32Mi"}))
    wait_for(lambda: read_tenant(api, name).get("pods") == {"running": 3, "pending": 20}, describe="20 pods to wait")

    kind_cluster.kubectl("delete", "namespace", going, "--wait=false")
    create_pods(api, staying, [make_kind_pod(TINY, name="meanwhile")])
    wait_running(api, staying, "meanwhile")
    wait_for(lambda: not api.exists(f"/api/v1/namespaces/{going}"), describe="the namespace to be gone")

    shares = check_shares(api, name, other)
    assert (shares[name]["dominantShare"], shares[name]["running"], shares[name]["pending"]) == (0.0, 0, 0)
    assert shares[other]["running"] == 1
    wait_for(lambda: find_reason(api, name) == "NamespaceNotFound", describe="the Tenant to say what it lacks")
    with pytest.raises(ApiError, match="not found"):
        api.post(f"/api/v1/namespaces/{going}/pods", make_kind_pod(TINY))


def find_reason(api: Api, tenant: str) -> str | None:
    conditions = read_tenant(api, tenant).get("conditions") or []
    return next((condition["reason"] for condition in conditions if condition["type"] == "Ready"), None)
