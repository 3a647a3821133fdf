"""A journal is read as it was written, and a replay finds the decisions that it records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cluster.histories import History, draw_history
from cluster.live import run_live
from cluster.simulated import run_simulated
from fairbind.cluster.loop.journal import (
    CycleRecord,
    Fingerprint,
    compute_fingerprint,
    find_difference,
    format_record,
    list_plans,
    parse_journal,
    parse_record,
)
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.model import CycleReport, InvalidProblemError, Plan, Snapshot, Targets
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, decide

SEEDS = (6, 16, 20, 24, 48)
WORLD = Fingerprint(2, 1, 1, 1, 3, ("cpu", "memory"), (7, 2**62))
RECORD = CycleRecord(4, 1.5, 0.25, "tsf", 256, True, 7, False, WORLD, (("u1", "n1"), ("u2", 'n"2')), True)


def make_world() -> tuple[Snapshot, CycleReport, CycleRecord]:
    servers = build_servers({"a": (4, 4), "b": (8, 2)}, unusable=["b"])
    snapshot = build_snapshot(servers, [build_class("t", (1, 1), build_placement(servers), 3)])
    report = decide(snapshot)
    pairs = tuple((bind.task.uid, bind.server) for bind in report.bindings)
    record = replace(RECORD, policy=report.policy, world=compute_fingerprint(snapshot), bindings=pairs)
    return snapshot, report, record


def test_a_record_is_read_as_it_was_written() -> None:
    line = format_record(RECORD)
    assert line.endswith(b"}\n")
    assert b"\n" not in line[:-1]
    assert parse_record(line) == RECORD
    assert parse_record(line.decode()) == RECORD


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", "null", b"\xff\xfe", format_record(RECORD)[:-20]])
def test_what_is_no_record_is_said_so(line: bytes | str) -> None:
    with pytest.raises(InvalidProblemError, match="not a record of a cycle"):
        parse_record(line)


@pytest.mark.parametrize("field", ["number", "bindings", "world", "time"])
def test_a_field_of_another_type_is_no_record(field: str) -> None:
    fields = json.loads(format_record(RECORD))
    with pytest.raises(InvalidProblemError, match=field):
        parse_record(json.dumps({**fields, field: "text"}))


def test_half_a_line_is_left_out_and_named() -> None:
    line = format_record(RECORD)
    assert parse_journal([line, line[:40], line]) == ([RECORD, RECORD], [2])


def test_a_fingerprint_counts_what_there_is() -> None:
    snapshot, _, _ = make_world()
    assert compute_fingerprint(snapshot) == Fingerprint(2, 1, 1, 1, 3, ("cpu", "memory"), (12, 6))
    withholding = replace(snapshot, stale=frozenset(snapshot.task_classes))
    assert compute_fingerprint(withholding).withheld == 1


def test_a_fingerprint_knows_the_answer_that_tells_classes_apart() -> None:
    snapshot, _, _ = make_world()
    shares, by_class = {"t-1": (0.5, 0.25)}, {"t-1": (0.5, 0.0)}
    answer = Targets("drfh", ("cpu", "memory"), shares, ("a", "b"), {"a": 0, "b": 1}, by_class)
    other = replace(answer, shares_by_class={"t-1": (0.0, 0.5)})
    alike = replace(answer, class_names=("a",))
    found = [compute_fingerprint(replace(snapshot, targets=each)).targets for each in (answer, other, alike, None)]

    assert len(set(found)) == 3
    assert "" not in found[:2]
    assert found[2:] == ["", ""]


def test_the_same_decisions_have_no_difference() -> None:
    snapshot, report, record = make_world()
    assert len(record.bindings) == 3
    assert find_difference(record, snapshot, report) is None


def test_a_changed_decision_is_found() -> None:
    snapshot, report, record = make_world()
    changed = replace(record, bindings=(record.bindings[0], ("t-1-1-0001", "b"), record.bindings[2]))
    said = "decision 2: t-1-1-0001 to b in the journal, t-1-1-0001 to a in the replay"
    assert find_difference(changed, snapshot, report) == said


def test_a_missing_and_a_further_decision_are_found() -> None:
    snapshot, report, record = make_world()
    shorter = replace(record, bindings=record.bindings[:2])
    longer = replace(record, bindings=(*record.bindings, ("u", "a")))
    assert (
        find_difference(shorter, snapshot, report) == "decision 3: none in the journal, t-1-1-0002 to a in the replay"
    )
    assert find_difference(longer, snapshot, report) == "decision 4: u to a in the journal, none in the replay"


def test_another_world_policy_or_end_is_found() -> None:
    snapshot, report, record = make_world()
    world = replace(record.world, tasks=4)
    assert find_difference(replace(record, world=world), snapshot, report) == (
        "tasks of the world: 4 in the journal, 3 in the replay"
    )
    assert find_difference(replace(record, policy="tsf"), snapshot, report) == (
        "policy tsf in the journal, best-fit-drfh in the replay"
    )
    assert find_difference(replace(record, complete=False), snapshot, report) == (
        "complete False in the journal, True in the replay"
    )


class Lines:
    """A journal in memory."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def record(self, record: CycleRecord) -> None:
        self.lines.append(format_record(record))


def draw_sound_history(seed: int) -> History:
    """Draw a history in which no cycle fails: those are not in a journal."""
    history = draw_history(seed)
    return replace(history, events=[event for event in history.events if not event[1].startswith("fail")])


@pytest.fixture(scope="module")
def journals() -> dict[int, list[bytes]]:
    """The journals of some histories, by seed, as the operator's loop writes them."""
    journals = {}
    for seed in SEEDS:
        lines = Lines()
        with pytest.MonkeyPatch.context() as patch:
            run_live(draw_sound_history(seed), patch, journal=lines)
        journals[seed] = lines.lines
    return journals


def replay(seed: int, records: Sequence[CycleRecord]) -> list[str]:
    """Decide again in the same world; return where a cycle's decisions are not those of the journal."""
    differences: list[str] = []
    left = iter(records)

    def judge(order: RunCycle, snapshot: Snapshot, report: CycleReport) -> None:
        record = next(left)
        assert (record.limit, record.explains) == (order.limit, order.explains)
        assert record.time == pytest.approx(report.now, abs=1e-6)
        if (difference := find_difference(record, snapshot, report)) is not None:
            differences.append(f"cycle {record.number}: {difference}")

    with pytest.MonkeyPatch.context() as patch:
        run_simulated(draw_sound_history(seed), patch, judge)
    assert next(left, None) is None
    return differences


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_decides_as_the_journal_says(journals: dict[int, list[bytes]], seed: int) -> None:
    records, broken = parse_journal(journals[seed])
    assert broken == []
    assert sum(len(record.bindings) for record in records) > 5
    assert replay(seed, records) == []


def test_a_replay_finds_a_changed_decision(journals: dict[int, list[bytes]]) -> None:
    records, _ = parse_journal(journals[SEEDS[0]])
    index = max(range(len(records)), key=lambda n: len(records[n].bindings))
    (uid, _), *others = records[index].bindings
    records[index] = replace(records[index], bindings=((uid, "another"), *others))
    (difference,) = replay(SEEDS[0], records)
    number = records[index].number
    assert difference == f"cycle {number}: decision 1: {uid} to another in the journal, {uid} to only in the replay"


def test_records_say_what_the_cycle_began_with(journals: dict[int, list[bytes]]) -> None:
    records, _ = parse_journal(journals[24])
    limit = draw_history(24).constants["MAX_OUTSTANDING"]
    assert all(record.limit + record.outstanding == limit for record in records)
    assert any(record.outstanding for record in records)
    assert any(record.has_more for record in records)
    numbers = [record.number for record in records]
    assert numbers == sorted(set(numbers))


def test_a_plan_of_several_is_recorded_and_one_of_one_leaves_no_trace() -> None:
    snapshot, report, record = make_world()
    assert b"plans" not in format_record(record)
    (first, *others) = report.bindings
    joined = replace(report, plans=(Plan((first,)), Plan(tuple(others))))
    recorded = replace(record, plans=list_plans(joined))

    assert parse_record(format_record(recorded)) == recorded
    assert find_difference(recorded, snapshot, joined) is None
    difference = find_difference(recorded, snapshot, report)
    assert difference is not None
    assert difference.startswith(
        "plans: (PlanRecord(first=1, binds=2, evicted=()),) in the journal, none in the replay"
    )
