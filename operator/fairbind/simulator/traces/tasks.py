"""What a trace says of its tasks, and what is assumed where it says nothing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from fairbind.what_if.reading import NANOSECONDS

FOREVER = "forever"
LEAVE_OUT = "leave-out"
MEDIAN = "median"
TRACE_END = "trace-end"


class Ending(Enum):
    """What a trace says of a task's end: its length, that it outlives the trace, or nothing."""

    KNOWN = "known"
    OUTLIVES = "outlives"
    UNKNOWN = "unknown"


class Pod(NamedTuple):
    """What a task asks for. requests: quantities by resource. labels: the values that its node's labels may have."""

    requests: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def without(self, resources: Collection[str]) -> Pod:
        """Return the pod without what it asks for of these resources."""
        return self._replace(requests=tuple(pair for pair in self.requests if pair[0] not in resources))


class TraceTask(NamedTuple):
    """A task of a trace. arrival, length: nanoseconds; length up to the trace's end where it outlives the trace.

    group: with which others of its tenant it starts; empty: the trace says nothing of it.
    """

    tenant: str
    arrival: int
    length: int
    ending: Ending
    pod: Pod
    group: str = ""


def make_task(tenant: str, pod: Pod, arrival: int, start: int | None, end: int | None, *, last: int) -> TraceTask:
    """Return a task of these times, in nanoseconds. None: the trace does not say. last: the trace's last instant."""
    if end is None:
        return TraceTask(tenant, arrival, max(0, last - (arrival if start is None else start)), Ending.OUTLIVES, pod)
    if start is None:
        return TraceTask(tenant, arrival, 0, Ending.UNKNOWN, pod)
    return TraceTask(tenant, arrival, max(0, end - start), Ending.KNOWN, pod)


class Shape(NamedTuple):
    """Equal nodes of a trace. capacity: quantities by resource."""

    capacity: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed where a trace says nothing.

    outliving: of tasks that outlive the trace: FOREVER, TRACE_END or LEAVE_OUT. unknown: of tasks without a length:
    MEDIAN of those that have one, FOREVER, LEAVE_OUT, or seconds. first, last: arrivals that are taken, nanoseconds
    from the trace's start; last None: all that come later. keeps_groups: whether tasks start with others.
    """

    outliving: str = FOREVER
    unknown: str | float = MEDIAN
    first: int = 0
    last: int | None = None
    keeps_groups: bool = False


@dataclass(slots=True)
class Group:
    """Equal tasks of a tenant: when each arrives and how long it runs, in nanoseconds; None: for ever.

    together: so many that arrive together start together, one after the other in the lists.
    """

    tenant: str
    pod: Pod
    together: int = 1
    arrivals: list[int] = field(default_factory=list)
    lengths: list[int | None] = field(default_factory=list)


def group_tasks(tasks: Iterable[TraceTask], assumptions: Assumptions) -> tuple[list[Group], list[str]]:
    """Return the tasks by tenant and pod, in the order of the groups' first arrivals, and what was assumed of how many.

    Arrivals count from `assumptions.first` on.
    """
    chosen = [task for task in tasks if _is_inside(task, assumptions)]
    if not assumptions.keeps_groups:
        chosen = [task._replace(group="") for task in chosen]
    chosen.sort(key=lambda task: (task.arrival, task.group))
    known = [task.length for task in chosen if task.ending is Ending.KNOWN]
    median = round(statistics.median(known)) if known else None
    lengths = [_assume_length(task, assumptions, median) for task in chosen]
    kept = [(task, length) for task, length in zip(chosen, lengths, strict=True) if length != 0]
    sizes = Counter(_find_group(task) for task, _ in kept if task.group)
    groups: dict[tuple[str, Pod, int], Group] = {}
    for task, length in kept:
        together = sizes.get(_find_group(task), 1)
        group = groups.setdefault((task.tenant, task.pod, together), Group(task.tenant, task.pod, together))
        group.arrivals.append(task.arrival - assumptions.first)
        group.lengths.append(length)
    touched = Counter(task.ending for task in chosen)
    notes = _describe(assumptions, touched, median)
    together = sum(size for size in sizes.values() if size > 1)
    return list(groups.values()), [*notes, f"{together:,} tasks start with others"] if together else notes


def _find_group(task: TraceTask) -> tuple[str, str, Pod, int]:
    """Return what tasks have in common that start together."""
    return task.tenant, task.group, task.pod, task.arrival


def _is_inside(task: TraceTask, assumptions: Assumptions) -> bool:
    last = assumptions.last
    return task.arrival >= assumptions.first and (last is None or task.arrival <= last)


def _assume_length(task: TraceTask, assumptions: Assumptions, median: int | None) -> int | None:
    """Return a length; None: for ever; 0: the task is left out."""
    if task.ending is Ending.KNOWN or (task.ending is Ending.OUTLIVES and assumptions.outliving == TRACE_END):
        return max(1, task.length)
    chosen = assumptions.outliving if task.ending is Ending.OUTLIVES else assumptions.unknown
    if chosen == FOREVER:
        return None
    if chosen == MEDIAN:
        return median or 0
    return 0 if isinstance(chosen, str) else round(chosen * NANOSECONDS)


def _describe(assumptions: Assumptions, touched: Mapping[Ending, int], median: int | None) -> list[str]:
    notes = []
    if touched[Ending.OUTLIVES]:
        count = touched[Ending.OUTLIVES]
        notes.append(f"{count:,} tasks outlive the trace: {_ASSUMED[assumptions.outliving]}")
    if touched[Ending.UNKNOWN]:
        if assumptions.unknown == MEDIAN:
            text = "they are left out, as no other has one"
            if median is not None:
                text = f"they run for the median of the others, {median / NANOSECONDS:g} s"
        elif isinstance(assumptions.unknown, str):
            text = _ASSUMED[assumptions.unknown]
        else:
            text = f"they run for {assumptions.unknown:g} s"
        notes.append(f"{touched[Ending.UNKNOWN]:,} tasks have no length in the trace: {text}")
    return notes


_ASSUMED = {
    FOREVER: "they run for ever",
    TRACE_END: "they end where it ends",
    LEAVE_OUT: "they are left out",
}
