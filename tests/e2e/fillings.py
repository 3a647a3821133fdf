"""Backlogs of tiny pods, and what must become of them: by the exact mechanism, and by a slow filling step by step.

The problem of the exact mechanism is written down here, not taken from the operator. The filling is the judge of the
scheduling tests (`scheduling.reference`), which here decides by itself.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model import Targets
from scheduling.reference import World
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, weigh

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fairbind.fairness.problems.allocation import Allocation
    from fairbind.model import PolicySettings, Snapshot, Task, TaskClass

CORE = 1000
GIB = 1 << 30
RESOURCES = ("cpu", "memory")

Amounts = tuple[float, float]
"""Cores and GiB."""


@dataclass(frozen=True)
class Scene:
    """Nodes and the tenants' pods, all of one kind for each. weights: those that are not named have 1."""

    nodes: Mapping[str, Amounts]
    pods: Mapping[str, Amounts]
    weights: Mapping[str, float] = field(default_factory=dict)

    def resize(self, factor: float) -> Scene:
        """Return the scene with nodes that are so many times as large."""
        return replace(self, nodes={name: (factor * cpu, factor * gib) for name, (cpu, gib) in self.nodes.items()})

    def solve(self, mechanism: str, *, alpha: float | None = None, expected_tenants: int | None = None) -> Allocation:
        """Return what the exact mechanism gives to tenants that never have enough."""
        is_pooled = mechanism in {"asset-fairness", "ceei", "drbf", "drf", "dynamic-drf"}
        document = {
            "resources": list(RESOURCES),
            "servers": [{"name": name, "capacity": _name(amounts)} for name, amounts in self.nodes.items()],
            "tenants": [
                {"name": name, "weight": self.weights.get(name, 1.0), "demand": _name(amounts)}
                for name, amounts in self.pods.items()
            ],
            "pool": is_pooled,
        }
        if expected_tenants is not None:
            document["expectedTenants"] = expected_tenants
        return compute_allocation(parse_problem(document), mechanism, alpha=alpha)

    def fill(
        self, settings: PolicySettings, waiting: Mapping[str, Sequence[Task]], targets: Targets | None = None
    ) -> dict[str, int]:
        """Return how many pods of each tenant run in the end, when these wait."""
        policy = settings.policy
        world = _Filling(replace(self._build_snapshot(waiting), targets=targets), policy, settings.seed)
        placed = dict.fromkeys(self.pods, 0)
        while (following := world.find_next()) is not None:
            n, pool = following
            task_class = world.snapshot.task_classes[n]
            fitting = world.fitting(task_class, pool)
            if policy == "two-choices-drfh":
                fitting = world.draw(task_class, fitting[0], fitting, pool) or fitting
            if policy == "first-fit-drfh":
                fitting = fitting[:1]
            world.put(n, world.find_best_fit(task_class, fitting))
            placed[task_class.tenant] += 1
        return placed

    def make_targets(self, allocation: Allocation) -> Targets:
        """Return the allocation as policies follow it."""
        names = allocation.problem.tenant_names
        part_ir = allocation.problem.demand_ir / allocation.problem.total_r
        shares = dict(zip(names, map(tuple, (allocation.totals_i[:, None] * part_ir).tolist()), strict=True))
        if allocation.tasks_ik.shape[1] == 1:
            return Targets(allocation.mechanism, RESOURCES, shares)
        by_class_ik = allocation.tasks_ik * part_ir.max(axis=1)[:, None]
        by_class = dict(zip(names, map(tuple, by_class_ik.tolist()), strict=True))
        classes = allocation.problem.server_names
        class_of = {name: k for k, name in enumerate(classes)}
        return Targets(allocation.mechanism, RESOURCES, shares, classes, class_of, by_class)

    def _build_snapshot(self, waiting: Mapping[str, Sequence[Task]]) -> Snapshot:
        servers = build_servers({name: _count(amounts) for name, amounts in self.nodes.items()}, tolerance=0.02)
        placement = build_placement(servers)
        classes = [build_class(name, _count(amounts), placement, waiting[name]) for name, amounts in self.pods.items()]
        tenants = [weigh(name, str(self.weights.get(name, 1))) for name in self.pods]
        return build_snapshot(servers, classes, tenants=tenants)


class _Filling(World):
    """The judge as one who decides."""

    def find_best_fit(self, task_class: TaskClass, fitting: Sequence[int]) -> int:
        """Return the server whose free resources are most like the demand; the first of equals."""
        return min(fitting, key=lambda k: sum(map(abs, self.distance(task_class, k))))

    def task_share(self, demand_r: tuple[int, ...], endless: Collection[int] = ()) -> Fraction:
        """Return what the judge returns; every task has one of few demands, and no resource is without end."""
        known = self.task_shares.get(demand_r)
        if known is None:
            known = self.task_shares[demand_r] = super().task_share(demand_r, endless)
        return known

    @functools.cached_property
    def task_shares(self) -> dict[tuple[int, ...], Fraction]:
        """What is known already."""
        return {}


def _name(amounts: Amounts) -> dict[str, float]:
    return dict(zip(RESOURCES, amounts, strict=True))


def _count(amounts: Amounts) -> tuple[int, int]:
    """Return milli-CPU and bytes."""
    cores, gib = amounts
    return round(cores * CORE), round(gib * GIB)


def make_requests(amounts: Amounts) -> dict[str, str]:
    """Return amounts as a pod requests them, or a node has them."""
    cpu_milli, memory_bytes = _count(amounts)
    return {"cpu": f"{cpu_milli}m", "memory": str(memory_bytes)}
