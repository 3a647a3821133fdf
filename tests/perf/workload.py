"""What is placed: pods of 20 shapes from 20 tenants of different weight, the same for every contender.

All pods fit with room, also when they are placed badly: what is compared is speed, and a pod that fits nowhere would
only measure how long somebody waits for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

VOLCANO = "volcano"
"""What its pods name as their scheduler; they name their groups otherwise."""
RUN_LABEL = "fairbind.io/bench-run"
TENANT_LABEL = "fairbind.io/bench-tenant"
TENANT_COUNT = 20
HIGHEST_WEIGHT = 4
MILLI = 1000
KIB, MIB, GIB = 2**10, 2**20, 2**30
UNITS = {"Ki": KIB, "Mi": MIB, "Gi": GIB}

GPU_TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
MEMORY_TOLERATION = {"key": "memory", "operator": "Equal", "value": "big", "effect": "NoSchedule"}


class WorkloadError(ValueError):
    """The pods that were asked for do not fit on the nodes that were asked for."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """What a pod asks for. cpu_milli: milli-CPU; memory_mib: MiB; gpus: devices; where it may go."""

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()

    @property
    def demand(self) -> dict[str, int]:
        """Amounts in base units: milli-CPU, bytes, counts."""
        demand = {"cpu": self.cpu_milli, "memory": self.memory_mib * MIB, "pods": 1}
        return demand | ({"nvidia.com/gpu": self.gpus} if self.gpus else {})


SHAPES = (
    PodShape(50, 64),
    PodShape(100, 128),
    PodShape(100, 256),
    PodShape(150, 512),
    PodShape(200, 256),
    PodShape(250, 512),
    PodShape(250, 1024),
    PodShape(300, 2048),
    PodShape(400, 1024),
    PodShape(500, 512),
    PodShape(500, 2048),
    PodShape(500, 4096),
    PodShape(750, 1024),
    PodShape(1000, 1024),
    PodShape(1000, 2048),
    PodShape(1000, 4096, selector={"fairbind.io/cpu-generation": "9"}),
    PodShape(1500, 3072),
    PodShape(2000, 4096, selector={"topology.kubernetes.io/zone": "zone-a"}),
    PodShape(1000, 49152, tolerations=(MEMORY_TOLERATION,)),
    PodShape(2000, 16384, gpus=1, tolerations=(GPU_TOLERATION,)),
)


@dataclass(frozen=True, slots=True)
class BenchPod:
    """One pod before it is created. group: that it is placed with; group_size: pods in it."""

    namespace: str
    name: str
    shape: PodShape
    group: str = ""
    group_size: int = 0


def make_pods(count: int, run: str, group_size: int = 0) -> list[BenchPod]:
    """Return the pods of one run: tenants in turn, and every tenant has all shapes in turn.

    run: a DNS label; names carry it, because a name that is used again too soon could be mistaken for the old pod.
    group_size: so many of a tenant, one after the other, are a group that starts together; 0: there are no groups.
    """
    pods = []
    for number in range(count):
        tenant = number % TENANT_COUNT
        shape = SHAPES[(number // TENANT_COUNT + 3 * tenant) % len(SHAPES)]
        pods.append(BenchPod(compute_namespace(run, tenant), f"{run}-{number:06d}", shape))
    return _group(pods, group_size) if group_size else pods


def _group(pods: Sequence[BenchPod], size: int) -> list[BenchPod]:
    """Return pods with their groups; the last of a tenant has as many as are left."""
    places = Counter[str]()
    numbers = []
    for pod in pods:
        numbers.append(places[pod.namespace] // size)
        places[pod.namespace] += 1
    sizes = Counter((pod.namespace, number) for pod, number in zip(pods, numbers, strict=True))
    return [
        replace(pod, group=f"g{number}", group_size=sizes[pod.namespace, number])
        for pod, number in zip(pods, numbers, strict=True)
    ]


def compute_namespace(run: str, tenant: int) -> str:
    """Return the name of a tenant's namespace in a run."""
    return f"{run}-t{tenant:02d}"


def make_namespaces(run: str, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the namespaces of one run, one a tenant. labels: more of them."""
    return [
        {"metadata": {"name": compute_namespace(run, tenant), "labels": {TENANT_LABEL: str(tenant), **(labels or {})}}}
        for tenant in range(TENANT_COUNT)
    ]


def make_tenants() -> list[dict[str, Any]]:
    """Return the Tenants, of weights 1 to 4; each claims its namespaces of all runs by their label."""
    return [
        {
            "apiVersion": "fairbind.io/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": f"bench-{tenant:02d}"},
            "spec": {
                "weight": 1 + tenant % HIGHEST_WEIGHT,
                "namespaceSelector": {"matchLabels": {TENANT_LABEL: str(tenant)}},
            },
        }
        for tenant in range(TENANT_COUNT)
    ]


def encode_pod(pod: BenchPod, run: str, scheduler: str) -> bytes:
    """Return the JSON to create a pod with. scheduler: its spec.schedulerName."""
    shape = pod.shape
    requests = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
    resources: dict[str, Any] = {"requests": requests}
    if shape.gpus:
        requests["nvidia.com/gpu"] = str(shape.gpus)
        resources["limits"] = {"nvidia.com/gpu": str(shape.gpus)}
    spec = {
        "schedulerName": scheduler,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": dict(shape.selector),
        "tolerations": [dict(toleration) for toleration in shape.tolerations],
        "containers": [{"name": "main", "image": "none.invalid/none", "resources": resources}],
    }
    metadata: dict[str, Any] = {"name": pod.name, "labels": {RUN_LABEL: run}}
    if pod.group and scheduler == VOLCANO:
        metadata["annotations"] = {"scheduling.k8s.io/group-name": pod.group}
    elif pod.group:
        metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = pod.group
        metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(pod.group_size)}
    return json.dumps({"metadata": metadata, "spec": spec}).encode()


def parse_amount(resource: str, text: str) -> int:
    """Return a quantity of the node shapes in base units: "4" or "500m" cores in milli-CPU, "8Gi" in bytes."""
    if resource == "cpu":
        return int(text[:-1]) if text.endswith("m") else int(text) * MILLI
    for suffix, factor in UNITS.items():
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text)


def compute_room(nodes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return what every node can hold, by name and resource, in base units."""
    return {
        node["metadata"]["name"]: {
            resource: parse_amount(resource, text) for resource, text in node["status"]["allocatable"].items()
        }
        for node in nodes
    }


def assign_in_turn(pods: Sequence[BenchPod], nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a node for every pod, by name: the next node that may take it and has room, round and round.

    This is decided before anything is timed: it stands for a scheduler that costs nothing.
    Raises WorkloadError when a pod fits nowhere.
    """
    free = compute_room(nodes)
    eligible = {id(shape): [node for node in nodes if _may_go(shape, node)] for shape in SHAPES}
    turns: dict[int, Iterator[int]] = {id(shape): _count_round(len(eligible[id(shape)])) for shape in SHAPES}
    assigned = {}
    for pod in pods:
        candidates = eligible[id(pod.shape)]
        for _ in candidates:
            name = candidates[next(turns[id(pod.shape)])]["metadata"]["name"]
            if _take(free[name], pod.shape.demand):
                assigned[pod.name] = name
                break
        else:
            raise WorkloadError(f"{len(pods)} pods do not fit on {len(nodes)} nodes: give more nodes or fewer pods")
    return assigned


def find_overcommitted(
    bound: Mapping[str, str], pods: Sequence[BenchPod], nodes: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the nodes on which the pods that were bound there ask for more than there is."""
    free = compute_room(nodes)
    overcommitted = set()
    for pod in pods:
        node = bound.get(pod.name)
        if node is not None and not _take(free[node], pod.shape.demand):
            overcommitted.add(node)
    return sorted(overcommitted)


def _count_round(length: int) -> Iterator[int]:
    while True:
        yield from range(length)


def _may_go(shape: PodShape, node: Mapping[str, Any]) -> bool:
    labels = node["metadata"]["labels"]
    tolerated = {toleration["key"] for toleration in shape.tolerations}
    is_selected = all(labels.get(key) == value for key, value in shape.selector.items())
    return is_selected and all(taint["key"] in tolerated for taint in node["spec"]["taints"])


def _take(free: dict[str, int], demand: Mapping[str, int]) -> bool:
    if any(free.get(resource, 0) < amount for resource, amount in demand.items()):
        return False
    for resource, amount in demand.items():
        free[resource] -= amount
    return True
