"""Volumes of a case: each pod of a step has a claim of its own, bound to a volume of its own.

As in scheduler_perf, both name each other from the start. Unlike there, the cluster's own controller binds them.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""A claim with this is taken for bound, and for lost where its volume does not say so; here it is about to be bound."""


def bind_volume(volume: Json, claim: Json, namespace: str, index: int) -> tuple[Json, Json]:
    """Return what a volume and a claim are made of, named and bound to each other. index: of the pod in its step.

    >>> done = {"annotations": {BIND_COMPLETED: "true"}}
    >>> volume, claim = bind_volume({"spec": {"csi": {"driver": "d"}}}, {"metadata": done, "spec": {}}, "a", 3)
    >>> volume["metadata"]["name"], volume["spec"]["csi"]["volumeHandle"], volume["spec"]["claimRef"]["name"]
    ('a-vol-3', 'a-vol-3', 'pvc-3')
    >>> claim
    {'metadata': {'annotations': {}, 'name': 'pvc-3'}, 'spec': {'volumeName': 'a-vol-3'}}
    """
    name, claim_name = f"{namespace}-vol-{index}", f"pvc-{index}"
    source = {**volume["spec"], "csi": {**volume["spec"]["csi"], "volumeHandle": name}}
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name}
    return (
        {**_name(volume, name), "spec": {**source, "claimRef": reference}},
        {**_name(claim, claim_name), "spec": {**claim["spec"], "volumeName": name}},
    )


def mount_claim(pod: Json, index: int) -> None:
    """Let a pod use the claim of its number, and no other volume."""
    pod["spec"]["volumes"] = [{"name": "vol", "persistentVolumeClaim": {"claimName": f"pvc-{index}"}}]


def allow_volumes(node: Json, strategy: Json) -> None:
    """Put how many volumes a node may have, and whatever else a step says of it, into its status."""
    node["status"]["allocatable"] = {**node["status"]["allocatable"], **strategy["nodeAllocatable"]}


def make_csi_node(name: str, strategy: Json) -> Json:
    """Return what tells of a node how many volumes of each driver it may have.

    >>> make_csi_node("n", {"csiNodeAllocatable": {"d": {"count": 39}}})["spec"]["drivers"]
    [{'name': 'd', 'nodeID': 'n', 'allocatable': {'count': 39}}]
    """
    allowed = strategy["csiNodeAllocatable"]
    drivers = [{"name": driver, "nodeID": name, "allocatable": dict(limit)} for driver, limit in allowed.items()]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def _name(thing: Json, name: str) -> Json:
    metadata = thing.get("metadata", {})
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != BIND_COMPLETED}
    return {**thing, "metadata": {**metadata, "name": name, "annotations": annotations}}
