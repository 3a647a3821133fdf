"""The admission policies of extender mode on a real API server, all of them at once, and pods that they judge.

Attempts are dry runs, so one changes nothing for the next one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from e2e.members import check_compiled, check_refused, joined, try_pod, wait_allowed, wait_refused
from e2e.objects import SCHEDULER_NAME, make_name, make_pod
from e2e.test_admission import DEFAULT, ENFORCED, WITHOUT_OPERATOR, serves_mutating_policies
from e2e.test_constraint_budget import make_constrained
from e2e.workloads import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace

ASKING = ("first-asking", "second-asking")
SERVED = (SCHEDULER_NAME, *ASKING)
TEAM = "example.com/team"
CHECKED = (
    "constraints",
    "namespaces",
    "resize",
    *(f"own-{what}" for what in ("status", "bindings", "volumes")),
)


@pytest.fixture(scope="module")
def allowed(api: Api) -> Iterator[str]:
    """A PriorityClass that pods may have."""
    classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", make_name("allowed")
    api.post(classes, {"metadata": {"name": name}, "value": 1000})
    yield name
    api.delete(f"{classes}/{name}")


@pytest.fixture(scope="module", autouse=True)
def extender_mode(cluster: Cluster, api: Api, allowed: str) -> Iterator[None]:
    """The chart in extender mode with every policy, and as it was after the module."""
    admission = {
        "forbid": {"enabled": True, "priorityClassNames": [allowed]},
        "assign": {"enabled": serves_mutating_policies(api)},
        "constraintBudget": {"enabled": True},
        "resize": {"enabled": True},
        "protect": {"enabled": True, "lookUpPods": True},
        "protectedLabels": [TEAM],
    }
    extender = {"tlsSecretName": "unused", "ignorable": True, "schedulerNames": list(ASKING)}
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "extender", "extender": extender, "admission": admission})
    yield
    cluster.install_chart(WITHOUT_OPERATOR)


@pytest.fixture
def enforced(api: Api, namespace: MakeNamespace) -> str:
    """A namespace in which the policies hold, from now on."""
    name = namespace(labels=ENFORCED)
    wait_refused(lambda: try_pod(api, name, make_pod(SMALL, scheduler_name="other")), "fairbind-pods")
    wait_refused(lambda: try_pod(api, name, make_constrained(65, "tolerations")), "fairbind-constraints")
    return name


@pytest.fixture
def member(cluster: Cluster, enforced: str) -> Iterator[Api]:
    """An administrator of that namespace."""
    with joined(cluster, enforced) as member:
        yield member


def make_excessive(scheduler: str, tolerations: int = 65) -> Json:
    """Return a pod with so many tolerations."""
    pod = make_constrained(tolerations, "tolerations")
    pod["spec"]["schedulerName"] = scheduler
    return pod


def test_the_expressions_are_sound(api: Api) -> None:
    """All but those of `forbid`, which name a field that only Kubernetes 1.35 has; its refusals show that it acts."""
    check_compiled(api, *(f"fairbind-{name}" for name in CHECKED))


@pytest.mark.parametrize("scheduler", SERVED)
def test_pods_of_every_scheduler_that_fairbind_serves_are_admitted(
    member: Api, enforced: str, allowed: str, scheduler: str
) -> None:
    for pod in (
        make_pod(SMALL, scheduler_name=scheduler),
        make_pod(SMALL, scheduler_name=scheduler, priorityClassName=allowed),
    ):
        wait_allowed(functools.partial(try_pod, member, enforced, pod))
        assert try_pod(member, enforced, pod)["spec"]["schedulerName"] == scheduler


def test_pods_of_other_schedulers_are_refused_with_those_that_may_be_named(member: Api, enforced: str) -> None:
    attempt = functools.partial(try_pod, member, enforced, make_pod(SMALL, scheduler_name="other"))
    check_refused(attempt, "fairbind-pods", f"must be {' or '.join(SERVED)}, not other")


@pytest.mark.parametrize("scheduler", SERVED)
@pytest.mark.parametrize(
    ("spec", "said"),
    [({"nodeName": "node-1"}, "spec.nodeName must be empty"), ({"priorityClassName": "system-node-critical"}, "class")],
    ids=["a node", "a priority"],
)
def test_pods_of_every_scheduler_may_choose_neither_node_nor_priority(
    member: Api, enforced: str, scheduler: str, spec: dict[str, Any], said: str
) -> None:
    pod = make_pod(SMALL, scheduler_name=scheduler, **spec)
    check_refused(lambda: try_pod(member, enforced, pod), "fairbind-pods", said)


def test_a_pod_that_names_no_scheduler_gets_fairbind(api: Api, member: Api, enforced: str) -> None:
    if not serves_mutating_policies(api):
        pytest.skip("the cluster serves no MutatingAdmissionPolicy")
    pod = make_pod(SMALL, scheduler_name=DEFAULT)

    wait_allowed(lambda: try_pod(member, enforced, pod))
    assert try_pod(member, enforced, pod)["spec"]["schedulerName"] == SCHEDULER_NAME


@pytest.mark.parametrize("scheduler", SERVED)
def test_pods_above_the_budget_are_refused_whoever_asks_about_them(member: Api, enforced: str, scheduler: str) -> None:
    """The operator would let each of them wait for ever."""
    try_pod(member, enforced, make_excessive(scheduler, 64))
    attempt = functools.partial(try_pod, member, enforced, make_excessive(scheduler))
    check_refused(attempt, "fairbind-constraints", "the pod has more than 64 tolerations")


@pytest.mark.usefixtures("enforced")
def test_pods_that_fairbind_does_not_serve_are_left_alone(api: Api, namespace: MakeNamespace) -> None:
    free = namespace()

    try_pod(api, free, make_excessive("other"))
    try_pod(api, free, make_pod(SMALL, scheduler_name=ASKING[0], nodeName="node-1"))
    try_pod(api, "kube-system", make_excessive(ASKING[0]))


def test_the_operator_binds_pods_of_every_scheduler_that_fairbind_serves_and_no_others(
    api: Api, cluster: Cluster, namespace: MakeNamespace
) -> None:
    pods = f"/api/v1/namespaces/{namespace()}/pods"
    made = {name: api.post(pods, make_pod(SMALL, scheduler_name=name))["metadata"] for name in (*SERVED, "other")}
    operator = cluster.connect_as(cluster.operator_kubeconfig())

    def bind(scheduler: str) -> object:
        pod = {"name": made[scheduler]["name"], "uid": made[scheduler]["uid"]}
        target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": pod, "target": target}
        return operator.post(f"{pods}/{pod['name']}/binding", binding, dryRun="All")

    wait_refused(lambda: bind("other"), "fairbind-own-pods", " or ".join(SERVED))
    for scheduler in SERVED:
        wait_allowed(functools.partial(bind, scheduler))
    operator.close()
