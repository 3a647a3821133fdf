"""What one simulated run leaves: rows of the tables, and what the summary says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class TaskRow(NamedTuple):
    """One attempt of a task, or a task that never started (attempts 0). Times: nanoseconds."""

    policy: str
    tenant: str
    task: str
    arrival: int
    start: int | None
    end: int | None
    server: str | None
    attempts: int


class ShareRow(NamedTuple):
    """What a tenant holds at a time. dominant_share: without the weight. fair_share: None where there is none."""

    policy: str
    time: int
    tenant: str
    dominant_share: float
    fair_share: float | None
    running: int
    pending: int


class UtilisationRow(NamedTuple):
    """What of a resource is used on all nodes of a shape at a time: cores, or base units."""

    policy: str
    time: int
    server_class: str
    resource: str
    used: float
    capacity: float


class FindingRow(NamedTuple):
    """Something that audits found again and again. envied: None: the tenant would have more in a cluster of its own.

    times: at how many of the measurements. has, could_have: dominant shares where they differed most.
    """

    tenant: str
    envied: str | None
    cause: str
    times: int
    has: float
    could_have: float


class Closeness(NamedTuple):
    """How near a run is to the fair shares of one mechanism, as the summary says it of the policy's own.

    share_error: mean over time. worst_part: the least part of its fair share that a waiting tenant held. None: nothing
    to measure.
    """

    share_error: float | None
    worst_part: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's run.

    end: when it ended, nanoseconds. interrupted: whether it was stopped before that was due. findings: of the audits,
    the most frequent first; None when there were too many tenants to audit. closeness: to each yardstick that was asked
    for.
    """

    policy: str
    end: int
    interrupted: bool
    tasks: tuple[TaskRow, ...]
    shares: tuple[ShareRow, ...]
    utilisation: tuple[UtilisationRow, ...]
    summary: Mapping[str, Any]
    findings: tuple[FindingRow, ...] | None
    closeness: Mapping[str, Closeness] = field(default_factory=dict)
