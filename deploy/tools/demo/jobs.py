"""What the same four tenants ask of a cluster with real kubelets: Jobs and a Deployment, whose containers run.

The nodes are those of kind-config.yaml on a machine of any size, so amounts are parts of what the workers have: one of
`PARTS` parts of their cores, one of their memory. A tenant's pods come in Jobs of a few; `shop` also has a Deployment
that takes less than its share and never ends. The program in the containers only sleeps, so a laptop carries it all.

kind has no GPUs. Two of its workers are told to have some, each of another model, as Kubernetes allows for any extended
resource: no pod uses them, but they are counted, by kubelets too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from demo import workload
from demo.workload import GPU, KIND_LABEL, Cast, DemoTenant, Json, PodKind
from fairbind.cluster.objects.quantity import parse_quantity
from kindcluster.images import WORKLOAD_IMAGE

PARTS = 48
MEBIBYTE = 2**20
SHAPE = "fairbind.io/shape"
GPUS: Mapping[str, tuple[str, int]] = {"large": ("T4", 4), "special": ("A100", 8)}
"""The GPUs that a worker is told to have, their model and number, by its shape."""
JOB_SIZE = 3
POD_CREATION_SECONDS = 2.0
"""How long it may take from a Job to its pods: no more Jobs are made for them meanwhile."""
KEPT_FINISHED_SECONDS = 15
RUN_FRACTION = 0.3
"""The longest run, as a part of the demo: starting and ending a container takes its time, too."""
SITE_REPLICAS = 5

# Cores and memory of one pod in parts, GPUs, backlog.
KINDS: Mapping[str, Mapping[str, tuple[float, float, int, int]]] = {
    "analytics": {"query": (1, 1.5, 0, 2), "join": (2, 3, 0, 1), "embed": (1, 2, 1, 1)},
    "shop": {"small": (1, 0.5, 0, 3), "large": (2, 1, 0, 1)},
    "search": {"small": (1, 0.5, 0, 2), "large": (2, 1, 0, 1)},
    "vision": {"detect": (1, 0.5, 1, 1), "train": (2, 1, 1, 1)},
    "research": {"sweep": (1, 0.5, 0, 4), "solve": (2, 1, 0, 2), "learn": (1, 2, 1, 1)},
}
SITE = (1, 0.5, 0, SITE_REPLICAS)
SITE_OWNER = workload.SHOP.name


def compute_cast(workers: Sequence[Json]) -> Cast:
    """Return the tenants for these nodes, with their amounts, and with tolerations for all of the nodes' taints."""
    cores, memory = _sum_allocatable(workers, "cpu"), _sum_allocatable(workers, "memory")
    tolerations = _compute_tolerations(workers)

    def adapt(tenant: DemoTenant) -> DemoTenant:
        kinds = tuple(_make_kind(name, amounts, cores, memory) for name, amounts in KINDS.get(tenant.name, {}).items())
        return replace(tenant, kinds=kinds, tolerations=tolerations)

    return workload.promise(workload.CAST.change(adapt), workers)


def compute_site(workers: Sequence[Json]) -> PodKind:
    """Return the pods of the one Deployment that there is."""
    cores, memory = _sum_allocatable(workers, "cpu"), _sum_allocatable(workers, "memory")
    return _make_kind("site", SITE, cores, memory)


def _make_kind(name: str, amounts: tuple[float, float, int, int], cores: Fraction, memory: Fraction) -> PodKind:
    core_parts, memory_parts, gpus, backlog = amounts
    requests = {
        "cpu": f"{max(1, int(1000 * cores * Fraction(core_parts) / PARTS))}m",
        "memory": f"{max(1, int(memory * Fraction(memory_parts) / PARTS / MEBIBYTE))}Mi",
    }
    return PodKind(name, {**requests, GPU: str(gpus)} if gpus else requests, backlog)


def _sum_allocatable(nodes: Sequence[Json], resource: str) -> Fraction:
    return sum((parse_quantity(node["status"]["allocatable"][resource]) for node in nodes), Fraction(0))


def _compute_tolerations(nodes: Sequence[Json]) -> tuple[Mapping[str, str], ...]:
    taints = {(taint["key"], taint["effect"]) for node in nodes for taint in node["spec"].get("taints") or []}
    return tuple({"key": key, "operator": "Exists", "effect": effect} for key, effect in sorted(taints))


class JobStream:
    """Makes Jobs, each with a name that was never used, whose pods run equally long.

    site: the pods of the Deployment that comes with its owner's first Jobs. clock: seconds.
    """

    def __init__(self, duration_seconds: float, site: PodKind, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_seconds = max(4, round(duration_seconds * RUN_FRACTION))
        self._site = site
        self._clock = clock
        self._made = 0
        self._complete_at: dict[tuple[str, str], float] = {}
        self.is_lasting = False
        """Whether the pods of new Jobs never end: what stays when the cluster is kept."""

    def make_first(self, tenant: DemoTenant, fill: int) -> list[Json]:
        """Return what a tenant comes with: its Deployment, if it has one, and Jobs."""
        site = [_make_deployment(tenant, self._site)] if tenant.name == SITE_OWNER else []
        return [*site, *self.make_missing(tenant, {}, fill)]

    def make_missing(self, tenant: DemoTenant, waiting: Mapping[tuple[str, str], int], fill: int = 1) -> list[Json]:
        """Return the Jobs that bring a tenant's backlog to ``fill`` times the usual, of all kinds in turn.

        waiting: how many pods wait now, by namespace and kind. Nothing more is made of a kind whose last Jobs may not
        have their pods yet.
        """
        missing = {
            kind.name: max(0, kind.backlog * fill - waiting.get((tenant.namespace, kind.name), 0))
            if self._is_complete(tenant, kind)
            else 0
            for kind in tenant.kinds
        }
        jobs = {name: -(-count // JOB_SIZE) for name, count in missing.items()}
        return [self._make_job(tenant, kind, missing) for kind in workload.mix(tenant.kinds, jobs)]

    def _is_complete(self, tenant: DemoTenant, kind: PodKind) -> bool:
        return self._clock() >= self._complete_at.get((tenant.name, kind.name), float("-inf"))

    def _make_job(self, tenant: DemoTenant, kind: PodKind, missing: dict[str, int]) -> Json:
        """Return a Job for some of the missing pods and take these off."""
        pods = min(JOB_SIZE, missing[kind.name])
        missing[kind.name] -= pods
        self._complete_at[tenant.name, kind.name] = self._clock() + POD_CREATION_SECONDS
        self._made += 1
        name = f"{tenant.name}-{self._made:05d}-{kind.name}"
        seconds = 0 if self.is_lasting else workload.choose_run_seconds(name, self._longest_seconds)
        template = _make_template(tenant, kind, seconds)
        template["spec"]["restartPolicy"] = "Never"
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": tenant.namespace},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "ttlSecondsAfterFinished": KEPT_FINISHED_SECONDS,
                "template": template,
            },
        }


def _make_deployment(tenant: DemoTenant, kind: PodKind) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": kind.name, "namespace": tenant.namespace},
        "spec": {
            "replicas": kind.backlog,
            "selector": {"matchLabels": {KIND_LABEL: kind.name}},
            "template": _make_template(tenant, kind, 0),
        },
    }


def _make_template(tenant: DemoTenant, kind: PodKind, seconds: int) -> Json:
    """seconds: how long the container runs, 0 for until it is told to end."""
    container = {"name": "work", "image": WORKLOAD_IMAGE, "args": [f"-sleep={seconds}s"]}
    spec = workload.make_pod_spec(tenant, kind, container)
    spec["terminationGracePeriodSeconds"] = 1  # with 0 the API server would forget the pod before the kubelet has
    return {"metadata": {"labels": {KIND_LABEL: kind.name}}, "spec": spec}
