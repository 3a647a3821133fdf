"""What the demo asks of the local cluster: four tenants, their pods, and a stream of them that never ends.

The amounts are chosen so that the picture can be read:

- every tenant always has pods of every kind waiting, so no tenant is below its share for want of work;
- `analytics` has the least weight and asks for the most: first come, first served gives it far too much;
- `web`, `analytics` and `research` may use every node and all hunger for cores, so their weighted shares can be equal;
- `web` is the parent of `shop` and `search`, which share what it gets 2 : 1;
- they ask for different things (cores, memory, GPUs), so their dominant resources differ;
- `vision` has the largest weight but all its pods need a GPU, and of those of one model it may hold a few only. Most of
  the other model's are guaranteed to it. It should hold what it may, and the others should share the rest as if it had
  asked for no more.

Everything is deterministic: pod number n of a tenant is the same in each run. What the same tenants ask of a cluster
with real kubelets is in ``jobs``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

Json = dict[str, Any]

KIND_LABEL = "demo.fairbind.io/kind"
RUN_SECONDS = "fairbind.io/run-seconds"
SCHEDULER_NAME = "fairbind"
OTHER_SCHEDULER_NAME = "default-scheduler"
ENFORCED: Mapping[str, str] = {"fairbind.io/enforce": "true"}
"""Labels of namespaces whose pods get the gate in gate mode."""
GPU = "nvidia.com/gpu"
MODEL_LABEL = "nvidia.com/gpu.product"
"""The label of nodes that tells the model of their GPUs."""
GUARANTEED: Mapping[str, Fraction] = {"T4": Fraction(3, 4)}
LIMITED: Mapping[str, Fraction] = {"A100": Fraction(1, 8)}
"""Parts of all GPUs of a model that are guaranteed to one tenant, and that it may hold at most."""
USUAL_NODES = 60
USUAL_SECONDS = 50
SHORTEST_RUN_SECONDS = 2
FIRST_FILL = 7
"""How many times the usual backlog there is at the start: more than the empty cluster takes."""
LATE_FILL = 4
"""The same for the tenant that comes later."""

GPU_TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
MEMORY_TOLERATION = {"key": "memory", "operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class PodKind:
    """Equal pods. backlog: how many of them wait at any time; on a local cluster for `USUAL_NODES` nodes.

    Within a tenant the oldest pod goes first, so the backlogs are also the proportions in which the kinds run.
    """

    name: str
    requests: Mapping[str, str]
    backlog: int


@dataclass(frozen=True, slots=True)
class DemoTenant:
    """One tenant.

    kinds: none where it is the parent of others, which then have the pods. tolerations: taints that it may ignore.
    scheduler_name: who places its pods. labels: of its namespace. parent: name, empty for a child of the root.
    guarantee, limit: GPUs by model.
    """

    name: str
    weight: int
    kinds: tuple[PodKind, ...]
    tolerations: tuple[Mapping[str, str], ...] = (GPU_TOLERATION, MEMORY_TOLERATION)
    scheduler_name: str = SCHEDULER_NAME
    labels: Mapping[str, str] = field(default_factory=dict)
    parent: str = ""
    guarantee: Mapping[str, int] = field(default_factory=dict)
    limit: Mapping[str, int] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The namespace that belongs to it."""
        return f"team-{self.name}"

    @property
    def has_pods(self) -> bool:
        """Whether it has pods and a namespace of its own."""
        return bool(self.kinds)

    @property
    def is_gated(self) -> bool:
        """Whether its pods wait behind a gate for their turn."""
        return self.scheduler_name != SCHEDULER_NAME


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part. first: from the start, parents before their children. late: comes after a while.

    limited: the one with a guarantee and a limit.
    """

    first: tuple[DemoTenant, ...]
    late: DemoTenant
    limited: DemoTenant

    @property
    def tenants(self) -> tuple[DemoTenant, ...]:
        """All tenants, in the order of coming."""
        return (*self.first, self.late)

    @property
    def top(self) -> tuple[DemoTenant, ...]:
        """The tenants that share the whole cluster; the others share what their parent gets."""
        return tuple(tenant for tenant in self.tenants if not tenant.parent)

    def change(self, function: Callable[[DemoTenant], DemoTenant]) -> Cast:
        """Return the same cast with each tenant changed."""
        return Cast(tuple(map(function, self.first)), function(self.late), function(self.limited))


ANALYTICS = DemoTenant(
    "analytics",
    1,
    (
        PodKind("query", {"cpu": "2", "memory": "24Gi"}, 48),
        PodKind("join", {"cpu": "4", "memory": "48Gi"}, 24),
        PodKind("embed", {"cpu": "4", "memory": "96Gi", GPU: "1"}, 3),
    ),
)
WEB = DemoTenant("web", 2, ())
SHOP = DemoTenant(
    "shop",
    2,
    (
        PodKind("small", {"cpu": "2", "memory": "4Gi"}, 36),
        PodKind("large", {"cpu": "4", "memory": "8Gi"}, 18),
    ),
    parent=WEB.name,
)
SEARCH = DemoTenant(
    "search",
    1,
    (
        PodKind("small", {"cpu": "2", "memory": "4Gi"}, 20),
        PodKind("large", {"cpu": "4", "memory": "8Gi"}, 10),
    ),
    parent=WEB.name,
)
VISION = DemoTenant(
    "vision",
    3,
    (
        PodKind("detect", {"cpu": "2", "memory": "4Gi", GPU: "1"}, 8),
        PodKind("train", {"cpu": "4", "memory": "8Gi", GPU: "1"}, 4),
    ),
    tolerations=(GPU_TOLERATION,),
)
RESEARCH = DemoTenant(
    "research",
    2,
    (
        PodKind("sweep", {"cpu": "2", "memory": "6Gi"}, 56),
        PodKind("solve", {"cpu": "4", "memory": "8Gi"}, 28),
        PodKind("learn", {"cpu": "4", "memory": "96Gi", GPU: "1"}, 3),
    ),
)

CAST = Cast(first=(ANALYTICS, WEB, SHOP, SEARCH, VISION), late=RESEARCH, limited=VISION)


def gate(tenant: DemoTenant) -> DemoTenant:
    """Return the same tenant, whose pods another scheduler places when their gates are opened."""
    return replace(tenant, scheduler_name=OTHER_SCHEDULER_NAME, labels=ENFORCED)


GATED_CAST = CAST.change(gate)


def promise(cast: Cast, nodes: Sequence[Json]) -> Cast:
    """Return the cast whose limited tenant has its guarantee and its limit, as parts of the GPUs of these nodes."""
    gpus = count_gpus(nodes)

    def compute_amounts(parts: Mapping[str, Fraction]) -> dict[str, int]:
        return {model: max(1, int(part * gpus[model])) for model, part in parts.items() if model in gpus}

    def change(tenant: DemoTenant) -> DemoTenant:
        if tenant != cast.limited:
            return tenant
        return replace(tenant, guarantee=compute_amounts(GUARANTEED), limit=compute_amounts(LIMITED))

    return cast.change(change)


def count_gpus(nodes: Sequence[Json]) -> dict[str, int]:
    """Return how many GPUs of each model the nodes have, sorted by model."""
    gpus: dict[str, int] = {}
    for node in nodes:
        model, count = node["metadata"]["labels"].get(MODEL_LABEL), int(node["status"]["allocatable"].get(GPU, "0"))
        if model is not None and count:
            gpus[model] = gpus.get(model, 0) + count
    return dict(sorted(gpus.items()))


class PodStream:
    """Makes the pods, each with a name that was never used and a running time of its own.

    Running times are spread evenly from two seconds to two fifths of ``duration_seconds``: some pods end at any moment,
    and a tenant that arrives after a third of it sees all others' first pods end. The shorter the run, the faster
    they end, so the more of them wait.
    """

    def __init__(self, duration_seconds: float, nodes: int = USUAL_NODES) -> None:
        self._longest_seconds = max(4, round(duration_seconds * 2 / 5))
        self._scale = nodes / USUAL_NODES
        self._haste = max(1.0, USUAL_SECONDS / duration_seconds)
        self._made = dict.fromkeys((tenant.name for tenant in CAST.tenants), 0)
        self.is_lasting = False
        """Whether new pods never end: what stays when the cluster is kept."""

    def make_first(self, tenant: DemoTenant, fill: int) -> list[Json]:
        """Return the pods that a tenant comes with: so many times its usual backlog."""
        return self._make_missing(tenant, {}, fill)

    def make_probe(self, tenant: DemoTenant) -> Json:
        """Return a pod that is not meant to be made."""
        return self._make_pod(tenant, tenant.kinds[0])

    def make_missing(self, tenant: DemoTenant, waiting: Mapping[tuple[str, str], int]) -> list[Json]:
        """Return the pods that fill a tenant's backlog up, of all kinds in turn.

        waiting: how many wait now, by namespace and kind.
        """
        return self._make_missing(tenant, waiting, self._haste)

    def _make_missing(self, tenant: DemoTenant, waiting: Mapping[tuple[str, str], int], fill: float) -> list[Json]:
        missing = {
            kind.name: max(0, self._compute_backlog(kind, fill) - waiting.get((tenant.namespace, kind.name), 0))
            for kind in tenant.kinds
        }
        return [self._make_pod(tenant, kind) for kind in mix(tenant.kinds, missing)]

    def _compute_backlog(self, kind: PodKind, fill: float) -> int:
        return max(1, round(kind.backlog * self._scale * fill))

    def _make_pod(self, tenant: DemoTenant, kind: PodKind) -> Json:
        self._made[tenant.name] += 1
        name = f"{tenant.name}-{self._made[tenant.name]:06d}-{kind.name}"
        annotations = {} if self.is_lasting else {RUN_SECONDS: str(choose_run_seconds(name, self._longest_seconds))}
        container = {"name": "work", "image": "example.invalid/work"}  # kwok runs nothing, so nothing is pulled
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": tenant.namespace,
                "labels": {KIND_LABEL: kind.name},
                "annotations": annotations,
            },
            "spec": {**make_pod_spec(tenant, kind, container), "restartPolicy": "Never"},
        }


def make_pod_spec(tenant: DemoTenant, kind: PodKind, container: Json) -> Json:
    """Return the spec of a pod of this kind with this container, which gets the kind's requests."""
    resources = {"requests": dict(kind.requests), "limits": _compute_limits(kind)}
    return {
        "schedulerName": tenant.scheduler_name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [dict(toleration) for toleration in tenant.tolerations],
        "containers": [{**container, "resources": resources}],
    }


def choose_run_seconds(name: str, longest_seconds: int) -> int:
    """Return how long a pod runs: the same for the same name in each run."""
    return random.Random(name).randint(SHORTEST_RUN_SECONDS, longest_seconds)  # noqa: S311  it keeps no secret


def _compute_limits(kind: PodKind) -> Json:
    """Extended resources need a limit that equals the request; others go without."""
    return {GPU: kind.requests[GPU]} if GPU in kind.requests else {}


def mix(kinds: tuple[PodKind, ...], missing: Mapping[str, int]) -> Iterator[PodKind]:
    """Yield each kind as often as it is missing, evenly spread over the whole."""
    places = [
        ((number + 0.5) / missing[kind.name], kind.name, kind) for kind in kinds for number in range(missing[kind.name])
    ]
    for _, _, kind in sorted(places, key=lambda place: place[:2]):
        yield kind


def make_tenant(tenant: DemoTenant) -> Json:
    """Return the Tenant object."""
    spec: Json = {"weight": tenant.weight}
    if tenant.has_pods:
        spec["namespaces"] = [tenant.namespace]
    if tenant.parent:
        spec["parent"] = tenant.parent
    for name, gpus in (("guarantee", tenant.guarantee), ("limit", tenant.limit)):
        if gpus:
            spec[name] = [
                {"nodes": {"matchLabels": {MODEL_LABEL: model}}, "resources": {GPU: str(count)}}
                for model, count in gpus.items()
            ]
    return {
        "apiVersion": "fairbind.io/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": tenant.name},
        "spec": spec,
    }


def make_namespace(tenant: DemoTenant) -> Json:
    """Return the namespace in which the tenant's pods are made."""
    metadata = {"name": tenant.namespace, "labels": dict(tenant.labels)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
