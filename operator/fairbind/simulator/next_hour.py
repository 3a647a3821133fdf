"""The next hour of a snapshot under its own Tenants and under others: which namespaces hold more, and which less.

Both hours have the same run times, so what differs comes of the Tenants. A namespace is judged by the dominant share of
what it holds in the mean over the hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from fairbind.cluster.objects.convert import convert_node, convert_pod
from fairbind.simulator.driver import simulate
from fairbind.simulator.results import TaskRow
from fairbind.simulator.scenario import Each, Scenario
from fairbind.simulator.snapshot_scenario import make_scenario
from fairbind.simulator.workload import draw_workload
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.reading import NANOSECONDS

HOUR: Final = 3600 * NANOSECONDS
TOLERATED: Final = 0.1
"""Of what a namespace held: a change up to this part is none."""
SEED: Final = 0
UNCOUNTED: Final = frozenset({"pods"})


@dataclass(frozen=True, slots=True)
class NamespaceHour:
    """What a namespace holds in the mean over the hour. resource: its dominant one, of which the amounts are.

    before, after: base units, under the snapshot's own Tenants and under the others. capacity: of all nodes. tenant:
    its Tenant among the others.
    """

    namespace: str
    tenant: str
    resource: str
    before: float
    after: float
    capacity: float

    @property
    def is_changed(self) -> bool:
        """Whether it changes by more than what is tolerated."""
        return abs(self.after - self.before) > TOLERATED * self.before


def compare_next_hour(listed: ListedObjects, tenants: Sequence[Mapping[str, Any]]) -> tuple[list[NamespaceHour], str]:
    """Return the hour of each namespace with tasks, by name, and how many run times are known, in words.

    tenants: Tenant objects in place of those of the snapshot. Raises InvalidProblemError for a snapshot without tasks.
    """
    before = make_scenario(listed, SEED, {})
    after = _copy_lengths(before, make_scenario(msgspec.structs.replace(listed, tenants=list(tenants)), SEED, {}))
    rows = [_live(scenario) for scenario in (before, after)]
    homes = {_find_namespace(row.task): row.tenant for row in rows[1]}
    capacity: dict[str, float] = {}
    for node in listed.nodes:
        for resource, amount in convert_node(node).allocatable:
            if resource not in UNCOUNTED:
                capacity[resource] = capacity.get(resource, 0.0) + amount
    demands = {
        f"{pod.metadata.namespace}/{pod.metadata.name}": dict(convert_pod(pod).demand.real) for pod in listed.pods
    }
    held = [_sum_up(each, demands) for each in rows]
    hours = [_judge(name, homes[name], held[0], held[1], capacity) for name in sorted(homes)]
    return hours, "; ".join(before.notes)


def _find_namespace(name: str) -> str:
    """Return the namespace of a task of a snapshot."""
    return name.partition("/")[0]


def _copy_lengths(source: Scenario, scenario: Scenario) -> Scenario:
    """Return the scenario with the run times that another one has drawn for the same pods."""
    lengths: dict[str, int | None] = {}
    for entry in source.workload:
        assert isinstance(entry.duration, Each)
        for pod, length in zip(entry.pods, entry.duration.lengths, strict=True):
            lengths[pod.waiting.uid] = length
    workload = tuple(
        replace(entry, duration=Each(tuple(lengths[pod.waiting.uid] for pod in entry.pods)))
        for entry in scenario.workload
    )
    return replace(scenario, workload=workload)


def _live(scenario: Scenario) -> Sequence[TaskRow]:
    short = replace(scenario, horizon=HOUR, measure_every=HOUR)
    return simulate(short, draw_workload(short), short.policies[0]).tasks


def _sum_up(rows: Sequence[TaskRow], demands: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, str], float]:
    """Return what each namespace holds of each resource, in the mean over the hour."""
    held: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.start is None:
            continue
        part = (min(HOUR if row.end is None else row.end, HOUR) - row.start) / HOUR
        for resource, amount in demands[row.task].items():
            key = _find_namespace(row.task), resource
            held[key] = held.get(key, 0.0) + part * amount
    return held


def _judge(
    namespace: str,
    tenant: str,
    before: Mapping[tuple[str, str], float],
    after: Mapping[tuple[str, str], float],
    capacity: Mapping[str, float],
) -> NamespaceHour:
    def compute_share(resource: str) -> float:
        most = max(each.get((namespace, resource), 0.0) for each in (before, after))
        return most / capacity[resource] if capacity[resource] else 0.0

    resource = max(sorted(capacity), key=compute_share, default="cpu")
    key = namespace, resource
    return NamespaceHour(
        namespace, tenant, resource, before.get(key, 0.0), after.get(key, 0.0), capacity.get(resource, 0.0)
    )
