"""What a journal keeps of each cycle, so that a replay can be compared with it decision by decision.

A journal is text, one JSON object a line. A reader with a cycle's snapshot and settings decides again and asks
`find_difference`: the same input gives the same decisions, also where the cycle recalled what fitted nowhere. The
fingerprint of the world tells a changed decision from a changed world.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import msgspec

from fairbind.model import CycleReport, InvalidProblemError, Snapshot
from fairbind.model.reservations import Reservation

OTHER_ANSWER = "the exact answer that guided the decisions is not in the journal, and it is another one now"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How much there is in a snapshot, which is cheap to count.

    servers: all. usable_servers: those that tasks may go to. tenants, classes: how many. tasks: how many wait.
    free_r: what is free on all servers together, by resource, in base units, modulo 2**64; resources: their names.
    withheld: how many of the classes were not placed, because it was not known yet where they may go.
    targets: the digest of the exact answer that the decisions followed; empty: there was none, or it tells no
    servers apart.
    """

    servers: int
    usable_servers: int
    tenants: int
    classes: int
    tasks: int
    resources: tuple[str, ...]
    free_r: tuple[int, ...]
    withheld: int = 0
    targets: str = ""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan of more than one bind. first: the place of its first bind among all bindings. evicted: UIDs of pods."""

    first: int
    binds: int
    evicted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """One cycle in which something waited, and that did not fail.

    number: counts the attempts of one run of the operator, from 1; a cycle that failed or found nothing waiting leaves
    a gap. time: when it decided, seconds since the epoch. seconds: how long it took. policy: its id. limit: how many
    decisions at most. explains: see `RunCycle`. outstanding: decisions of earlier cycles that were
    not carried out yet. has_more: whether the cycle before it had left something to decide. world: of the snapshot.
    bindings: (uid of the pod, name of the node), in the order of the decisions. complete: False when the limit ended
    it. turns: whether the next cycle may have looked at other waiting tasks. plans: which of the bindings belong
    together; where each is for itself, the line has no such field. reserved: what was reserved; likewise.
    """

    number: int
    time: float
    seconds: float
    policy: str
    limit: int
    explains: bool
    outstanding: int
    has_more: bool
    world: Fingerprint
    bindings: tuple[tuple[str, str], ...]
    complete: bool
    turns: bool = True
    plans: tuple[PlanRecord, ...] | msgspec.UnsetType = msgspec.UNSET
    reserved: tuple[Reservation, ...] | msgspec.UnsetType = msgspec.UNSET


def list_plans(report: CycleReport) -> tuple[PlanRecord, ...] | msgspec.UnsetType:
    """Return the plans of a report that are more than one bind, as a record has them."""
    plans, first = list[PlanRecord](), 0
    for plan in report.plans:
        if not plan.is_single:
            evicted = tuple(each.running.uid for each in plan.evictions)
            plans.append(PlanRecord(first, len(plan.binds), evicted))
        first += len(plan.binds)
    return tuple(plans) or msgspec.UNSET


def compute_fingerprint(snapshot: Snapshot) -> Fingerprint:
    """Return how much there is in a snapshot."""
    servers, targets = snapshot.servers, snapshot.targets
    return Fingerprint(
        servers=len(servers.names),
        usable_servers=int(servers.usable_k.sum()),
        tenants=len(snapshot.tenants),
        classes=len(snapshot.task_classes),
        tasks=sum(len(task_class.tasks) for task_class in snapshot.task_classes),
        resources=snapshot.resources,
        free_r=tuple(servers.free_kr.sum(axis=0).tolist()),
        withheld=len(snapshot.stale),
        targets="" if targets is None or len(targets.class_names) == 1 else targets.compute_digest(),
    )


def format_record(record: CycleRecord) -> bytes:
    """Return the record's line, with its end."""
    return msgspec.json.encode(record) + b"\n"


def parse_record(line: bytes | str) -> CycleRecord:
    """Return the record of a line. Raises InvalidProblemError when it is none."""
    try:
        return msgspec.json.decode(line, type=CycleRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidProblemError(f"not a record of a cycle: {error}") from error


def parse_journal(lines: Iterable[bytes | str]) -> tuple[list[CycleRecord], list[int]]:
    """Return the records, and the numbers of the lines (from 1) that are none: a crash may leave half a line."""
    records: list[CycleRecord] = []
    broken: list[int] = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(parse_record(line))
        except InvalidProblemError:
            broken.append(number)
    return records, broken


def find_difference(record: CycleRecord, snapshot: Snapshot, report: CycleReport) -> str | None:
    """Return the first difference between a recorded cycle and one that was decided again, in words; None if equal.

    snapshot, report: of the replay.
    """
    world = compute_fingerprint(snapshot)
    for field in fields(Fingerprint):
        then, now = getattr(record.world, field.name), getattr(world, field.name)
        if then != now:
            is_answer = field.name == "targets"
            return (
                OTHER_ANSWER if is_answer else f"{field.name} of the world: {then} in the journal, {now} in the replay"
            )
    if record.policy != report.policy:
        return f"policy {record.policy} in the journal, {report.policy} in the replay"
    replayed = [(bind.task.uid, bind.server) for bind in report.bindings]
    for index in range(max(len(record.bindings), len(replayed))):
        recorded = record.bindings[index] if index < len(record.bindings) else None
        again = replayed[index] if index < len(replayed) else None
        if recorded != again:
            return f"decision {index + 1}: {_describe(recorded)} in the journal, {_describe(again)} in the replay"
    if record.plans != (plans := list_plans(report)):
        then, now = (each or "none" for each in (record.plans, plans))
        return f"plans: {then} in the journal, {now} in the replay"
    if record.complete != report.complete:
        return f"complete {record.complete} in the journal, {report.complete} in the replay"
    return None


def _describe(binding: tuple[str, str] | None) -> str:
    return "none" if binding is None else f"{binding[0]} to {binding[1]}"
