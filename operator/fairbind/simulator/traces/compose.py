"""Makes a scenario of traces: of one, or of the arrivals of one and the requests of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairbind.model import InvalidProblemError
from fairbind.simulator.traces.tasks import Assumptions, Group, Pod, Shape, TraceTask, group_tasks
from fairbind.what_if.reading import NANOSECONDS


@dataclass(frozen=True, slots=True)
class Description:
    """What outputs say of where a scenario comes from. composite: None where it is of one source."""

    name: str
    composite: str | None
    notes: Sequence[str]


def compose_scenario(
    tasks: Iterable[TraceTask], shapes: Mapping[Shape, int], assumptions: Assumptions, description: Description
) -> dict[str, Any]:
    """Return the document of a scenario. Raises InvalidProblemError when no task or no node is left."""
    groups, assumed = group_tasks(tasks, assumptions)
    if not groups:
        raise InvalidProblemError("no task is left: look at --from, --until and what is left out")
    if not any(shapes.values()):
        raise InvalidProblemError("no node is left")
    composite = {} if description.composite is None else {"composite": description.composite}
    last = assumptions.last
    horizon = {} if last is None else {"horizon": (last - assumptions.first) / NANOSECONDS}
    return {
        "name": description.name,
        **composite,
        "notes": [*description.notes, *assumed, *_find_missing(groups, shapes)],
        **horizon,
        "cluster": [_write_shape(place, shape, count) for place, (shape, count) in enumerate(shapes.items())],
        "tenants": [{"name": tenant} for tenant in dict.fromkeys(group.tenant for group in groups)],
        "workload": [_write_group(place, group) for place, group in enumerate(groups)],
    }


def _find_missing(groups: Sequence[Group], shapes: Mapping[Shape, int]) -> Iterator[str]:
    """Yield what tasks ask for and no node has."""
    offered = {resource for shape in shapes for resource, _ in shape.capacity}
    counts = Counter[str]()
    for group in groups:
        wanted = {resource for resource, _ in group.pod.requests} - offered
        counts.update(dict.fromkeys(wanted, len(group.arrivals)))
    for resource, count in sorted(counts.items()):
        yield f"no node has {resource}, so {count:,} tasks never start; --ignore {resource} lets them"


def draw_pods(tasks: Iterable[TraceTask], pods: Sequence[Pod], seed: int) -> Iterator[TraceTask]:
    """Yield the tasks, each with one of the pods, drawn by its place among the tasks and the seed."""
    if not pods:
        raise InvalidProblemError("no task is left that requests could be drawn from")
    generator = np.random.default_rng(seed)
    for task in tasks:
        yield task._replace(pod=pods[int(generator.integers(len(pods)))])


def _write_shape(place: int, shape: Shape, count: int) -> dict[str, Any]:
    labels = {"labels": dict(shape.labels)} if shape.labels else {}
    return {"shape": f"shape-{place}", "count": count, "capacity": dict(shape.capacity), **labels}


def _write_group(place: int, group: Group) -> dict[str, Any]:
    return {
        "tenant": group.tenant,
        "name": f"group-{place}",
        "arrival": {"times": [arrival / NANOSECONDS for arrival in group.arrivals]},
        "duration": {"each": ["forever" if length is None else length / NANOSECONDS for length in group.lengths]},
        "pod": {"requests": dict(group.pod.requests), **_write_labels(group.pod)},
        **({"gang": {"min": group.together, "size": group.together}} if group.together > 1 else {}),
    }


def _write_labels(pod: Pod) -> dict[str, Any]:
    if not pod.labels:
        return {}
    wanted = [{"key": key, "operator": "In", "values": list(values)} for key, values in pod.labels]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
