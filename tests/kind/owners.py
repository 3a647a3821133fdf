"""What makes pods: Jobs, Deployments, DaemonSets, as users write them, with the tiny program in their containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2e.objects import SCHEDULER_NAME, make_name
from kind.workloads import make_container

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2e.api import Api, Json

GRACE_SECONDS = 1
"""Not 0: the API would forget a pod while its kubelet still ends it."""
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
DAEMON_SETS = "/apis/apps/v1/namespaces/{}/daemonsets"
STATEFUL_SETS = "/apis/apps/v1/namespaces/{}/statefulsets"
ANY_NODE = [{"operator": "Exists"}]
RESEARCH = {"key": "fairbind.io/dedicated", "operator": "Equal", "value": "research", "effect": "NoSchedule"}


def make_pod_spec(
    requests: Mapping[str, str] | None = None,
    *arguments: str,
    containers: Sequence[Json] | None = None,
    scheduler_name: str = SCHEDULER_NAME,
    **fields: Any,
) -> Json:
    """Return a pod's spec whose one container runs the workload with these arguments; fields: more of the spec."""
    chosen = list(containers) if containers is not None else [make_container(*arguments, requests=requests)]
    return {
        "schedulerName": scheduler_name,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "containers": chosen,
        **fields,
    }


def make_kind_pod(requests: Mapping[str, str] | None = None, *arguments: str, name: str = "", **fields: Any) -> Json:
    """Return a bare pod; fields: as for ``make_pod_spec``."""
    return {"metadata": {"name": name or make_name("pod")}, "spec": make_pod_spec(requests, *arguments, **fields)}


def create_job(api: Api, namespace: str, name: str, count: int, spec: Json, *, parallel: int | None = None) -> None:
    """Make a Job of so many pods, all at once unless told otherwise; pods that fail are replaced."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", **spec}}
    job = {"completions": count, "parallelism": parallel or count, "backoffLimit": count, "template": template}
    api.post(JOBS.format(namespace), {"metadata": {"name": name}, "spec": job})


def create_deployment(api: Api, namespace: str, name: str, replicas: int, spec: Json) -> None:
    """Make a Deployment."""
    labels = {"app": name}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": make_template(labels, spec)}
    api.post(DEPLOYMENTS.format(namespace), {"metadata": {"name": name}, "spec": body})


def create_daemon_set(api: Api, namespace: str, name: str, spec: Json) -> None:
    """Make a DaemonSet."""
    labels = {"app": name}
    body = {"selector": {"matchLabels": labels}, "template": make_template(labels, spec)}
    api.post(DAEMON_SETS.format(namespace), {"metadata": {"name": name}, "spec": body})


def create_stateful_set(api: Api, namespace: str, name: str, replicas: int, spec: Json, *, storage_class: str) -> None:
    """Make a StatefulSet, whose pods are made at once, with a claim `data` for each."""
    labels, asks = {"app": name}, {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": storage_class, **asks}}
    body = {
        "serviceName": name,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": make_template(labels, spec),
        "volumeClaimTemplates": [claim],
    }
    api.post(STATEFUL_SETS.format(namespace), {"metadata": {"name": name}, "spec": body})


def make_template(labels: Mapping[str, str], spec: Json) -> Json:
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def is_job_complete(api: Api, namespace: str, name: str) -> bool:
    """Tell whether a Job has all its completions; a Job that has failed is an error."""
    conditions = api.get(f"{JOBS.format(namespace)}/{name}").get("status", {}).get("conditions") or []
    states = {condition["type"] for condition in conditions if condition["status"] == "True"}
    assert "Failed" not in states, f"the Job {name} failed: {conditions}"
    return "Complete" in states


def is_daemon_set_ready(api: Api, namespace: str, name: str, count: int) -> bool:
    """Tell whether a DaemonSet has ready pods on so many nodes."""
    status = api.get(f"{DAEMON_SETS.format(namespace)}/{name}").get("status", {})
    return bool(status.get("desiredNumberScheduled") == status.get("numberReady") == count)


def count_ready(api: Api, namespace: str, name: str) -> int:
    """Return how many of a Deployment's pods are ready."""
    count: int = api.get(f"{DEPLOYMENTS.format(namespace)}/{name}").get("status", {}).get("readyReplicas", 0)
    return count


def scale(api: Api, namespace: str, name: str, replicas: int) -> None:
    """Change a Deployment's number of pods."""
    api.patch(f"{DEPLOYMENTS.format(namespace)}/{name}", {"spec": {"replicas": replicas}})
