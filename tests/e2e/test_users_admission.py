"""The example that ties the label of `users` to the user who makes a pod, with two members of one namespace.

Each member is a service account of the namespace. Refusals come a moment after the policy was made, so the fixture
waits for one; what is let through would prove nothing before that.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.members import check_compiled, check_refused, joined, try_pod, wait_refused
from e2e.objects import TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import SMALL, list_pods, wait_full
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "users-admission.yaml"
LABEL = "fairbind.io/user"
KINDS = ("Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController")
PATHS = {"Job": "/apis/batch/v1", "CronJob": "/apis/batch/v1", "ReplicationController": "/api/v1"}
MANY = {"cpu": "12", "memory": "64Gi", "pods": "110"}


@pytest.fixture(scope="module")
def example(cluster: Cluster) -> Iterator[None]:
    """The policy as the file has it."""
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    check_compiled(cluster.api, "fairbind-users")
    yield
    cluster.kubectl("delete", "-f", str(EXAMPLE))


@pytest.fixture
def home(example: None, namespace: MakeNamespace) -> str:
    """A namespace in which the policy holds."""
    del example
    return namespace(labels={"fairbind.io/users": "true"})


@pytest.fixture
def anna(cluster: Cluster, home: str) -> Iterator[Api]:
    with joined(cluster, home) as member:
        wait_refused(lambda: try_pod(member, home, make_pod(SMALL)), "fairbind-users", "it is missing")
        yield member


@pytest.fixture
def bert(cluster: Cluster, anna: Api, home: str) -> Iterator[Api]:
    del anna  # by then the policy holds
    with joined(cluster, home) as member:
        yield member


def find_name(member: Api) -> str:
    """Return the name of a member's service account."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = member.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return str(answer["status"]["userInfo"]["username"]).rpartition(":")[2]


def make_workload(kind: str, user: str | None) -> Json:
    """Return a workload without a namespace, whose one pod would have this user."""
    labels = {"app": make_name("app"), **({LABEL: user} if user else {})}
    pod = make_pod(SMALL)["spec"] | ({"restartPolicy": "Never"} if kind in {"Job", "CronJob"} else {})
    spec: Json = {"template": {"metadata": {"labels": labels}, "spec": pod}}
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    elif kind != "Job":
        app = {"app": labels["app"]}
        spec["selector"] = app if kind == "ReplicationController" else {"matchLabels": app}
    version = PATHS.get(kind, "/apis/apps/v1").removeprefix("/apis/").removeprefix("/api/")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": labels["app"]}, "spec": spec}


def find_path(kind: str, namespace: str) -> str:
    return f"{PATHS.get(kind, '/apis/apps/v1')}/namespaces/{namespace}/{kind.lower()}s"


def test_a_pod_carries_the_name_of_its_user(anna: Api, bert: Api, home: str) -> None:
    names = {"anna": find_name(anna), "bert": find_name(bert)}

    made = try_pod(anna, home, make_pod(SMALL, labels={LABEL: names["anna"]}))

    assert made["metadata"]["labels"][LABEL] == names["anna"]
    for wrong in (names["bert"], names["anna"].upper(), f"system_serviceaccount_{home}_{names['anna']}"[:63]):
        attempt = functools.partial(try_pod, anna, home, make_pod(SMALL, labels={LABEL: wrong}))
        check_refused(attempt, f"must be {names['anna']}, not {wrong}", what=wrong)
    check_refused(lambda: try_pod(anna, home, make_pod(SMALL)), f"must be {names['anna']}, and it is missing")


def test_a_user_of_the_cluster_is_called_by_its_whole_name(api: Api, anna: Api, home: str, mine: str) -> None:
    """It is the user of this test; a member of another namespace is one as well, when it may make pods here."""
    del anna
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]["username"]
    name = user.replace(":", "_").replace("@", "_")

    assert try_pod(api, home, make_pod(SMALL, labels={LABEL: name}))["metadata"]["labels"][LABEL] == name
    check_refused(lambda: try_pod(api, home, make_pod(SMALL)), f"must be {name}, and it is missing")
    assert try_pod(api, mine, make_pod(SMALL)), "elsewhere the policy does not hold"


def test_a_pod_goes_to_no_other_user_later(anna: Api, bert: Api, home: str) -> None:
    name, other = find_name(anna), find_name(bert)
    pod = make_pod(SMALL, labels={LABEL: name})
    anna.post(f"/api/v1/namespaces/{home}/pods", pod)
    path = f"/api/v1/namespaces/{home}/pods/{pod['metadata']['name']}"

    for wrong in (other, None):
        change = {"metadata": {"labels": {LABEL: wrong}}}
        check_refused(functools.partial(anna.patch, path, change), f"must be {name}", what=str(wrong))
    bert.patch(path, {"metadata": {"annotations": {"example.com/seen": "yes"}}})
    assert anna.get(path)["metadata"]["labels"] == {LABEL: name}


@pytest.mark.parametrize("kind", KINDS)
def test_what_pods_are_made_from_carries_it_too(anna: Api, bert: Api, home: str, kind: str) -> None:
    name, other = find_name(anna), find_name(bert)
    path = find_path(kind, home)

    for wrong in (other, None):
        attempt = functools.partial(anna.post, path, make_workload(kind, wrong), dryRun="All")
        check_refused(attempt, f"must be {name}", what=str(wrong))
    right = make_workload(kind, name)
    anna.post(path, right)
    bert.patch(f"{path}/{right['metadata']['name']}", {"metadata": {"annotations": {"example.com/seen": "yes"}}})
    if kind not in {"Job", "CronJob"}:  # pod templates of Jobs do not change
        template = copy.deepcopy(right["spec"]["template"])
        template["metadata"]["labels"][LABEL] = other
        change = {"spec": {"template": template}}
        attempt = functools.partial(anna.patch, f"{path}/{right['metadata']['name']}", change)
        check_refused(attempt, f"must be {name}, not {other}")


def test_pods_of_controllers_are_their_users(
    api: Api, anna: Api, nodes: MakeNodes, home: str, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=MANY)])
    name = find_name(anna)
    mine = tenant(namespaces=[home], users={"label": LABEL})
    for kind in ("Job", "Deployment", "StatefulSet", "DaemonSet", "ReplicationController"):
        anna.post(find_path(kind, home), make_workload(kind, name))
    operator()

    wait_full(api, 5, home)
    assert {pod["metadata"]["labels"][LABEL] for pod in list_pods(api, home)} == {name}
    find_tenant = functools.partial(api.get, f"{TENANTS}/{mine}")
    left = {"running": 4, "pending": 0}
    wait_for(lambda: find_tenant().get("status", {}).get("pods") == left, describe="all pods but the Job's to go on")
