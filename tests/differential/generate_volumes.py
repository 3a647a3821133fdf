"""Claims, volumes and what drivers say of nodes, at random.

They have a source of randomness of their own, so that a seed gives the same nodes and pods with and without volumes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

DRIVERS = ("disk.example.com", "disk.example.com", "share.example.com", "odd.example.com")
NOW, LATE, PLAIN = "now", "late", ""
"""Storage classes: claims bound at once, claims bound once their pod has a node, and none."""
CLAIMS = 6
"""In each namespace."""
OLD = "failure-domain.beta.kubernetes.io"
ZONE_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region", f"{OLD}/zone", f"{OLD}/region")
ZONES = ("a", "b", "a__b", "b__c", "a__", "c", " a __ c ")
KINDS = (
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "volumeattachments",
    "csistoragecapacities",
)
SIZES = ("1Gi", "1Gi", "2Gi", "3Gi")
MODES = (["ReadWriteOnce"], ["ReadWriteMany"], ["ReadWriteOnce", "ReadWriteMany"])


class VolumeGenerator:
    """Draws volumes for pods; what they claim is known when all of them are drawn."""

    def __init__(self, seed: int, namespaces: Iterable[str]) -> None:
        self._random = random.Random(f"volumes {seed}")
        self._has_claims = self._random.random() < 0.8
        self._has_troubles = self._random.random() < 0.5
        self._volumes: list[Json] = []
        self._claims = [
            self._draw_claim(namespace, f"claim-{number}", {})
            for namespace in namespaces
            for number in range(CLAIMS if self._has_claims else 0)
        ]

    def draw_volumes(self, namespace: str, pod: str) -> list[Json]:
        """Return the volumes of a pod, and note the claim of an ephemeral one."""
        draw = self._random
        if not self._has_claims or draw.random() < 0.3:
            return []
        volumes: list[Json] = []
        for number in range(draw.choice((1, 1, 1, 2, 3))):
            name = f"v{number}"
            if draw.random() < 0.15:
                template = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                volumes.append({"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": template}}})
                self._note_ephemeral(namespace, pod, f"{pod}-{name}")
            elif draw.random() < 0.1:
                volumes.append({"name": name, "emptyDir": {}})
            else:
                claim = "missing" if self._is_odd(0.05) else f"claim-{draw.randrange(CLAIMS)}"
                volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        return volumes

    def draw_storage(self, nodes: Sequence[str]) -> dict[str, list[Json]]:
        """Return all objects, by kind."""
        draw = self._random
        classes = [
            {"metadata": {"name": NOW}, "provisioner": DRIVERS[0], "volumeBindingMode": "Immediate"},
            self._draw_late_class(),
        ]
        csi_drivers = [
            {
                "metadata": {"name": driver},
                "spec": {
                    "preventPodSchedulingIfMissing": draw.random() < 0.3,
                    "storageCapacity": draw.random() < 0.8,
                },
            }
            for driver in sorted(set(DRIVERS))
            if draw.random() < 0.7
        ]
        self._volumes += [self._draw_free_volume(f"free-{number}") for number in range(draw.choice((0, 2, 6)))]
        capacities = [self._draw_capacity(f"capacity-{number}") for number in range(draw.choice((0, 2, 5)))]
        csi_nodes = [self._draw_csi_node(node) for node in nodes if draw.random() < 0.8]
        attachments = [
            self._draw_attachment(f"attachment-{number}", nodes) for number in range(draw.choice((0, 0, 3, 8)))
        ]
        attachments = attachments if self._volumes else []
        found = self._claims, self._volumes, classes, csi_nodes, csi_drivers, attachments, capacities
        return dict(zip(KINDS, map(list, found), strict=True))

    def _draw_late_class(self) -> Json:
        draw = self._random
        provisioner = draw.choice((DRIVERS[2], "kubernetes.io/no-provisioner"))
        late: Json = {
            "metadata": {"name": LATE},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        if draw.random() < 0.3:
            zones = {"key": "topology.kubernetes.io/zone", "values": draw.sample(("a", "b", "c"), 2)}
            disk = {"key": "disk", "values": ["ssd", "hdd"]}
            kinds: tuple[list[Json], ...] = ([zones], [zones, disk], [])
            late["allowedTopologies"] = [
                {"matchLabelExpressions": draw.choice(kinds)} for _ in range(draw.choice((1, 2)))
            ]
        return late

    def _draw_free_volume(self, name: str) -> Json:
        """Return a volume that no claim has yet, or that names one."""
        draw = self._random
        labels = {"tier": draw.choice(("gold", "tin"))} if draw.random() < 0.5 else {}
        spec: Json = {"capacity": {"storage": draw.choice(SIZES)}, "accessModes": draw.choice(MODES)}
        spec |= {"storageClassName": draw.choice((LATE, LATE, LATE, NOW)), "local": {"path": "/mnt"}}
        if draw.random() < 0.8:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [self._draw_term()]}}
        if draw.random() < 0.3:
            spec["volumeMode"] = "Block"
        if draw.random() < 0.2 and self._claims:
            meta = draw.choice(self._claims)["metadata"]
            uid = draw.choice((meta["uid"], meta["uid"], "other", ""))
            spec["claimRef"] = {"namespace": meta["namespace"], "name": meta["name"], "uid": uid}
        phase = draw.choice(("Available", "Available", "Available", "Pending", "Released"))
        meta = {"name": name, "labels": labels}
        if draw.random() < 0.05:
            meta |= {"deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["example.com/keep"]}
        return {"metadata": meta, "spec": spec, "status": {"phase": phase}}

    def _draw_capacity(self, name: str) -> Json:
        draw = self._random
        labels = draw.choice(({"topology.kubernetes.io/zone": draw.choice("abc")}, {"disk": "ssd"}, {}))
        capacity: Json = {
            "metadata": {"name": name, "namespace": "kube-system"},
            "storageClassName": draw.choice((LATE, LATE, LATE, NOW)),
            "capacity": draw.choice(("0", "1Gi", "2Gi", "10Gi")),
        }
        if draw.random() < 0.9:
            capacity["nodeTopology"] = {"matchLabels": labels}
        if draw.random() < 0.5:
            capacity["maximumVolumeSize"] = draw.choice(("0", "10Gi"))
        return capacity

    def _draw_claim(self, namespace: str, name: str, meta: Json) -> Json:
        draw = self._random
        claim: Json = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", **meta},
            "spec": {
                "accessModes": ["ReadWriteOncePod" if draw.random() < 0.1 else "ReadWriteMany"],
                "resources": {"requests": {"storage": draw.choice(SIZES)}},
            },
            "status": {"phase": "Bound"},
        }
        storage_class = draw.choice((NOW, PLAIN, LATE, LATE, "gone"))
        if draw.random() < 0.2:
            claim["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": storage_class}
        else:
            claim["spec"]["storageClassName"] = storage_class
        trouble = (
            draw.choice(("unbound", "unbound", "half", "lost", "deleted", "no volume")) if self._is_odd(0.25) else ""
        )
        if storage_class == LATE and draw.random() < 0.4:
            trouble = "unbound"
            self._ask_more(claim)
        if trouble != "unbound":
            claim["spec"]["volumeName"] = "gone" if trouble == "no volume" else self._draw_volume()
        if trouble not in {"unbound", "half"}:
            claim["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
        if trouble == "lost":
            claim["status"]["phase"] = "Lost"
        if trouble == "deleted":
            claim["metadata"] |= {"deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["example.com/keep"]}
        return claim

    def _ask_more(self, claim: Json) -> None:
        """Let a claim without a volume ask for more than a size, or have a volume made for it."""
        draw = self._random
        if draw.random() < 0.5:
            claim["spec"]["selector"] = {"matchLabels": {"tier": "gold"}}
        if draw.random() < 0.2:
            claim["spec"]["volumeMode"] = "Block"
        if draw.random() < 0.15:
            node = f"node-{draw.randrange(8):02}"
            claim["metadata"].setdefault("annotations", {})["volume.kubernetes.io/selected-node"] = node

    def _note_ephemeral(self, namespace: str, pod: str, name: str) -> None:
        if self._is_odd(0.1):
            return
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
        self._claims.append(self._draw_claim(namespace, name, {"ownerReferences": [owner]}))

    def _draw_volume(self) -> str:
        draw = self._random
        name = f"volume-{len(self._volumes)}"
        spec: Json = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]}
        if draw.random() < 0.8:
            spec["csi"] = {"driver": draw.choice(DRIVERS), "volumeHandle": f"handle-{name}"}
        else:
            spec["local"] = {"path": "/mnt"}
        if draw.random() < 0.4:
            terms = [self._draw_term() for _ in range(draw.choice((1, 1, 2)))]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        labels = {key: draw.choice(ZONES) for key in ZONE_LABELS if draw.random() < 0.08}
        self._volumes.append({"metadata": {"name": name, "labels": labels}, "spec": spec})
        return name

    def _draw_term(self) -> Json:
        draw = self._random
        node = f"node-{draw.randrange(8):02}"
        expressions: tuple[Json, ...] = (
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": draw.sample(("a", "b", "c"), 2)},
            {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["a"]},
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            {"key": "disk", "operator": "Exists"},
            {"key": "gen", "operator": "Gt", "values": ["1"]},
        )
        if draw.random() < 0.1:
            operator = draw.choice(("In", "NotIn"))
            return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]}
        return {"matchExpressions": draw.sample(expressions, draw.choice((1, 1, 2)))}

    def _draw_csi_node(self, node: str) -> Json:
        draw = self._random
        drivers = []
        for driver in sorted(set(DRIVERS)):
            if draw.random() < 0.7:
                count = {"allocatable": {"count": draw.choice((0, 1, 1, 2, 3))}} if draw.random() < 0.5 else {}
                drivers.append({"name": driver, "nodeID": node, "topologyKeys": [], **count})
        return {"metadata": {"name": node}, "spec": {"drivers": drivers}}

    def _draw_attachment(self, name: str, nodes: Sequence[str]) -> Json:
        draw = self._random
        volume = draw.choice(self._volumes)["metadata"]["name"] if self._volumes else "gone"
        spec = {"attacher": draw.choice(DRIVERS), "nodeName": draw.choice(nodes), "source": {}}
        return {"metadata": {"name": name}, "spec": {**spec, "source": {"persistentVolumeName": volume}}}

    def _is_odd(self, chance: float) -> bool:
        """Whether something is wrong with a claim; in most worlds nothing is."""
        return self._has_troubles and self._random.random() < chance
