"""What goes wrong in clusters while pods are being bound, and what must hold after it, from the API's state alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from e2e.api import ApiError, call_many
from e2e.checks import View, check_cluster, check_metrics, check_nothing_bound_twice
from e2e.objects import make_pod
from e2e.waiting import wait_for
from e2e.workloads import (
    SMALL,
    count_bindings,
    count_bound,
    create_pods,
    delete_pods,
    find_bound,
    find_waiting,
    list_pods,
    make_mixed_pods,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator


def patch_allocatable(api: Api, node: str, **amounts: str) -> None:
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": amounts, "capacity": amounts}})


@pytest.mark.nightly
@pytest.mark.local_plane
def test_an_operator_killed_in_the_middle_of_many_binds(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    api = cluster.api
    nodes(100)
    first, second = namespace(), namespace()
    tenant(namespaces=[first])
    tenant(namespaces=[second], weight=3)
    for name in (first, second):
        create_pods(api, name, make_mixed_pods(1000))
    victim = operator()
    wait_for(lambda: count_bindings(victim) >= 300, describe="some pods to be bound", pause=0.02)
    victim.kill()
    assert find_waiting(api, first)
    running = operator()
    wait_for(running.is_leader, describe="the next one to lead")
    check_cluster(cluster)
    check_metrics(api, running, [first, second])


@pytest.mark.local_plane
def test_a_restart_of_the_api_server_and_a_lost_history(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    plane, api = cluster.plane, cluster.api
    assert plane is not None
    nodes(20)
    name = namespace()
    running = operator()
    create_pods(api, name, make_mixed_pods(200))
    wait_for(lambda: count_bindings(running) >= 20, describe="some pods to be bound", pause=0.02)
    plane.stop_component("kube-apiserver", kill=True)
    wait_for(lambda: running.fetch("/readyz")[0] == 503, 15.0, "readyz to say that the API server is away")
    assert running.fetch("/healthz")[0] == 200
    plane.start_component("kube-apiserver")
    wait_for(running.is_ready, describe="readyz to say that it is back")
    create_pods(api, name, make_mixed_pods(50))
    check_cluster(cluster)
    check_metrics(api, running, [name])
    restarts = running.metrics()
    assert restarts.total("fairbind_watch_restarts_total", resource="pods", reason="connection") >= 1
    # Not that of pods: who loses the lead with the API server and takes it again lists them in any case. For whatever
    # reason: who was frozen for long lists without asking whether its version is too old.
    lost_before = restarts.total("fairbind_watch_restarts_total", resource="nodes")

    running.freeze()  # it must miss something for its version to be too old
    gone = [pod["metadata"]["name"] for pod in list_pods(api, name)][:60]
    delete_pods(api, name, gone)
    wait_for(lambda: len(list_pods(api, name)) <= 190, describe="the pods to be gone")
    plane.compact()
    running.thaw()
    wait_for(
        lambda: running.metrics().total("fairbind_watch_restarts_total", resource="nodes") > lost_before,
        describe="the lost history to be counted",
    )
    wait_for(running.is_leader, describe="it to lead again")
    create_pods(api, name, make_mixed_pods(60))
    check_cluster(cluster)
    check_metrics(api, running, [name])


def test_pods_deleted_while_they_are_decided_on(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    api = cluster.api
    nodes(20)
    name, doomed = namespace(), namespace()
    running = operator()
    for _ in range(3):
        made = create_pods(api, name, make_mixed_pods(60))
        create_pods(api, doomed, make_mixed_pods(20))
        delete_pods(api, name, made[::2])
    api.delete(f"/api/v1/namespaces/{doomed}")
    wait_for(lambda: not list_pods(api, doomed), describe="the pods of the deleted namespace to be gone")
    check_cluster(cluster)
    check_metrics(api, running, [name])
    wait_for(
        lambda: not running.metrics().select("fairbind_tenant_running_pods", tenant=f"ns/{doomed}"),
        describe="the series of the deleted namespace to go away",
    )


def test_nodes_that_come_go_shrink_and_grow_during_a_backlog(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    api = cluster.api
    names = nodes(12)
    name = namespace()
    running = operator()
    create_pods(api, name, [make_pod({"cpu": "2", "memory": "2Gi"}) for _ in range(300)])
    wait_for(lambda: count_bound(api, name) >= 60, describe="the nodes to fill")
    cordoned, deleted, shrunk, grown = names[0], names[1], names[6], names[7]
    api.patch(f"/api/v1/nodes/{cordoned}", {"spec": {"unschedulable": True}})
    api.delete(f"/api/v1/nodes/{deleted}")
    patch_allocatable(api, shrunk, cpu="4", memory="16Gi", pods="110")
    patch_allocatable(api, grown, cpu="64", memory="512Gi", pods="110")
    check_cluster(cluster, but=[shrunk])
    check_metrics(api, running, [name])
    api.patch(f"/api/v1/nodes/{cordoned}", {"spec": {"unschedulable": None}})
    nodes(4)
    on_shrunk = {pod["metadata"]["name"] for pod in find_bound(api, name) if pod["spec"]["nodeName"] == shrunk}
    delete_pods(api, name, sorted(on_shrunk))
    check_cluster(cluster)
    check_metrics(api, running, [name])


@pytest.mark.local_plane
def test_kube_scheduler_on_the_same_nodes(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    """Two schedulers that do not know of each other may overcommit a node for a moment; the kubelet refuses then.

    kwok's kubelets refuse nothing, so here it is only asked that both go on, that the books follow what the other one
    bound, and that nobody binds onto what is known to be full.
    """
    plane, api = cluster.plane, cluster.api
    assert plane is not None
    nodes(10)
    name = namespace()
    running = operator()
    plane.start_component("kube-scheduler")
    try:
        ours = [make_pod(SMALL) for _ in range(60)]
        theirs = [make_pod(SMALL, scheduler_name="default-scheduler") for _ in range(60)]
        create_pods(api, name, [pod for pair in zip(ours, theirs, strict=True) for pod in pair])
        wait_for(lambda: count_bound(api, name) == 120, describe="both to bind all of theirs")
        check_metrics(api, running, [name])
        before = View.take(api).find_overcommitted()
        create_pods(api, name, [make_pod(SMALL) for _ in range(200)])
        wait_for(lambda: not View.take(api).find_forgotten(), describe="no pod to be forgotten")
        assert find_waiting(api, name)  # it is full now
        assert View.take(api).find_overcommitted() == before
        check_nothing_bound_twice(cluster)
    finally:
        plane.stop_component("kube-scheduler")


def test_a_pod_bound_by_somebody_else_is_a_conflict_and_no_trouble(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    api = cluster.api
    names = nodes(6)
    name = namespace()
    running = operator()
    pods = make_mixed_pods(120)

    def create_and_bind(number: int) -> None:
        pod = pods[number]
        path = f"/api/v1/namespaces/{name}/pods"
        api.post(path, pod)
        if number % 3 == 0:
            own = pod["metadata"]["name"]
            target = {"apiVersion": "v1", "kind": "Node", "name": names[number % len(names)]}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": own}, "target": target}
            with contextlib.suppress(ApiError):  # the operator may have been first
                api.post(f"{path}/{own}/binding", body)

    call_many(range(len(pods)), create_and_bind)
    wait_for(lambda: not View.take(api).find_forgotten(), describe="no pod to be forgotten")
    check_metrics(api, running, [name])
    check_nothing_bound_twice(cluster)


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@contextlib.contextmanager
def refusing_bindings(api: Api, namespace: str) -> Iterator[None]:
    """Have the API server refuse bindings in a namespace, and wait until it does; configmaps show whether."""
    group, name = "admissionregistration.k8s.io/v1", f"no-bindings-{namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    policy = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["pods/binding", "configmaps"]}]},
        "validations": [{"expression": "false", "message": "not on Sundays"}],
    }
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
    }
    metadata = {"name": name}
    api.post(POLICIES, {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": policy})
    kind = "ValidatingAdmissionPolicyBinding"
    api.post(POLICY_BINDINGS, {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": binding})

    def is_refusing() -> bool:
        probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "probe-"}}
        try:
            api.post(f"/api/v1/namespaces/{namespace}/configmaps", probe)
        except ApiError as error:
            return "not on Sundays" in str(error)
        return False

    try:
        wait_for(is_refusing, describe="the policy to act")
        yield
    finally:
        api.delete(f"{POLICY_BINDINGS}/{name}")
        api.delete(f"{POLICIES}/{name}")


def find_scheduled(api: Api, namespace: str, name: str) -> dict[str, str]:
    """Return a pod's condition PodScheduled; empty without one."""
    conditions = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}").get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


def test_a_pod_whose_binding_is_refused_says_so_until_it_is_bound(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    api = cluster.api
    nodes(1)
    name = namespace()
    operator()
    with refusing_bindings(api, name):
        [pod] = create_pods(api, name, [make_pod(SMALL)])
        wait_for(lambda: find_scheduled(api, name, pod).get("reason") == "SchedulerError", describe="the condition")
        condition = find_scheduled(api, name, pod)
        assert condition["status"] == "False"
        assert "not on Sundays" in condition["message"]

        def is_described() -> bool:
            text = cluster.kubectl("describe", "pod", pod, f"--namespace={name}")
            return all(words in text for words in ("FailedScheduling", "not on Sundays"))

        wait_for(is_described, describe="the event")
    wait_for(lambda: find_scheduled(api, name, pod).get("status") == "True", describe="the pod to be bound")


def test_the_job_of_pods_that_wait_says_why(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    api = cluster.api
    nodes(1)
    name = namespace()
    operator()
    template = make_pod({"cpu": "1000"}, restartPolicy="Never")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"parallelism": 12, "completions": 12, "template": {"spec": template["spec"]}},
    }
    api.post(f"/apis/batch/v1/namespaces/{name}/jobs", job)

    def is_described() -> bool:
        text = cluster.kubectl("describe", "job", "train", f"--namespace={name}")
        return all(words in text for words in ("FailedScheduling", "wait: 0/1 nodes are available", "Insufficient cpu"))

    wait_for(is_described, describe="the event on the Job")
