"""What the tests of gate and extender mode share: teams, the pods of kube-scheduler, and who has how many nodes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import make_name, make_pod
from e2e.test_admission import DEFAULT, WITHOUT_OPERATOR, serves_mutating_policies
from e2e.test_admission_gate import find_gates
from e2e.waiting import wait_for
from e2e.workloads import list_pods
from localplane.extender import Extended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeTenant
    from e2e.operators import Operator

DEVICES = "/apis/resource.k8s.io/v1"
ONE_CORE = {"cpu": "1", "memory": "64Mi"}
TWELVE_CORES = {"cpu": "12", "memory": "64Gi", "pods": "110"}
WEIGHTS = (1, 2, 3)
TOLERANCE = 2


def claim_device_of_nowhere(api: Api, team: str) -> Json:
    """Make a claim of a device that no node has; return the part of a pod's spec that uses it."""
    request = {"name": "one", "exactly": {"deviceClassName": "nowhere", "count": 1}}
    body = {"metadata": {"name": make_name("claim")}, "spec": {"devices": {"requests": [request]}}}
    name = api.post(f"{DEVICES}/namespaces/{team}/resourceclaims", body)["metadata"]["name"]
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


@contextlib.contextmanager
def gating(cluster: Cluster) -> Iterator[None]:
    """Install the chart in gate mode and run kube-scheduler; both are as they were after it."""
    if not serves_mutating_policies(cluster.api):
        pytest.skip("the cluster serves no MutatingAdmissionPolicy")
    plane = cluster.plane
    assert plane is not None
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "gate"})
    plane.start_component("kube-scheduler")
    try:
        yield
    finally:
        plane.stop_component("kube-scheduler")
        cluster.install_chart(WITHOUT_OPERATOR)


@contextlib.contextmanager
def extending(cluster: Cluster, folder: Path, *, ignorable: bool = False) -> Iterator[Extended]:
    """Install the chart in extender mode; it and kube-scheduler are as they were after it. folder: of certificates."""
    plane = cluster.plane
    assert plane is not None
    values = {"tlsSecretName": "unused", "ignorable": ignorable}
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "extender", "extender": values})
    try:
        yield Extended.make(plane, folder)
    finally:
        if "kube-scheduler" in plane.running():
            plane.stop_component("kube-scheduler")
        cluster.install_chart(WITHOUT_OPERATOR)


def wait_gated(api: Api, team: str) -> None:
    """Wait until new pods of a namespace get the gate."""
    path = f"/api/v1/namespaces/{team}/pods"
    wait_for(lambda: find_gates(api.post(path, make_default(), dryRun="All")), describe="the gate to be added")


def has_open_gate(pod: Json) -> bool:
    return not find_gates(pod)


def count(api: Api, teams: Sequence[str], wanted: Callable[[Json], object]) -> list[int]:
    """Return how many such pods each namespace has."""
    return [sum(bool(wanted(pod)) for pod in list_pods(api, team)) for team in teams]


def find_leader(operators: Sequence[Operator]) -> Operator:
    """Wait until one of them leads and return it."""
    wait_for(lambda: any(each.is_leader() for each in operators), describe="a leader")
    return next(each for each in operators if each.is_leader())


def make_default(requests: Mapping[str, str] = ONE_CORE, **fields: Any) -> Json:
    """Return a pod for kube-scheduler."""
    return make_pod(requests, scheduler_name=DEFAULT, **fields)


def make_teams(
    namespace: MakeNamespace,
    tenant: MakeTenant,
    weights: Sequence[int] = WEIGHTS,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the namespaces of tenants with these weights."""
    teams = [namespace(labels=labels) for _ in weights]
    for team, weight in zip(teams, weights, strict=True):
        tenant(namespaces=[team], weight=weight)
    return teams


def count_bound(api: Api, teams: Sequence[str]) -> list[int]:
    """Return how many pods of each namespace have a node; thousands of others are not even sent."""
    return [len(api.items(f"/api/v1/namespaces/{team}/pods", fieldSelector="spec.nodeName!=")) for team in teams]


def wait_bound(api: Api, teams: Sequence[str], count: int) -> list[int]:
    """Wait until so many pods have a node, and return how many of each namespace."""
    wait_for(
        lambda: sum(count_bound(api, teams)) == count,
        describe=lambda: f"{count} bound pods, not {count_bound(api, teams)}",
    )
    return count_bound(api, teams)


def check_shares(bound: Sequence[int], weights: Sequence[int] = WEIGHTS) -> None:
    """What bind mode gives, within two pods."""
    fair = [sum(bound) * weight / sum(weights) for weight in weights]
    assert all(abs(one - other) <= TOLERANCE for one, other in zip(bound, fair, strict=True)), (bound, fair)
