"""fairbind as it runs in a kind cluster: its pods, its leader, its log and metrics, seen through the API server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2e.api import ApiError
from e2e.checks import is_finished
from e2e.operators import LEASE, NAMESPACE, Metrics
from e2e.waiting import PATIENCE_SECONDS, wait_for
from localplane.plane import CHART, are_crds_served

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.api import Api, Json
    from kindcluster.cluster import Cluster

RELEASE = "fairbind"
REPLICAS = 2
RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}
REPLACED_SECONDS = 600.0
HELM_TIMEOUT_SECONDS = 540
"""Less than a program may take, so that helm can say what it waited for."""
OPEN = '--set-json=networkPolicy.metricsFrom=[{"ipBlock":{"cidr":"0.0.0.0/0"}}]'
"""Metrics are read through the API server's proxy, which comes from another node than most operators'."""
SELECTOR = "app.kubernetes.io/name=fairbind,app.kubernetes.io/component!=test"


@dataclass(frozen=True, slots=True)
class Release:
    """The chart's release `fairbind` in `fairbind-system`, where only pods of the level `restricted` are admitted."""

    cluster: Cluster
    api: Api
    namespace: str = NAMESPACE

    def install(self, *arguments: str, chart: Path | str = CHART, keep_values: bool = False) -> None:
        """Install the chart by helm, or upgrade it to exactly these values, and wait until all replicas are ready.

        arguments: further ones for helm, such as ``--set=policy.name=ps-dsf``. No pods of before stay.
        keep_values: what was set before stays set, as docs/install.md upgrades; else it does not.
        """
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": RESTRICTED}}
        )
        values = "--reset-then-reuse-values" if keep_values else "--reset-values"
        place = [f"--namespace={self.namespace}", values, "--wait", f"--timeout={HELM_TIMEOUT_SECONDS}s"]
        opened = [OPEN] if chart == CHART else []  # an older chart has no such value
        self.cluster.helm("upgrade", "--install", RELEASE, str(chart), *place, *opened, *arguments)
        wait_for(lambda: are_crds_served(self.api), describe="the chart's CRDs to be served")
        # helm takes no notice of pods that end, but they hold room, which the next look at the cluster would count
        wait_for(
            lambda: not any(map(is_leaving, self.pods())), REPLACED_SECONDS, "the old operators to be gone", pause=0.5
        )
        wait_for(self.leader, describe="a leader")

    def clear_interrupted(self) -> None:
        """Uninstall what an interrupted helm left half done: the next one would refuse to touch it."""
        place = [f"--namespace={self.namespace}", "--pending", "--output=json"]
        if json.loads(self.cluster.helm("list", *place)):
            self.uninstall()

    def uninstall(self) -> None:
        """Uninstall the release and wait until its pods are gone."""
        self.cluster.helm("uninstall", RELEASE, f"--namespace={self.namespace}", "--ignore-not-found", "--wait")
        wait_for(lambda: not self.pods(), describe="the operators to end")

    def pods(self) -> list[Json]:
        """Return the operators' pods, without those that have ended for good and stay to be read."""
        pods = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=SELECTOR)
        return [pod for pod in pods if is_leaving(pod) or not is_finished(pod)]

    def leader(self) -> str | None:
        """Return the name of the pod that holds the lease, None when nobody does."""
        try:
            holder: str = self.api.get(LEASE)["spec"].get("holderIdentity") or ""
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return holder.rpartition("_")[0] or None

    def wait_leader(self, *, other_than: str | None = None, timeout: float = PATIENCE_SECONDS) -> str:
        """Wait until a pod that is there and ready (and another than this) leads; return its name."""

        def find() -> str | None:
            name = self.leader()
            ready = {pod["metadata"]["name"] for pod in self.pods() if is_ready(pod)}
            return name if name in ready and name != other_than else None

        return wait_for(find, timeout, "a leader that is ready") or ""

    def wait_apart(self) -> None:
        """Wait until both operators are ready on two nodes; they may share one after a drain, then one moves."""

        def are_apart() -> bool:
            pods = self.pods()
            if [*map(is_ready, pods)] != [True] * REPLICAS:
                return False
            if len({pod["spec"]["nodeName"] for pod in pods}) == REPLICAS:
                return True
            leader = self.leader()
            standby = next(name for pod in pods if (name := pod["metadata"]["name"]) != leader)
            self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{standby}")
            return False

        wait_for(are_apart, REPLACED_SECONDS, "two operators that are ready on two nodes", pause=0.5)

    def metrics(self, pod: str | None = None) -> Metrics:
        """Scrape a pod's metrics (the leader's when None) through the API server's proxy, as its probes ask it."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        name = pod or self.wait_leader()
        probe = self.api.get(f"{pods}/{name}")["spec"]["containers"][0]["livenessProbe"]["httpGet"]
        scheme = "https:" if probe.get("scheme") == "HTTPS" else ""
        return Metrics(self.api.get(f"{pods}/{scheme}{name}:8080/proxy/metrics"))

    def log(self, pod: str, lines: int = 40) -> str:
        """Return the end of a pod's log."""
        text: str = self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log", tailLines=lines)
        return text


def is_ready(pod: Json) -> bool:
    """Tell whether a pod is ready and not on its way out."""
    conditions = pod["status"].get("conditions") or []
    is_told_ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
    return is_told_ready and not is_leaving(pod)


def is_leaving(pod: Json) -> bool:
    """Tell whether a pod is on its way out."""
    return "deletionTimestamp" in pod["metadata"]
