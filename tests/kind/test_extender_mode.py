"""Extender mode on kubelets: a kube-scheduler beside kind's own asks the operators that the chart installs.

It is the node's own kube-scheduler image, as a static pod on the control plane, and is started with what the chart's
ConfigMap says. Kind's own one goes on as it is, so that pods of others, the operators' too, never wait for their turn.
"""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.conftest import remove
from e2e.turns import check_shares
from e2e.waiting import wait_for
from e2e.workloads import create_pods, find_bound, list_pods
from kind.judge import find_refusals, is_running
from kind.owners import make_kind_pod
from kind.workloads import make_container
from localplane.certificates import Authority, KeyPair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant
    from kind.release import Release
    from kindcluster.cluster import Cluster

SCHEDULER = "asking-scheduler"
SECRET = "fairbind-extender"
ADDRESS = "10.96.201.1"
"""Of the Service: static pods resolve no names of the cluster."""
HOST = "fairbind-extender.fairbind-system.svc"
FOLDER = "/etc/kubernetes/fairbind"
MANIFESTS = "/etc/kubernetes/manifests"
KINDS_OWN = f"{MANIFESTS}/kube-scheduler.yaml"
OURS = f"{MANIFESTS}/{SCHEDULER}.yaml"
PORT = 10269
SLOT = "example.com/slot"
SLOTS = 16
WEIGHTS = (1, 3)
PATIENCE_SECONDS = 600.0


def make_secret(namespace: str, authority: Authority, server: KeyPair) -> Json:
    """Return the Secret that the chart wants in extender mode."""
    files = {"tls.crt": server.certificate, "tls.key": server.key, "ca.crt": authority.certificate}
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": namespace},
        "data": encoded,
    }


@pytest.fixture
def authority() -> Authority:
    """Who signs the certificates of both sides."""
    return Authority()


@pytest.fixture
def asked(fairbind_installed: Release, api: Api, authority: Authority) -> Iterator[Release]:
    """The release in extender mode, and as it was after the test."""
    release = fairbind_installed
    release.cluster.apply(make_secret(release.namespace, authority, authority.issue_server(HOST, [HOST])))
    values = {
        "mode": "extender",
        "extender.tlsSecretName": SECRET,
        "extender.clusterIP": ADDRESS,
        "extender.schedulerNames": f"{{{SCHEDULER}}}",
    }
    try:
        release.install(*(f"--set={name}={value}" for name, value in values.items()))
        yield release
    finally:
        release.install()
        remove(api, f"/api/v1/namespaces/{release.namespace}/secrets/{SECRET}")


@pytest.fixture
def offer_slots(kind_cluster: Cluster, api: Api) -> Iterator[Callable[[], None]]:
    """A function: a worker offers what only the pods of the test ask for, so that it is known how many fit."""
    path = f"/api/v1/nodes/{kind_cluster.find_worker('large')}/status"
    offer = functools.partial(set_slots, api, path)
    yield functools.partial(offer, str(SLOTS))
    offer(None)


def set_slots(api: Api, path: str, amount: str | None) -> None:
    api.patch(path, {"status": {"capacity": {SLOT: amount}, "allocatable": {SLOT: amount}}})


def find_control_plane(cluster: Cluster) -> str:
    """Return the name of the only node that is no worker."""
    (node,) = set(cluster.nodes()) - set(cluster.workers())
    return node


def make_manifest(text: str) -> Json:
    """Return the static pod of another kube-scheduler. text: the manifest of kind's own."""
    pod: Json = yaml.safe_load(text)
    pod["metadata"] = {"name": SCHEDULER, "namespace": "kube-system", "labels": {"component": SCHEDULER}}
    spec = pod["spec"]
    (container,) = spec["containers"]
    conf = "/etc/kubernetes/scheduler.conf"
    container["command"] = [
        "kube-scheduler",
        f"--config={FOLDER}/config.yaml",
        f"--authentication-kubeconfig={conf}",
        f"--authorization-kubeconfig={conf}",
        "--bind-address=127.0.0.1",
        f"--secure-port={PORT}",
        "--leader-elect=false",  # the lease is that of kind's own
    ]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        container.pop(probe, None)
    container.pop("ports", None)
    container["volumeMounts"].append({"name": "fairbind", "mountPath": FOLDER, "readOnly": True})
    spec["volumes"].append({"name": "fairbind", "hostPath": {"path": FOLDER, "type": "Directory"}})
    return pod


@pytest.fixture
def start_scheduler(
    kind_cluster: Cluster, asked: Release, api: Api, authority: Authority, tmp_path: Path
) -> Iterator[Callable[[], None]]:
    """A function that starts a kube-scheduler which asks; it is gone after the test."""
    node = find_control_plane(kind_cluster)
    client = authority.issue_client("system:kube-scheduler")

    def start() -> None:
        found = api.get(f"/api/v1/namespaces/{asked.namespace}/configmaps/fairbind-extender")
        folder = tmp_path / "fairbind"
        folder.mkdir()
        (folder / "config.yaml").write_text(found["data"]["config.yaml"], encoding="utf-8")
        (folder / "ca.crt").write_bytes(authority.certificate)
        client.write(folder / "tls.crt", folder / "tls.key")
        kind_cluster.docker("exec", node, "rm", "-rf", FOLDER)
        kind_cluster.docker("cp", str(folder), f"{node}:{FOLDER}")
        manifest = tmp_path / "pod.yaml"
        own = kind_cluster.docker("exec", node, "cat", KINDS_OWN)
        manifest.write_text(yaml.safe_dump(make_manifest(own)), encoding="utf-8")
        kind_cluster.docker("cp", str(manifest), f"{node}:/root/{SCHEDULER}.yaml")
        kind_cluster.docker("exec", node, "mv", f"/root/{SCHEDULER}.yaml", OURS)

    try:
        yield start
    finally:
        kind_cluster.docker("exec", node, "rm", "-rf", OURS, FOLDER)
        path = f"/api/v1/namespaces/kube-system/pods/{SCHEDULER}-{node}"
        wait_for(lambda: not api.exists(path), PATIENCE_SECONDS, "the other kube-scheduler to be gone", pause=0.5)


def make_asking_pod() -> Json:
    """Return a pod for the kube-scheduler that asks; it takes a slot."""
    resources = {"requests": {"cpu": "1m", SLOT: "1"}, "limits": {SLOT: "1"}}
    return make_kind_pod(containers=[make_container(resources=resources)], scheduler_name=SCHEDULER)


@pytest.mark.nightly
def test_kube_scheduler_asks_the_leader_and_two_tenants_share_by_weights(
    api: Api,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    offer_slots: Callable[[], None],
    start_scheduler: Callable[[], None],
) -> None:
    """All pods wait before there is a slot: the first tenant's alone would have a turn for each."""
    teams = [namespace() for _ in WEIGHTS]
    for team, weight in zip(teams, WEIGHTS, strict=True):
        tenant(namespaces=[team], weight=weight)
        create_pods(api, team, [make_asking_pod() for _ in range(SLOTS)])
    offer_slots()
    start_scheduler()

    def count_running() -> list[int]:
        return [sum(map(is_running, list_pods(api, team))) for team in teams]

    wait_for(
        lambda: sum(count_running()) == SLOTS,
        PATIENCE_SECONDS,
        lambda: f"{SLOTS} pods that run, not {count_running()}",
        pause=0.5,
    )
    check_shares([len(find_bound(api, team)) for team in teams], WEIGHTS)
    assert find_refusals(api, *teams) == []
