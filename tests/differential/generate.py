"""Clusters and pods at random, from a seed: few values of everything, so that they meet.

A seed always gives the same cluster. What is generated is what people write; the API server's defaults come later
(`oracle.create`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from differential.generate_volumes import VolumeGenerator

Json = dict[str, Any]
Item = TypeVar("Item")

SCHEDULER = "fairbind"
OTHER_SCHEDULER = "default-scheduler"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
RACK = "example.com/rack"
GPU = "example.com/gpu"
HUGE_PAGES = "hugepages-2Mi"
NAMESPACES = {
    "red": {"team": "red", "stage": "live"},
    "blue": {"team": "blue", "stage": "live"},
    "green": {"team": "green"},
    "kube-system": {},
}
LABELS = {
    "disk": ("ssd", "hdd", ""),
    "gen": ("1", "2", "3", "10", "007", "x1", "9223372036854775808"),
    "arch": ("amd64", "arm64"),
    RACK: ("r1", "r2", "r3"),
    ZONE: ("a", "b", "c"),
}
POD_LABELS = {"app": ("web", "db", "job"), "tier": ("front", "back"), "rev": ("1", "2")}
TAINT_KEYS = ("dedicated", "gpu", "spot", "node.kubernetes.io/disk-pressure")
TAINT_VALUES = ("", "red", "blue")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
CPU = ("0", "10m", "100m", "250m", "0.5", "1", "1500m", "2", "3", "1e-2", "1.0005")
MEMORY = ("0", "64Mi", "128974848", "129e6", "256M", "1Gi", "1.5Gi", "3Gi", "500m")
STORAGE = ("0", "100Mi", "1Gi", "5Gi")
ADDRESSES = ("", "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::1", "::")
PORTS = (80, 443, 8080)
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WHEN = "whenUnsatisfiable"
READY = {"type": "Ready"}
DECLARED = ("InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits", "SomethingElse")
"""Features of kubelets: one that pods need to be placed, one on which only resizes depend, and an unknown one."""
RESTART_ALL = {
    "restartPolicy": "Never",
    "restartPolicyRules": [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}},
    ],
}
PROTOCOLS = ("TCP", "TCP", "UDP", "SCTP")
IMAGES = ("registry.example/a:1", "registry.example/b:1", "registry.example/c:1", "registry.example:5000/d", "e", "e:2")
LISTED_IMAGES = tuple(name if ":" in name.rpartition("/")[2] else f"{name}:latest" for name in IMAGES)
"""As kubelets list them: always with a tag."""
MEGABYTE = 1024 * 1024
IMAGE_SIZES = (1, 20 * MEGABYTE, 90 * MEGABYTE, 777 * MEGABYTE, 3_333_333_333, 25 * 1024 * MEGABYTE)
"""Below what counts, between the bounds, and above them on one node of many."""


@dataclass(frozen=True, slots=True)
class World:
    """A cluster, and pods that wait in it, which are to be created first. storage: objects about volumes, by kind."""

    seed: int
    nodes: tuple[Json, ...]
    namespaces: tuple[Json, ...]
    pods: tuple[Json, ...]
    asked: tuple[Json, ...]
    storage: Mapping[str, Sequence[Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Features:
    """What pods may carry. spread, affinity: hard constraints about other pods, of those that wait. volumes: claims.

    wishes: soft constraints about other pods, also of those that are placed, and more of those about nodes; and images.
    """

    spread: bool = False
    affinity: bool = False
    volumes: bool = False
    wishes: bool = False


class Generator:
    """Draws objects. Names are counted."""

    def __init__(self, seed: int, features: Features) -> None:
        self._random = random.Random(seed)
        self._features = features
        self._volumes = VolumeGenerator(seed, NAMESPACES) if features.volumes else None
        self._images = random.Random(f"images of {seed}") if features.wishes else None
        self._software = random.Random(f"software of {seed}")
        self._pods = 0
        self._density = 0.0

    def draw_world(self, seed: int, *, most_nodes: int, asked: int, least_nodes: int | None = None) -> World:
        """Return a world. least_nodes: None: it may have one node, and often has few."""
        draw = self._random
        if least_nodes is None:
            count = draw.choice((1, draw.randint(2, 8), draw.randint(2, max(2, most_nodes))))
        else:
            count = draw.randint(least_nodes, most_nodes)
        self._density = draw.choice((0.15, 0.3, 0.5))
        nodes = [self._draw_node(f"node-{number:02}") for number in range(min(count, most_nodes))]
        names = [node["metadata"]["name"] for node in nodes]
        placed = [self._draw_placed(names) for _ in range(draw.randint(0, 4 * len(nodes)))]
        promised = [self._draw_promised(names) for _ in range(draw.choice((0, 0, 0, 1, 3)))]
        waiting = [self.draw_waiting() for _ in range(asked)]
        namespaces = [{"metadata": {"name": name, "labels": dict(of)}} for name, of in NAMESPACES.items()]
        storage = {} if self._volumes is None else self._volumes.draw_storage(names)
        return World(seed, tuple(nodes), tuple(namespaces), (*placed, *promised), tuple(waiting), storage)

    # --- nodes ---

    def _draw_node(self, name: str) -> Json:
        draw = self._random
        labels = {key: draw.choice(values) for key, values in LABELS.items() if draw.random() < 0.75}
        if draw.random() < 0.95:
            labels[HOSTNAME] = name
        allocatable = {
            "cpu": draw.choice(("0", "500m", "2", "4", "8", "3920m", "15.9")),
            "memory": draw.choice(("512Mi", "2Gi", "8Gi", "16000000Ki", "9e9")),
            "pods": draw.choice(("0", "2", "5", "20", "110")),
        }
        if self._happens(0.6):
            allocatable["ephemeral-storage"] = draw.choice(("0", "1Gi", "20Gi"))
        if self._happens(0.3):
            allocatable[GPU] = draw.choice(("0", "1", "4"))
        if self._happens(0.2):
            allocatable[HUGE_PAGES] = draw.choice(("0", "64Mi", "1Gi"))
        spec, ready = self._draw_standing()
        status = {"allocatable": allocatable, "capacity": dict(allocatable), "conditions": [READY | {"status": ready}]}
        if self._images is not None and (images := draw_node_images(self._images)):
            status["images"] = images
        status["declaredFeatures"] = [name for name in DECLARED if self._software.random() < 0.75]
        return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": spec, "status": status}

    def _draw_standing(self) -> tuple[Json, str]:
        """Return taints and cordon, and the status of the condition Ready."""
        draw = self._random
        taints = [self._draw_taint() for _ in range(draw.choice((0, 0, 0, 1, 1, 2)))]
        spec: Json = {}
        ready = "True"
        if self._happens(0.1):
            spec["unschedulable"] = True
            if self._happens(0.8):
                taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        if self._happens(0.1):
            ready, which = draw.choice((("False", "not-ready"), ("Unknown", "unreachable")))
            effects = draw.choice((("NoSchedule",), ("NoSchedule", "NoExecute"), ("NoExecute",), ()))
            taints.extend({"key": f"node.kubernetes.io/{which}", "effect": effect} for effect in effects)
        unique = {(taint["key"], taint["effect"]): taint for taint in taints}
        return {**spec, **({"taints": list(unique.values())} if unique else {})}, ready

    def _draw_taint(self) -> Json:
        draw = self._random
        taint = {"key": draw.choice(TAINT_KEYS), "effect": draw.choice(EFFECTS)}
        value = draw.choice(TAINT_VALUES)
        return {**taint, "value": value} if value else taint

    # --- pods ---

    def draw_waiting(self) -> Json:
        """Return a pod that fairbind is asked for."""
        return self._draw_pod(self._draw_waiting_spec(), SCHEDULER)

    def _draw_placed(self, names: Sequence[str]) -> Json:
        draw = self._random
        spec = self._draw_waiting_spec() if self._happens(0.5) else {**self._draw_resources()}
        if self._happens(0.4):
            spec.setdefault("affinity", {})["podAntiAffinity"] = self._draw_pod_affinity()
        spec["nodeName"] = draw.choice((*names, "gone")) if self._happens(0.05) else draw.choice(names)
        pod = self._draw_pod(spec, draw.choice((SCHEDULER, OTHER_SCHEDULER)))
        pod["status"] = self._draw_status(pod)
        if self._happens(0.05):
            pod["metadata"] |= {"deletionTimestamp": "2026-01-02T00:00:00Z", "deletionGracePeriodSeconds": 30}
        return pod

    def _draw_promised(self, names: Sequence[str]) -> Json:
        """Return a pod that another scheduler has made room for on a node."""
        spec = self._draw_resources()
        if self._happens(0.4):
            spec["affinity"] = {"podAntiAffinity": self._draw_pod_affinity()}
        pod = self._draw_pod(spec, OTHER_SCHEDULER)
        pod["status"] = {"phase": "Pending", "nominatedNodeName": self._random.choice(names)}
        return pod

    def _draw_status(self, pod: Json) -> Json:
        draw = self._random
        status: Json = {"phase": draw.choice(("Running",) * 16 + ("Pending", "Succeeded", "Failed"))}
        if status["phase"] == "Running" and self._happens(0.3):
            container = pod["spec"]["containers"][0]
            held = {"cpu": draw.choice(CPU[1:]), "memory": draw.choice(MEMORY[1:-1])}
            allocated = {"cpu": draw.choice(CPU[1:]), "memory": draw.choice(MEMORY[1:-1])}
            state: Json = {"name": container["name"], "resources": {"requests": held}}
            if self._happens(0.5):
                state["allocatedResources"] = allocated
            status["containerStatuses"] = [state]
            if draw.random() < 0.5:
                reason = draw.choice(("Infeasible", "Deferred"))
                status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        return status

    def _draw_pod(self, spec: Json, scheduler: str) -> Json:
        draw = self._random
        self._pods += 1
        name = f"pod-{self._pods:03}"
        priority = draw.choice((0, 0, 10, 1000))
        labels = {key: draw.choice(values) for key, values in POD_LABELS.items() if draw.random() < 0.7}
        namespace = draw.choice(tuple(NAMESPACES)[:3] if scheduler == SCHEDULER else tuple(NAMESPACES))
        if self._volumes is not None and (volumes := self._volumes.draw_volumes(namespace, name)):
            spec = {**spec, "volumes": volumes}
        return {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": labels,
            },
            "spec": {"schedulerName": scheduler, "priority": priority, **spec},
            "status": {"phase": "Pending"},
        }

    def _draw_waiting_spec(self) -> Json:
        spec = self._draw_resources()
        if self._happens(0.3):
            spec["nodeSelector"] = self._draw_pairs(LABELS, self._random.choice((1, 1, 2)))
        if self._happens(0.5):
            spec["tolerations"] = [self._draw_toleration() for _ in range(self._random.choice((1, 1, 2, 4)))]
        affinity: Json = {}
        if self._happens(0.5):
            affinity["nodeAffinity"] = self._draw_node_affinity()
        if self._features.affinity:
            for kind in ("podAffinity", "podAntiAffinity"):
                if self._happens(0.3):
                    affinity[kind] = self._draw_pod_affinity()
        if affinity:
            spec["affinity"] = affinity
        if self._features.spread and self._happens(0.5):
            spec["topologySpreadConstraints"] = self._draw_spread()
        if self._images is not None:
            self._add_wishes(spec)
            use_images(self._images, spec)
        return self._add_need(spec)

    def _add_need(self, spec: Json) -> Json:
        """Let one pod in six need a feature of its kubelet."""
        if self._images is None and self._software.random() < 1 / 6:
            containers = [*spec["containers"], *spec.get("initContainers", ())]
            self._software.choice(containers).update(RESTART_ALL)
        return spec

    def _add_wishes(self, spec: Json) -> None:
        """Give a pod soft wishes, beside what it has."""
        draw, affinity = self._random, spec.get("affinity", {})
        for kind in ("podAffinity", "podAntiAffinity"):
            if draw.random() < 0.35:
                terms = [self._draw_pod_term() for _ in range(draw.choice((1, 1, 2, 3)))]
                weighted = [{"weight": draw.choice((1, 5, 50, 100)), "podAffinityTerm": term} for term in terms]
                affinity.setdefault(kind, {})[PREFERRED] = weighted
        if draw.random() < 0.4:
            wishes = [
                {"weight": draw.choice((1, 7, 50, 100)), "preference": self._draw_node_term()}
                for _ in range(draw.choice((1, 2, 3)))
            ]
            affinity.setdefault("nodeAffinity", {})[PREFERRED] = [wish for wish in wishes if wish["preference"]]
        if affinity:
            spec["affinity"] = affinity
        if draw.random() < 0.5:
            drawn = [constraint | {"whenUnsatisfiable": "ScheduleAnyway"} for constraint in self._draw_spread()]
            known = [each for each in spec.get("topologySpreadConstraints", ()) if each[WHEN] != "ScheduleAnyway"]
            soft = {each["topologyKey"]: {key: each[key] for key in each if key != "minDomains"} for each in drawn}
            spec["topologySpreadConstraints"] = [*known, *soft.values()]

    def _draw_resources(self) -> Json:
        draw = self._random
        containers = [self._draw_container(f"c{number}") for number in range(draw.choice((1, 1, 1, 2, 3)))]
        spec: Json = {"containers": containers}
        if self._happens(0.25):
            spec["initContainers"] = [self._draw_init(f"i{number}") for number in range(draw.choice((1, 2, 3)))]
        if self._happens(0.1):
            spec["overhead"] = {"cpu": draw.choice(CPU[1:5]), "memory": draw.choice(MEMORY[1:4])}
        if self._happens(0.1):
            level = {"cpu": draw.choice(("7", "8")), "memory": draw.choice(("20Gi", "21Gi"))}
            spec["resources"] = {draw.choice(("requests", "limits")): level}
        return spec

    def _draw_container(self, name: str) -> Json:
        draw = self._random
        requests: Json = {}
        if self._happens(0.7):
            requests["cpu"] = draw.choice(CPU)
        if self._happens(0.7):
            requests["memory"] = draw.choice(MEMORY)
        if self._happens(0.15):
            requests["ephemeral-storage"] = draw.choice(STORAGE)
        limits: Json = {}
        if self._happens(0.1):
            limits[GPU] = draw.choice(("0", "1", "2"))
        if self._happens(0.08):
            limits[HUGE_PAGES] = draw.choice(("2Mi", "64Mi"))
            requests.setdefault("cpu", "100m")
        if self._happens(0.1):
            limits["cpu"] = "6"
        container: Json = {"name": name, "image": f"registry.example/{draw.choice('abc')}:1"}
        if requests or limits:
            container["resources"] = {
                **({"requests": requests} if requests else {}),
                **({"limits": limits} if limits else {}),
            }
        if self._happens(0.2):
            unique = {(port["hostPort"], port["protocol"], port.get("hostIP")): port for port in self._draw_ports()}
            container["ports"] = list(unique.values())
        return container

    def _draw_ports(self) -> list[Json]:
        draw = self._random
        ports = []
        for _ in range(draw.choice((1, 1, 2))):
            port = draw.choice(PORTS)
            address = draw.choice(ADDRESSES)
            ports.append(
                {"containerPort": port, "hostPort": port, "protocol": draw.choice(PROTOCOLS)}
                | ({"hostIP": address} if address else {})
            )
        return ports

    def _draw_init(self, name: str) -> Json:
        container = self._draw_container(name)
        return {**container, "restartPolicy": "Always"} if self._happens(0.4) else container

    # --- selectors ---

    def _draw_pairs(self, source: dict[str, tuple[str, ...]], count: int) -> dict[str, str]:
        keys = self._random.sample(sorted(source), count)
        return {key: self._random.choice(source[key]) for key in keys}

    def _draw_toleration(self) -> Json:
        draw = self._random
        if draw.random() < 0.1:
            return {"operator": "Exists", **({"effect": draw.choice(EFFECTS)} if draw.random() < 0.3 else {})}
        keys = (
            *TAINT_KEYS,
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/unschedulable",
        )
        toleration: Json = {"key": draw.choice(keys)}
        if draw.random() < 0.4:
            toleration["operator"] = "Exists"
        else:
            toleration |= draw.choice(({}, {"operator": "Equal"}))
            value = draw.choice(TAINT_VALUES)
            toleration |= {"value": value} if value else {}
        effect = draw.choice(("", *EFFECTS))
        return {**toleration, "effect": effect} if effect else toleration

    def _draw_node_affinity(self) -> Json:
        draw = self._random
        affinity: Json = {}
        if draw.random() < 0.8:
            terms = [self._draw_node_term() for _ in range(draw.choice((1, 1, 2)))]
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if draw.random() < 0.3:
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": draw.choice((1, 50, 100)), "preference": self._draw_node_term()}
            ]
        return affinity

    def _draw_node_term(self) -> Json:
        draw = self._random
        term: Json = {}
        if draw.random() < 0.85:
            term["matchExpressions"] = [self._draw_node_expression() for _ in range(draw.choice((1, 1, 1, 2)))]
        if draw.random() < 0.3:
            names = [f"node-{draw.randint(0, 9):02}"]
            operator = draw.choice(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
        return term

    def _draw_node_expression(self) -> Json:
        draw = self._random
        if draw.random() < 0.2:
            bound = draw.choice(("0", "2", "007", "9", "x1", "9223372036854775807"))
            return {"key": "gen", "operator": draw.choice(("Gt", "Lt")), "values": [bound]}
        return self._draw_expression(LABELS)

    def _draw_expression(self, source: dict[str, tuple[str, ...]]) -> Json:
        draw = self._random
        key = draw.choice(sorted(source))
        operator = draw.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        if operator in {"Exists", "DoesNotExist"}:
            return {"key": key, "operator": operator}
        values = draw.sample(source[key], draw.randint(1, min(2, len(source[key]))))
        return {"key": key, "operator": operator, "values": values}

    def _draw_selector(self) -> Json:
        draw = self._random
        if draw.random() < 0.1:
            return {}
        if draw.random() < 0.6:
            return {"matchLabels": self._draw_pairs(POD_LABELS, draw.choice((1, 1, 2)))}
        return {"matchExpressions": [self._draw_expression(POD_LABELS)]}

    def _draw_pod_affinity(self) -> Json:
        """Return hard terms about other pods."""
        terms = [self._draw_pod_term() for _ in range(self._random.choice((1, 1, 2)))]
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def _draw_pod_term(self) -> Json:
        draw = self._random
        term: Json = {"topologyKey": draw.choice((ZONE, HOSTNAME, HOSTNAME, RACK))}
        if draw.random() < 0.95:
            term["labelSelector"] = self._draw_selector()
        if draw.random() < 0.3:
            term["namespaces"] = draw.sample(sorted(NAMESPACES), draw.choice((1, 2)))
        if draw.random() < 0.2:
            selectors: tuple[Json, ...] = (
                {},
                {"matchLabels": {"team": "red"}},
                {"matchExpressions": [{"key": "stage", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["live"]}]},
            )
            term["namespaceSelector"] = draw.choice(selectors)
        if draw.random() < 0.15 and "labelSelector" in term:
            term[draw.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
        return term

    def _draw_spread(self) -> list[Json]:
        draw = self._random
        unique: dict[tuple[str, str], Json] = {}
        for _ in range(draw.choice((1, 1, 2))):
            constraint: Json = {
                "topologyKey": draw.choice((ZONE, ZONE, HOSTNAME, RACK)),
                "maxSkew": draw.choice((1, 1, 2, 5)),
                "whenUnsatisfiable": draw.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            }
            if draw.random() < 0.95:
                constraint["labelSelector"] = self._draw_selector()
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" and draw.random() < 0.3:
                constraint["minDomains"] = draw.choice((1, 2, 3, 5))
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if draw.random() < 0.3:
                    constraint[policy] = draw.choice(("Honor", "Ignore"))
            if draw.random() < 0.2 and "labelSelector" in constraint:
                constraint["matchLabelKeys"] = ["rev"]
            unique[constraint["topologyKey"], constraint["whenUnsatisfiable"]] = constraint
        return list(unique.values())

    def _happens(self, chance: float) -> bool:
        """Whether something rare happens: a world has much of all that is rare, or little."""
        return self._random.random() < chance * 2 * self._density


def draw_node_images(draw: random.Random) -> list[Json]:
    """Return images as a kubelet lists them, with a digest beside the tag."""
    return [
        {
            "names": [f"registry.example/any@sha256:{LISTED_IMAGES.index(name)}", name],
            "sizeBytes": draw.choice(IMAGE_SIZES),
        }
        for name in draw.sample(LISTED_IMAGES, draw.choice((0, 0, 1, 2, 4)))
    ]


def use_images(draw: random.Random, spec: Json) -> None:
    """Give the containers of a pod images, and some pods volumes that are images."""
    names = (*IMAGES, "registry.example/any@sha256:0", "unknown:1")
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container["image"] = draw.choice(names)
    if draw.random() < 0.2:
        images = [draw.choice(names) for _ in range(draw.choice((1, 2)))]
        volumes = [{"name": f"image-{number}", "image": {"reference": name}} for number, name in enumerate(images)]
        spec["volumes"] = volumes
