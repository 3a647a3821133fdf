"""A stand-in for Spark's own ``spark-submit`` in cluster mode: it makes the driver's pod, as the operator asks.

Spark is no Go module. The real program makes a pod with the labels, annotations and amounts of its ``--conf``; the
driver in that pod makes the executors, which the exam plays in its place (`make_executors`).
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from localplane.client import ApiClient

if TYPE_CHECKING:
    from e2e.api import Api

Json = dict[str, Any]
LEAST_OVERHEAD_MIB, OVERHEAD = 384, 0.1
CONFIGURATION = "exam.fairbind.io/spark-"
"""Begins annotations of a driver's pod: what the driver would know for its executors."""


def read_configuration(arguments: Sequence[str]) -> dict[str, str]:
    """Return the properties of a command line, with the namespace and the name of the application."""
    pairs = list(itertools.pairwise(arguments))
    found = dict(pair.partition("=")[::2] for flag, pair in pairs if flag == "--conf")
    return found | {flag: word for flag, word in pairs if flag == "--name"}


def find_prefixed(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the properties that begin with a prefix, without it."""
    return {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}


def compute_requests(properties: Mapping[str, str], role: str) -> dict[str, str]:
    """Return what a pod of a role requests: its cores, and its memory with the overhead of the JVM."""
    cores = properties.get(f"spark.kubernetes.{role}.request.cores") or properties.get(f"spark.{role}.cores", "1")
    memory = properties.get(f"spark.{role}.memory", "1g").lower()
    mebibytes = int(memory[:-1]) * (1024 if memory.endswith("g") else 1)
    return {"cpu": cores, "memory": f"{mebibytes + max(LEAST_OVERHEAD_MIB, round(OVERHEAD * mebibytes))}Mi"}


def make_pod(properties: Mapping[str, str], role: str, name: str, labels: Mapping[str, str]) -> Json:
    """Return a pod of a role as Spark makes it."""
    requests = compute_requests(properties, role)
    container = {"name": f"spark-kubernetes-{role}", "image": "spark", "resources": {"requests": requests}}
    prefix = f"spark.kubernetes.{role}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**find_prefixed(properties, f"{prefix}.label."), "spark-role": role, **labels},
            "annotations": find_prefixed(properties, f"{prefix}.annotation."),
        },
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0},
    }


def make_driver(properties: Mapping[str, str]) -> Json:
    """Return the driver's pod; it carries the executors' properties, for the exam."""
    name = properties["spark.kubernetes.driver.pod.name"]
    pod = make_pod(properties, "driver", name, {"spark-app-selector": f"spark-{uuid4().hex}"})
    kept = {key: text for key, text in properties.items() if "executor" in key}
    pod["metadata"]["annotations"] |= {
        f"{CONFIGURATION}{number}": f"{k}={v}" for number, (k, v) in enumerate(kept.items())
    }
    return pod


def make_executors(api: Api, driver: Json, count: int) -> None:
    """Make executors, as a driver does that runs."""
    found = find_prefixed(driver["metadata"]["annotations"], CONFIGURATION).values()
    properties = dict(text.partition("=")[::2] for text in found)
    metadata = driver["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    for number in range(1, count + 1):
        labels = {"spark-app-selector": metadata["labels"]["spark-app-selector"], "spark-exec-id": str(number)}
        name = f"{metadata['name'].removesuffix('-driver')}-exec-{number}"
        pod = make_pod(properties, "executor", name, labels)
        pod["metadata"]["ownerReferences"] = [owner]
        api.post(f"/api/v1/namespaces/{metadata['namespace']}/pods", pod)


def main() -> None:
    """Make the driver's pod."""
    properties = read_configuration(sys.argv[1:])
    namespace = properties["spark.kubernetes.namespace"]
    with ApiClient.from_kubeconfig(Path(os.environ["KUBECONFIG"])) as api:
        api.post(f"/api/v1/namespaces/{namespace}/pods", make_driver(properties))


if __name__ == "__main__":
    main()
