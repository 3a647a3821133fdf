"""google2011: the events of jobs (Google, clusterdata-2011, `job_events`). Its users are the tenants.

The file has no header and times in microseconds; 0 is before the trace. A job is one task: it arrives when it was first
submitted and runs from its first start to its last end. The trace says nothing of what jobs ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fairbind.simulator.traces.rows import BrokenRowError, LeftOut, Row, read_table
from fairbind.simulator.traces.tasks import Ending, Pod, TraceTask, make_task

COLUMNS: Final = (
    "time_us", "missing_info", "job_id", "event_type", "user", "scheduling_class", "job_name", "logical_job_name",
)  # fmt: skip
MICROSECOND: Final = 1e-6
SUBMIT, SCHEDULE, LAST_EVENT = 0, 1, 8
ENDS: Final = frozenset({2, 3, 4, 5, 6})
"""Evicted, failed, finished, killed, lost."""


class _JobEvent(NamedTuple):
    job: str
    user: str
    kind: int
    time: int


class _Job:
    """What is known of a job. Times: nanoseconds; None: not seen."""

    __slots__ = ("arrival", "end", "start", "user")

    def __init__(self, user: str) -> None:
        self.user = user
        self.arrival: int | None = None
        self.start: int | None = None
        self.end: int | None = None

    def add(self, event: _JobEvent) -> None:
        if event.kind == SUBMIT:
            self.arrival = event.time if self.arrival is None else min(self.arrival, event.time)
            self.end = None  # it was submitted again
        elif event.kind == SCHEDULE:
            self.start = event.time if self.start is None else min(self.start, event.time)
            self.end = None
        elif event.kind in ENDS:
            self.end = event.time


def read_tasks(path: Path, left_out: LeftOut) -> Iterator[TraceTask]:
    """Yield the jobs, with nothing that they ask for; users are numbered in the order in which they come."""
    what = "list of job events of 2011"
    jobs: dict[str, _Job] = {}
    last = 0
    for event in read_table(path, COLUMNS, _read_event, what=what, left_out=left_out, has_header=False):
        jobs.setdefault(event.job, _Job(event.user)).add(event)
        last = max(last, event.time)
    users: dict[str, str] = {}
    for job in jobs.values():
        tenant = users.setdefault(job.user, f"user-{len(users) + 1}")
        yield _make_task(tenant, job, last)


def _make_task(tenant: str, job: _Job, last: int) -> TraceTask:
    start = job.start
    arrival = job.arrival if job.arrival is not None else start or 0
    if start is None:
        return TraceTask(tenant, arrival, 0, Ending.UNKNOWN, Pod(()))
    return make_task(tenant, Pod(()), arrival, start, job.end, last=last)


def _read_event(row: Row) -> _JobEvent:
    kind = row.text("event_type")
    if not kind.isdecimal() or int(kind) > LAST_EVENT:
        raise BrokenRowError(f"event_type must be a number from 0 to {LAST_EVENT}, not {kind!r}")
    return _JobEvent(row.text("job_id"), row.text("user"), int(kind), row.time("time_us", MICROSECOND) or 0)
