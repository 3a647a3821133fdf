"""The chart on kubelets: installed as the README says, tested by helm, losing its leader and its leader's node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.utils import parse_quantity

from e2e.api import ApiError
from e2e.conftest import remove
from e2e.objects import TENANTS
from e2e.waiting import wait_for
from e2e.workloads import find_condition
from kind.release import RESTRICTED, Release, is_ready
from kind.streams import Stream, compute_wait
from kind.workloads import make_real_pod
from kindcluster.commands import ROOT, KindError
from kindcluster.images import WORKLOAD_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace

TAKEOVER_SECONDS = 15.0
RESTART_SECONDS = 600.0


@pytest.fixture
def whole(fairbind_installed: Release) -> Iterator[Release]:
    """The release, which a test may hurt; both replicas are there again afterwards, on different nodes as before."""
    fairbind_installed.wait_apart()
    yield fairbind_installed
    fairbind_installed.wait_apart()
    fairbind_installed.wait_leader()


def read_leading(release: Release) -> list[float]:
    """Return what each operator says of its leading, sorted: 1 does, 0 does not."""
    names = [pod["metadata"]["name"] for pod in release.pods()]
    return sorted(release.metrics(name).value("fairbind_leader") or 0.0 for name in names)


def create_one(api: Api, namespace: str, **fields: Any) -> str:
    """Make a pod and return its path. fields: of its spec."""
    pod = make_real_pod({"cpu": "10m"}, **fields)
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.post(path, pod)
    return f"{path}/{pod['metadata']['name']}"


def follow_one(api: Api, path: str) -> float:
    """Wait until a pod runs, and return the seconds until it had a node, as the API server's own clock says."""
    wait_for(lambda: api.get(path)["spec"].get("nodeName"), describe=f"a node for {path}")
    wait_for(lambda: api.get(path)["status"]["phase"] == "Running", describe=f"{path} to run")
    return compute_wait(api.get(path))


def test_two_replicas_run_where_pods_are_restricted_and_one_leads(fairbind_installed: Release, api: Api) -> None:
    labels = api.get("/api/v1/namespaces/fairbind-system")["metadata"]["labels"]
    wait_for(lambda: [*map(is_ready, fairbind_installed.pods())] == [True, True], describe="two operators, both ready")
    pods = fairbind_installed.pods()

    assert labels.items() >= RESTRICTED.items()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert {pod["metadata"]["name"] for pod in pods} > {fairbind_installed.wait_leader()}
    wait_for(lambda: read_leading(fairbind_installed) == [0.0, 1.0], describe="one of the two to say that it leads")


def test_what_is_not_restricted_is_refused_there(fairbind_installed: Release, api: Api) -> None:
    """Otherwise the test above would say nothing."""
    with pytest.raises(ApiError, match="violates PodSecurity"):
        api.post(f"/api/v1/namespaces/{fairbind_installed.namespace}/pods", make_real_pod({"cpu": "1m"}))


def test_a_pod_that_names_fairbind_runs(fairbind_installed: Release, api: Api, namespace: MakeNamespace) -> None:
    assert fairbind_installed.wait_leader()
    home = namespace()

    assert follow_one(api, create_one(api, home)) <= TAKEOVER_SECONDS
    (pod,) = api.items(f"/api/v1/namespaces/{home}/pods")
    assert find_condition(pod)["status"] == "True"


def test_the_first_steps_of_the_readme_show_two_teams_that_share(
    fairbind_installed: Release, api: Api, tmp_path: Path
) -> None:
    """The nodes are full, and as pods end the teams' running ones come to 2 : 1, as far as whole pods go."""
    text = (ROOT / "deploy" / "examples" / "quickstart.yaml").read_text(encoding="utf-8")
    for public, ours in (("busybox:1.37", WORKLOAD_IMAGE), ('command: [sleep, "15"]', "args: [-sleep=15s]")):
        assert public in text
        text = text.replace(public, ours)
    file = tmp_path / "quickstart.yaml"
    file.write_text(text, encoding="utf-8")
    kubectl = fairbind_installed.cluster.kubectl

    def count_running() -> list[int]:
        """Return the running pods of both teams; an empty list unless both have pods that wait."""
        tenants = {tenant["metadata"]["name"]: tenant.get("status", {}) for tenant in api.items(TENANTS)}
        counts = [tenants[name]["pods"] for name in ("team-a", "team-b") if "pods" in tenants[name]]
        is_contended = len(counts) == 2 and all(count["pending"] > 0 for count in counts)
        return [count["running"] for count in counts] if is_contended else []

    kubectl("apply", f"--filename={file}")
    try:
        wait_for(lambda: are_two_to_one(count_running()), describe=lambda: f"shares of 2 : 1: {count_running()}")
        assert "DOMINANT SHARE" in kubectl("get", "tenants")
    finally:
        # Jobs go with their namespace, which may be sooner than kubectl comes to them
        kubectl("delete", f"--filename={file}", "--wait", "--timeout=540s", "--ignore-not-found")


def are_two_to_one(counts: list[int]) -> bool:
    return bool(counts) and sum(counts) > 3 and abs(counts[0] - 2 * counts[1]) <= 2


def test_requests_are_what_the_operators_use(fairbind_installed: Release, api: Api) -> None:
    """What kubelets measure on a small cluster fits into the chart's requests, and they are not many times more."""

    def read_memory() -> dict[str, float]:
        """Return the working set of each operator as a part of its request, as far as kubelets have measured it."""
        parts: dict[str, float] = {}
        for pod in fairbind_installed.pods():
            if not is_ready(pod):
                continue
            summary = api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}/proxy/stats/summary")
            wanted = parse_quantity(pod["spec"]["containers"][0]["resources"]["requests"]["memory"])
            for measured in summary["pods"]:
                if measured["podRef"]["name"] == pod["metadata"]["name"] and measured.get("containers"):
                    parts[pod["metadata"]["name"]] = measured["containers"][0]["memory"]["workingSetBytes"] / float(
                        wanted
                    )
        return parts

    def is_as_requested() -> bool:
        parts = read_memory()
        assert len(parts) == 2, parts
        assert all(0.25 < part < 1.0 for part in parts.values()), parts
        return True

    wait_for(is_as_requested, describe="operators within their requests", pause=1.0)


def test_helm_test_succeeds(fairbind_installed: Release) -> None:
    words = ("test", "fairbind", f"--namespace={fairbind_installed.namespace}", "--timeout=540s")
    printed = fairbind_installed.cluster.helm(*words)

    assert "Succeeded" in printed


@pytest.mark.nightly
def test_helm_test_fails_where_nobody_schedules(whole: Release, api: Api) -> None:
    path = f"/apis/apps/v1/namespaces/{whole.namespace}/deployments/fairbind/scale"
    pod = f"/api/v1/namespaces/{whole.namespace}/pods/fairbind-test"
    api.patch(path, {"spec": {"replicas": 0}})
    try:
        wait_for(lambda: not whole.pods(), describe="the operators to end")
        remove(api, pod)  # an earlier run's: helm would have to wait for its end
        wait_for(lambda: not api.exists(pod), describe="the last test's pod to be gone")
        with pytest.raises(KindError, match=r"(?i)timed out|deadline"):
            whole.cluster.helm("test", "fairbind", f"--namespace={whole.namespace}", "--timeout=10s")
        assert "nodeName" not in api.get(pod)["spec"]
    finally:
        api.patch(path, {"spec": {"replicas": 2}})
        remove(api, pod)


def test_a_leader_that_is_killed_is_replaced(whole: Release, api: Api, namespace: MakeNamespace) -> None:
    home = namespace()
    leader = whole.wait_leader()
    with Stream(api, home) as stream:
        stream.wait_progress()
        api.delete(f"/api/v1/namespaces/{whole.namespace}/pods/{leader}", {"gracePeriodSeconds": 0})
        whole.wait_leader(other_than=leader)
        stream.wait_progress()

    stream.check(TAKEOVER_SECONDS)


@pytest.mark.nightly
def test_a_leader_whose_node_dies_is_replaced(whole: Release, api: Api, namespace: MakeNamespace) -> None:
    """The node is stopped as if it lost power; nobody tells the lease. The standby is on another node."""
    home = namespace()
    leader = whole.wait_leader()
    node = api.get(f"/api/v1/namespaces/{whole.namespace}/pods/{leader}")["spec"]["nodeName"]
    try:
        with Stream(api, home, {"affinity": make_affinity_without(node)}) as stream:
            stream.wait_progress()
            whole.cluster.stop_node(node)
            whole.wait_leader(other_than=leader)
            stream.wait_progress()
    finally:
        whole.cluster.start_node(node)
    stream.check(TAKEOVER_SECONDS)

    # The old leader comes back with its node and does not lead beside the new one.
    wait_for(lambda: sum(map(is_ready, whole.pods())) == 2, RESTART_SECONDS, "two operators that are ready", pause=0.5)
    wait_for(
        lambda: read_leading(whole) == [0.0, 1.0],
        RESTART_SECONDS,
        lambda: f"one leader: {read_leading(whole)}",
        pause=0.5,
    )


def make_affinity_without(node: str) -> Json:
    """Return what keeps a pod away from a node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
