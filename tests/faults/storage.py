"""Volumes and claims of the churn: volumes on the nodes' own disks, and a provisioner that makes others when asked.

What a person or a provisioner would do with volumes that were used is done here, too: they are freed, or deleted.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import urllib3

from e2e.api import Api, ApiError
from e2e.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from e2e.api import Json

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/persistentvolumeclaims"
LOCAL, MADE = "local", "made"
"""Storage classes: of volumes that are there, and of those that are made. Both wait for the first pod of a claim."""
PROVISIONERS = {LOCAL: "kubernetes.io/no-provisioner", MADE: "made.example.com"}
LOCAL_VOLUMES_OF_A_NODE = 2
SELECTED = "volume.kubernetes.io/selected-node"
HOSTNAME = "kubernetes.io/hostname"
LOOK_SECONDS = 0.3
TIMEOUT_SECONDS = 5.0


def make_volume(name: str, storage_class: str, node: str, claim: Json | None = None) -> Json:
    """Return a volume on a node's disk. claim: whom it is for."""
    expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
    spec: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": storage_class,
        "local": {"path": f"/disks/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    if claim is not None:
        spec["claimRef"] = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
    return {"metadata": {"name": name}, "spec": spec}


def make_claim(name: str, storage_class: str) -> Json:
    """Return a claim for any of these volumes."""
    asks = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {"storageClassName": storage_class, **asks}}


def name_claim(item: Json) -> str:
    """Return what a claim, or a reference to one, is known by."""
    return f"{item['namespace']}/{item['name']}"


def find_node(volume: Json) -> str:
    """Return the node of a volume that `make_volume` made."""
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return str(term["matchExpressions"][0]["values"][0])


class Storage:
    """Sees to volumes from a thread of its own, as long as it is not stopped."""

    def __init__(self, kubeconfig: Path, nodes: Sequence[str]) -> None:
        self._api = Api.connect(kubeconfig, timeout_seconds=TIMEOUT_SECONDS)
        self._nodes = nodes
        self._ended = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)

    def start(self) -> None:
        """Make the classes and the volumes that are there, and begin."""
        for name, provisioner in PROVISIONERS.items():
            made = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            self._api.post(CLASSES, made)
        for node in self._nodes:
            for number in range(LOCAL_VOLUMES_OF_A_NODE):
                self._api.post(VOLUMES, make_volume(f"{LOCAL}-{node}-{number}", LOCAL, node))
        self._thread.start()

    @contextlib.contextmanager
    def pausing(self) -> Iterator[None]:
        """Do nothing meanwhile: what was seen before a cluster is restored must not be acted on afterwards."""
        with self._looking:
            yield

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self._thread.join(PATIENCE_SECONDS)
        self._api.close()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with self._looking, contextlib.suppress(ApiError, urllib3.exceptions.HTTPError):
                self._look()

    def _look(self) -> None:
        volumes = list(self._api.items(VOLUMES))
        for claim in find_asking(self._api.items(CLAIMS), volumes):
            meta = claim["metadata"]
            volume = make_volume(f"{MADE}-{meta['uid']}", MADE, meta["annotations"][SELECTED], claim)
            self._api.post(VOLUMES, volume)
        for volume in volumes:
            if volume["status"].get("phase") == "Released":
                path = f"{VOLUMES}/{volume['metadata']['name']}"
                if volume["spec"]["storageClassName"] == LOCAL:
                    self._api.patch(path, {"spec": {"claimRef": None}})
                else:
                    self._api.delete(path)


def find_asking(claims: Iterable[Json], volumes: Iterable[Json]) -> list[Json]:
    """Return the claims for which a volume is to be made on a node that was chosen, and none has been made."""
    known = {volume["metadata"]["name"] for volume in volumes}
    return [
        claim
        for claim in claims
        if claim["spec"]["storageClassName"] == MADE
        and not claim["spec"].get("volumeName")
        and (claim["metadata"].get("annotations") or {}).get(SELECTED)
        and f"{MADE}-{claim['metadata']['uid']}" not in known
    ]


def find_left_behind(pods: Iterable[Json], claims: Iterable[Json], volumes: Iterable[Json]) -> list[str]:
    """Return what was reserved for a pod that is gone, and had no effect: no other pod would ever get it.

    That is a node that stays selected for a claim, and a volume that is kept for one. A claim that has its volume keeps
    it, as it would with kube-scheduler: it is the claim's owner who deletes it.
    """
    users = {
        f"{pod['metadata']['namespace']}/{volume['persistentVolumeClaim']['claimName']}"
        for pod in pods
        for volume in pod["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    }
    by_name: Mapping[str, Json] = {name_claim(claim["metadata"]): claim for claim in claims}
    unbound = {name for name, claim in by_name.items() if not claim["spec"].get("volumeName")}
    found = [
        f"{name}: {by_name[name]['metadata']['annotations'][SELECTED]} stays selected"
        for name in sorted(unbound - users)
        if SELECTED in (by_name[name]["metadata"].get("annotations") or {})
    ]
    for volume in volumes:
        reference = volume["spec"].get("claimRef")
        if reference and volume["status"].get("phase") in {"Available", "Pending", None}:
            name = name_claim(reference)
            if name not in by_name or name in unbound - users:
                found.append(f"{volume['metadata']['name']} stays reserved for {name}")
    return found
