"""Samples and scenes for the tests of the demo, with values that can be told apart."""

from __future__ import annotations

from dataclasses import replace

from demo.observe import Sample, TenantSight, Use
from demo.view import Scene
from demo.workload import CAST, GPU

LONG_REASON = (
    "0/60 nodes are available: 52 Insufficient cpu, 8 node(s) had untolerated taint(s). "
    "tenant web waits: its weighted share 0.194 is above 0.187 of analytics, which takes the next free capacity."
)
RESOURCES = {"analytics": "memory", "web": "cpu", "shop": "cpu", "search": "cpu", "vision": GPU, "research": "cpu"}
SHARES = {"analytics": 0.19, "web": 0.38, "shop": 0.25, "search": 0.13, "vision": 0.333, "research": 0.38}
FAIR_SHARES = {"analytics": 0.205, "web": 0.41, "vision": 0.331}
"""Of research, which has just come, nothing is known yet."""
RUNNING = {"analytics": 88, "web": 330, "shop": 220, "search": 110, "vision": 16, "research": 201}


def make_sight(
    name: str, weight: float, share: float | None = None, waiting: int = 40, parent: str = ""
) -> TenantSight:
    chosen = SHARES[name] if share is None else share
    return TenantSight(
        name=name,
        weight=weight,
        dominant_resource=RESOURCES[name],
        share=chosen,
        weighted_share=chosen / weight,
        allocated={GPU: 16.0},
        running=RUNNING[name],
        waiting=waiting,
        why=LONG_REASON,
        fair_share=FAIR_SHARES.get(name),
        parent=parent,
    )


def make_sample(seconds: float = 30.0, bound: int = 1834, **shares: float) -> Sample:
    return Sample(
        seconds=seconds,
        tenants=tuple(
            make_sight(tenant.name, tenant.weight, shares.get(tenant.name), parent=tenant.parent)
            for tenant in CAST.tenants
        ),
        uses=(Use("cpu", 1780, 1800), Use("memory", 9 * 2**40, 17 * 2**40), Use(GPU, 24, 48)),
        bound=bound,
        jain_index=0.93,
        envy={"missing_demand": 0, "indivisible_tasks": 2, "mechanism": 0, "history": 3},
        share_error=0.03,
    )


def make_scene(sample: Sample | None = None) -> Scene:
    return Scene(
        sample=sample or make_sample(),
        duration_seconds=60.0,
        nodes=60,
        policy="best-fit-drfh",
        pods_per_second=44.3,
        note="research came 10 s ago: its share grows as pods of the others end",
    )


def with_nobody_waiting(sample: Sample) -> Sample:
    return replace(sample, tenants=tuple(replace(tenant, waiting=0, why="") for tenant in sample.tenants))
