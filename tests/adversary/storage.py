"""Volumes and claims of attackers: those that are bound, and those whose provisioner never answers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from e2e.api import call_many
from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from adversary.stage import Stage
    from localplane.client import Json

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
VOLUMES = "/api/v1/persistentvolumes"
DRIVER = "attacker.example.com"
NEVER, AT_ONCE = "never", "at-once"
"""Storage classes: claims of the first wait for a provisioner that there is none of."""
BIND_SECONDS = 300.0


def find_claims(namespace: str) -> str:
    """Return the path of a namespace's claims."""
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


def make_classes(stage: Stage) -> None:
    """Make both storage classes."""
    for name, mode in ((NEVER, "WaitForFirstConsumer"), (AT_ONCE, "Immediate")):
        stage.api.post(CLASSES, {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode})


def limit_slots(stage: Stage, nodes: Iterable[str], count: int) -> None:
    """Say in the driver's place how many volumes each node attaches."""
    driver = {"name": DRIVER, "topologyKeys": [], "allocatable": {"count": count}}
    made = [{"metadata": {"name": node}, "spec": {"drivers": [{**driver, "nodeID": node}]}} for node in nodes]
    call_many(made, functools.partial(stage.api.post, CSI_NODES))


def make_unbound(stage: Stage, namespace: str, count: int) -> list[str]:
    """Make claims for whose volumes a provisioner would have to come; return their names."""
    return _make_claims(stage, namespace, {make_name("claim"): "" for _ in range(count)}, NEVER, "ReadWriteOnce")


def make_bound(stage: Stage, namespace: str, count: int, mode: str = "ReadWriteOnce") -> list[str]:
    """Make claims and a volume for each, wait until they are bound, and return the claims' names."""
    volumes = {name: f"{namespace}-{name}" for name in (make_name("claim") for _ in range(count))}

    def make_volume(name: str) -> None:
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": AT_ONCE,
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
        }
        stage.api.post(VOLUMES, {"metadata": {"name": volumes[name]}, "spec": spec})

    call_many(list(volumes), make_volume)
    claims = _make_claims(stage, namespace, volumes, AT_ONCE, mode)

    def are_bound() -> bool:
        return all(one["status"].get("phase") == "Bound" for one in stage.api.items(find_claims(namespace)))

    wait_for(are_bound, BIND_SECONDS, "claims to be bound", pause=1.0)
    return claims


def _make_claims(stage: Stage, namespace: str, volumes: Mapping[str, str], storage_class: str, mode: str) -> list[str]:
    spec = {
        "storageClassName": storage_class,
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    made = [
        {"metadata": {"name": name}, "spec": {**spec, **({"volumeName": volume} if volume else {})}}
        for name, volume in volumes.items()
    ]
    call_many(made, functools.partial(stage.api.post, find_claims(namespace)))
    return list(volumes)


def make_claiming_pod(requests: Mapping[str, str], claims: Sequence[str]) -> Json:
    """Return a pod with a volume of each claim."""
    named = enumerate(claims)
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in named]
    return make_pod(requests, volumes=volumes)


def remove_storage(stage: Stage, namespaces: Iterable[str]) -> None:
    """Delete the claims of namespaces whose pods are gone, all volumes, what drivers said, and both classes."""
    for path in (*map(find_claims, namespaces), VOLUMES, CSI_NODES, CLASSES):
        stage.api.delete(path)
