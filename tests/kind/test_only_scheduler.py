"""A cluster whose kube-scheduler is taken away: fairbind schedules everything, the system's and its own pods too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.api import Api, ApiError
from e2e.waiting import wait_for
from kind.owners import count_ready, create_deployment, make_pod_spec
from kind.release import Release
from kindcluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kindcluster.images import Image

NODE = {"role": "worker", "image": "kindest/node:v1.37.0"}
CONFIG = {
    "kind": "Cluster",
    "apiVersion": "kind.x-k8s.io/v1alpha4",
    "nodes": [{**NODE, "role": "control-plane"}, NODE, NODE],
}
DEFAULT = "default-scheduler"
MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
SOME = {"cpu": "20m", "memory": "32Mi"}
LONG_SECONDS = 600.0
ROLLOUT_SECONDS = 540
"""Less than a program may take, so that kubectl can say what it waited for."""


@pytest.fixture
def alone(images: list[Image], say: Callable[[str], None], tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of its own, because others need theirs as it is.

    Its nodes are stopped for a moment and must get their addresses back. So no test that stops nodes of the common
    cluster may run meanwhile: one worker runs both (tests/sharing.py).
    """
    config = tmp_path / "kind.yaml"
    config.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    with Cluster.make("fairbind-only", config=config, report=say) as cluster:
        cluster.load_images(images)
        yield cluster


def list_owners(cluster: Cluster) -> list[str]:
    """Return kube-system's Deployments and DaemonSets, each with its kind."""
    return cluster.kubectl("get", "deployments,daemonsets", "--namespace=kube-system", "--output=name").split()


def wait_rolled_out(cluster: Cluster, owners: list[str]) -> None:
    """Wait until all of their pods are there and ready."""
    for owner in owners:
        cluster.kubectl("rollout", "status", owner, "--namespace=kube-system", f"--timeout={ROLLOUT_SECONDS}s")


def find_kube_schedulers(api: Api) -> list[str]:
    pods = api.items("/api/v1/namespaces/kube-system/pods", labelSelector="component=kube-scheduler")
    return [pod["metadata"]["name"] for pod in pods]


def is_up(api: Api) -> bool:
    """Tell whether the API server answers."""
    try:
        return bool(api.items("/api/v1/nodes"))
    except ApiError:
        return False


@pytest.mark.nightly
def test_the_system_starts_and_comes_back_without_kube_scheduler(alone: Cluster) -> None:
    with Api.connect(alone.kubeconfig) as api:
        release = Release(alone, api)
        release.install(f"--set=schedulerName={DEFAULT}")
        control_plane = next(name for name in alone.nodes() if name not in alone.workers())
        alone.docker("exec", control_plane, "mv", MANIFEST, "/root/")
        wait_for(lambda: not find_kube_schedulers(api), LONG_SECONDS, "kube-scheduler to be gone", pause=0.5)

        owners = list_owners(alone)
        assert "deployment.apps/coredns" in owners
        assert "daemonset.apps/kube-proxy" in owners
        for owner in owners:
            alone.kubectl("rollout", "restart", owner, "--namespace=kube-system")
        wait_rolled_out(alone, owners)
        create_deployment(api, "default", "web", 4, make_pod_spec(SOME, scheduler_name=DEFAULT))
        wait_for(lambda: count_ready(api, "default", "web") == 4, LONG_SECONDS, "pods that name no scheduler")

        first = {pod["metadata"]["uid"] for pod in release.pods()}
        release.install(f"--set=schedulerName={DEFAULT}", "--set=podAnnotations.turn=second")
        assert first.isdisjoint(pod["metadata"]["uid"] for pod in release.pods())

        alone.restart_nodes()
        wait_for(lambda: is_up(api), LONG_SECONDS, "the API server to be back", pause=0.5)
        release.wait_leader(timeout=LONG_SECONDS)
        wait_rolled_out(alone, owners)
        wait_for(lambda: count_ready(api, "default", "web") == 4, LONG_SECONDS, "the pods of before", pause=0.5)
        create_deployment(api, "default", "later", 2, make_pod_spec(SOME, scheduler_name=DEFAULT))
        wait_for(lambda: count_ready(api, "default", "later") == 2, LONG_SECONDS, "new pods", pause=0.5)
        assert find_kube_schedulers(api) == []
