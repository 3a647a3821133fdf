"""A cluster with claims and volumes, for tests of the cache."""

from __future__ import annotations

import json
from typing import Any

from cluster.builders import Cluster, Json, make_node, make_pod, next_version

ZONE = "topology.kubernetes.io/zone"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
DRIVER = "disk.example.com"


class VolumeCluster(Cluster):
    """Two nodes in zones a and b, and what is told of volumes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_nodes(*(make_node(zone, labels={ZONE: zone}) for zone in "ab"))
        self.add("storageclasses", "now", provisioner=DRIVER, volumeBindingMode="Immediate")
        self.add("storageclasses", "late", provisioner=DRIVER, volumeBindingMode="WaitForFirstConsumer")

    def add(self, kind: str, name: str, *, is_gone: bool = False, meta: Json | None = None, **parts: Any) -> None:
        namespace = {"namespace": "team"} if kind in {"persistentvolumeclaims", "csistoragecapacities"} else {}
        item = {"metadata": {"name": name, **namespace, "resourceVersion": next_version(), **(meta or {})}, **parts}
        ((resource_type, feed),) = [each for each in self.cache.volume_feeds if each[0].name == kind]
        facts = resource_type.decode_item(json.dumps(item).encode())
        feed.delete(facts) if is_gone else feed.apply(facts)

    def add_volume(self, name: str, zone: str | None = None, **parts: Any) -> None:
        spec: Json = {"csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}"}, **parts}
        if zone is not None:
            terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        self.add("persistentvolumes", name, spec=spec, status={"phase": "Available"})

    def add_free(self, name: str, zone: str | None = None, size: str = "1Gi", **parts: Any) -> None:
        """Add a volume of the class `late` that no claim has."""
        spec = {"storageClassName": "late", "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **parts}
        self.add_volume(name, zone, **spec)

    def add_late_claim(self, name: str, size: str = "1Gi", *, node: str = "", uid: str = "", **spec: Any) -> None:
        """Add a claim that is bound once its pod has a node. node: for which its volume is being made."""
        annotations = {"volume.kubernetes.io/selected-node": node} if node else {}
        asked = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"]}
        self.add(
            "persistentvolumeclaims",
            name,
            meta={"annotations": annotations, "uid": uid or f"uid-{name}"},
            spec={**asked, "resources": {"requests": {"storage": size}}, **spec},
            status={"phase": "Pending"},
        )

    def add_claim(
        self,
        name: str,
        volume: str = "",
        *,
        storage_class: str = "now",
        mode: str = "ReadWriteOnce",
        phase: str = "Bound",
        is_bound: bool = True,
        is_gone: bool = False,
        **meta: Any,
    ) -> None:
        self.add(
            "persistentvolumeclaims",
            name,
            is_gone=is_gone,
            meta={"annotations": BOUND if volume and is_bound else {}, **meta},
            spec={"storageClassName": storage_class, "accessModes": [mode], "volumeName": volume},
            status={"phase": phase},
        )

    def add_csi_node(self, node: str, count: int | None) -> None:
        allocatable = {} if count is None else {"allocatable": {"count": count}}
        self.add("csinodes", node, spec={"drivers": [{"name": DRIVER, **allocatable}]})

    def find_words(self, uid: str = "uid-pod") -> str | None:
        """What a waiting pod says that it has."""
        self.cache.build_snapshot()
        record = self.cache.find_pod(uid)
        assert record is not None
        return record.unsupported


def claiming(name: str = "pod", *claims: str, **spec: Any) -> Json:
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": c}} for number, c in enumerate(claims)]
    return make_pod(name, requests={"cpu": "1"}, volumes=volumes, **spec)
