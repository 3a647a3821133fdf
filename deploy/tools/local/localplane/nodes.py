"""Fake nodes in six shapes that differ in every way that matters to a scheduler.

The mix is deterministic: node number n has the same name, shape and zone on every machine. kwok plays their kubelets
and never touches what is allocatable, so tests may shrink and grow a node by patching its status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localplane.client import call_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from localplane.client import ApiClient, Json

SHAPE_LABEL = "fairbind.io/shape"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
ZONES = ("zone-a", "zone-b", "zone-c")
GPU_TAINT = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
MEMORY_TAINT = {"key": "memory", "value": "big", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of machine. allocatable: Kubernetes quantities; share: how many of 30 nodes are like this."""

    name: str
    instance_type: str
    share: int
    allocatable: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


SHAPES: tuple[Shape, ...] = (
    Shape(
        "cpu-new",
        "c9.32xlarge",
        10,
        {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "200Gi", "pods": "110"},
        labels={"fairbind.io/cpu-generation": "9"},
    ),
    Shape(
        "cpu-old",
        "c4.16xlarge",
        8,
        {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"},
        labels={"fairbind.io/cpu-generation": "4"},
    ),
    Shape(
        "edge",
        "edge.small",
        5,
        {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "32"},
    ),
    Shape(
        "big-memory",
        "r9.48xlarge",
        3,
        {"cpu": "48", "memory": "1536Gi", "ephemeral-storage": "200Gi", "pods": "110"},
        taints=(MEMORY_TAINT,),
    ),
    Shape(
        "gpu-a100",
        "g9.a100.8",
        2,
        {"cpu": "96", "memory": "1024Gi", "ephemeral-storage": "400Gi", "pods": "110", "nvidia.com/gpu": "8"},
        taints=(GPU_TAINT,),
        labels={"nvidia.com/gpu.product": "A100"},
    ),
    Shape(
        "gpu-t4",
        "g4.t4.4",
        2,
        {"cpu": "48", "memory": "192Gi", "ephemeral-storage": "200Gi", "pods": "110", "nvidia.com/gpu": "4"},
        taints=(GPU_TAINT,),
        labels={"nvidia.com/gpu.product": "T4"},
    ),
)


def mixed_nodes(count: int, *, prefix: str = "node", labels: Mapping[str, str] | None = None) -> list[Json]:
    """Return node objects of all shapes in fixed proportions; from six nodes on, every shape is there.

    prefix: names are PREFIX-SHAPE-NUMBER. labels: added to every node, so that a test can select its own.
    """
    given = dict.fromkeys(SHAPES_BY_NAME, 0)
    total = sum(shape.share for shape in SHAPES)
    nodes = []
    for number in range(count):
        # the shape that lags its proportion most is next; shapes that have none yet go first
        shape = max(
            SHAPES, key=lambda shape: (not given[shape.name], shape.share * (number + 1) / total - given[shape.name])
        )
        given[shape.name] += 1
        nodes.append(make_node(f"{prefix}-{shape.name}-{number:05d}", shape, zone=ZONES[number % 3], labels=labels))
    return nodes


def make_node(
    name: str,
    shape: Shape | str = "cpu-new",
    *,
    zone: str = ZONES[0],
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] | None = None,
) -> Json:
    """Return one node object of a shape; ``allocatable`` and ``taints`` replace the shape's when given."""
    if isinstance(shape, str):
        shape = SHAPES_BY_NAME[shape]
    resources = dict(shape.allocatable if allocatable is None else allocatable)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "type": "kwok",
                SHAPE_LABEL: shape.name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": shape.instance_type,
                "topology.kubernetes.io/region": "local",
                "topology.kubernetes.io/zone": zone,
                **shape.labels,
                **(labels or {}),
            },
        },
        "spec": {"taints": [dict(taint) for taint in (shape.taints if taints is None else taints)]},
        "status": {"allocatable": resources, "capacity": resources},
    }


def create_nodes(client: ApiClient, nodes: Sequence[Json], *, parallel: int = 16) -> None:
    """Create many nodes on a few connections."""
    call_many(nodes, lambda node: client.post("/api/v1/nodes", node), parallel=parallel)


def is_schedulable(node: Json) -> bool:
    """Tell whether a node is Ready and the taints that every new node gets are gone."""
    conditions = node["status"].get("conditions") or []
    taints = node["spec"].get("taints") or []
    is_ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return is_ready and not any(taint["key"] == NOT_READY_TAINT for taint in taints)


SHAPES_BY_NAME: Mapping[str, Shape] = {shape.name: shape for shape in SHAPES}
