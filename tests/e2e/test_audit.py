"""``fairbind audit`` as somebody who may list and nothing else, on a real control plane."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.conftest import remove
from e2e.objects import POLICIES, TENANTS, make_name, make_pod
from e2e.operators import PROGRAM
from e2e.waiting import wait_for
from e2e.workloads import SMALL, count_bound, create_object, create_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = {
    "": ["pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes"],
    "storage.k8s.io": ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
    "resource.k8s.io": ["resourceclaims", "deviceclasses", "resourceslices"],
    "scheduling.k8s.io": ["podgroups"],
    "scheduling.x-k8s.io": ["podgroups"],
    "scheduling.volcano.sh": ["podgroups"],
    "batch": ["jobs"],
    "fairbind.io": ["tenants", "schedulingpolicies"],
}


def run_audit(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), "audit", f"--kubeconfig={kubeconfig}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def reader(cluster: Cluster, namespace: MakeNamespace) -> Iterator[Callable[..., Path]]:
    """Make a ServiceAccount that may list, except what is left out."""
    made: list[str] = []

    def make(*, but: str = "") -> Path:
        home, name = namespace(), make_name("reader")
        made.append(name)
        account = {"kind": "ServiceAccount", "namespace": home, "name": "default"}
        rules = [
            {"apiGroups": [group], "resources": [kind for kind in kinds if kind != but], "verbs": ["list"]}
            for group, kinds in KINDS.items()
        ]
        cluster.api.post(ROLES, {"metadata": {"name": name}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        cluster.api.post(BINDINGS, {"metadata": {"name": name}, "subjects": [account], "roleRef": role})
        kubeconfig = cluster.service_account_kubeconfig(home, "default")
        with cluster.connect_as(kubeconfig) as client:  # the authorizer learns of a new role a moment later
            wait_for(functools.partial(client.get, "/api/v1/namespaces"), describe=f"{name} to be let in")
        return kubeconfig

    yield make
    for name in made:
        remove(cluster.api, f"{BINDINGS}/{name}")
        remove(cluster.api, f"{ROLES}/{name}")


def test_findings_have_numbers_and_causes(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    reader: Callable[..., Path],
) -> None:
    """One tenant came first and holds nine of twelve cores, one with large pods the rest; the third holds nothing."""
    api = cluster.api
    nodes([make_node(make_name("n"), allocatable={"cpu": "12", "memory": "64Gi", "pods": "110"})])
    spaces = [namespace(), namespace(), namespace()]
    first, late, large = (tenant(namespaces=[space]) for space in spaces)
    running = operator()
    create_pods(api, spaces[0], [make_pod(SMALL) for _ in range(9)])
    create_pods(api, spaces[2], [make_pod({"cpu": "3", "memory": "1Gi"})])
    wait_for(lambda: (count_bound(api, spaces[0]), count_bound(api, spaces[2])) == (9, 1), describe="both to be bound")
    create_pods(api, spaces[0], [make_pod(SMALL) for _ in range(3)])
    create_pods(api, spaces[1], [make_pod(SMALL) for _ in range(12)])
    create_pods(api, spaces[2], [make_pod({"cpu": "3", "memory": "1Gi"})])
    wait_for(
        lambda: running.metrics().total("fairbind_tenant_pending_pods", reason="insufficient") == 16,
        describe="the others to wait",
    )
    kubeconfig = reader()

    done = run_audit(kubeconfig, "--output=json")

    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["policy"], report["compared"]) == ("best-fit-drfh", 3)
    assert report["tenants"][first] == {
        "weight": 1.0,
        "dominantShare": pytest.approx(9 / 12),
        "fairShare": pytest.approx(1 / 3),
        "backlogged": True,
    }
    assert report["shareError"] == pytest.approx(1 / 3)
    envy = {(finding["tenant"], finding["envied"]): finding for finding in report["envy"]}
    assert envy.keys() == {(late, first), (late, large), (large, first)}
    assert envy[late, first] == {
        "tenant": late,
        "envied": first,
        "has": 0.0,
        "couldHave": pytest.approx(9 / 12),
        "cause": "history",
    }
    assert envy[late, large]["cause"] == "indivisible_tasks"  # no more than one task of the other
    assert envy[large, first]["couldHave"] == pytest.approx(6 / 12)  # it wants no more
    violations = {finding["tenant"]: finding for finding in report["sharingIncentiveViolations"]}
    assert violations.keys() == {late}
    assert violations[late]["couldHave"] == pytest.approx(4 / 12)
    assert violations[late]["cause"] == "history"

    table = run_audit(kubeconfig)

    assert (table.returncode, table.stderr) == (0, "")
    assert re.search(rf"^{first} +1 +0\.750 +0\.333 +yes$", table.stdout, flags=re.MULTILINE)
    assert re.search(rf"^{late} +{first} +history +0\.000 +0\.750$", table.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("missing", ["pods", "csinodes", "tenants"])
def test_who_may_not_list_is_told_what(cluster: Cluster, reader: Callable[..., Path], missing: str) -> None:
    assert cluster.api.items("/api/v1/namespaces")
    done = run_audit(reader(but=missing))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"fairbind: {missing}[^\n]+orbidden[^\n]+\n", done.stderr), done.stderr


def test_a_cluster_without_our_crds_is_audited(cluster: Cluster, reader: Callable[..., Path]) -> None:
    """Anybody can look at any cluster, also at one in which kube-scheduler places all pods."""
    api, kubeconfig = cluster.api, reader()
    default = api.get(f"{POLICIES}/default")
    served = {"tenants": TENANTS, "schedulingpolicies": POLICIES}
    missing = {kind: api.get(f"{CRDS}/{kind}.fairbind.io") for kind in served}
    try:
        for kind, path in served.items():
            api.delete(f"{CRDS}/{kind}.fairbind.io")
            wait_for(functools.partial(is_gone, api, path), describe=f"{kind} not to be served")
        done = run_audit(kubeconfig, "--scheduler-name=default-scheduler", "-o", "yaml")
    finally:
        for crd in missing.values():
            make_again(api, CRDS, crd)
        for kind, path in served.items():
            wait_for(functools.partial(api.exists, path), describe=f"{kind} to be served")
        make_again(api, POLICIES, default)

    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout)["policy"] == "best-fit-drfh"
    assert run_audit(kubeconfig).returncode == 0


def is_gone(api: Api, path: str) -> bool:
    return not api.exists(path)


def make_again(api: Api, path: str, item: Json) -> None:
    """Make an object as it was, as soon as that is possible."""
    meta = {key: item["metadata"][key] for key in ("name", "labels", "annotations") if key in item["metadata"]}
    body = {key: part for key, part in item.items() if key != "status"} | {"metadata": meta}
    wait_for(lambda: create_object(api, path, body), describe=f"{meta['name']} to be made again")
