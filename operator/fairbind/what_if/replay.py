"""Replay: what the operator decides about a snapshot, in order, with reasons, and whether a journal says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.journal import CycleRecord, Fingerprint, compute_fingerprint, find_difference
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.cluster.objects.task_names import split_task_name
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.trial import Trial, explain_decision


@dataclass(frozen=True, slots=True)
class Comparison:
    """A journal beside the replay.

    cycles, decisions: how many were compared and are equal. difference: the first one, in words; None: none. changed:
    why the comparison ended before the journal did: what came to the cluster after the snapshot, in words; None: it did
    not end before.
    """

    cycles: int
    decisions: int
    difference: str | None
    changed: str | None

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found."""
        return self.difference is None

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "equal": self.is_equal,
            "cycles": self.cycles,
            "decisions": self.decisions,
            "difference": self.difference,
            "changed": self.changed,
        }


def replay(listed: ListedObjects) -> Trial:
    """Return what the operator decides about these objects, all of it."""
    trial = Trial(listed, traces=True)
    trial.decide()
    return trial


def describe_replay(trial: Trial) -> dict[str, Any]:
    """Return decisions and waits as plain values."""
    decisions = []
    for decision in trial.decisions:
        namespace, name = split_task_name(decision.bind.task)
        decisions.append(
            {
                "namespace": namespace,
                "pod": name,
                "tenant": decision.bind.tenant,
                "node": decision.bind.server,
                "reason": explain_decision(decision),
            }
        )
    waiting = [
        {"namespace": pod.namespace, "pod": pod.name, "tenant": pod.tenant, "reason": pod.reason}
        for pod in trial.list_waiting()
    ]
    return {"decisions": decisions, "waiting": waiting}


def compare_with_journal(listed: ListedObjects, records: Sequence[CycleRecord]) -> Comparison:
    """Return whether the operator that wrote the journal decided from this snapshot on what the replay decides.

    The cycles run as the journal says that they ran, each with its limit. The comparison begins at the first cycle
    after the snapshot that saw the snapshot's world (at any time, if the journal is older), and ends where the cluster
    has changed since, or where another exact answer guided the decisions than that of now.
    """
    trial = Trial(listed)
    trial.operator.fair_shares.follow()
    world = compute_fingerprint(trial.cache.build_snapshot())
    later = [record for record in records if record.time >= listed.time] or list(records)
    if not later:
        return Comparison(0, 0, "the journal has no cycle", None)
    first = next((place for place, record in enumerate(later) if _is_same(record.world, world)), 0)
    decider = Decider()
    decisions = 0
    for cycles, record in enumerate(later[first:]):
        snapshot = trial.cache.build_snapshot()
        order = RunCycle(record.limit, record.explains, record.turns)
        decider.reservations.restore(record.reserved or (), snapshot)
        report = decider.decide(snapshot, trial.cache.settings, record.time, order)
        difference = find_difference(record, snapshot, report)
        if difference is not None:
            difference = f"cycle {record.number}: {difference}"
            now = compute_fingerprint(snapshot)
            is_guided_otherwise = _is_same(now, record.world) and now != record.world
            if is_guided_otherwise or (cycles and now != record.world):
                return Comparison(cycles, decisions, None, difference)
            if (unknown := _find_unknown(trial, record)) is not None:
                changed = f"cycle {record.number}: {unknown} is in the journal, and not in the snapshot"
                return Comparison(cycles, decisions, None, changed)
            return Comparison(cycles, decisions, difference, None)
        trial.carry_out(report, rotates=record.turns)
        decisions += len(report.bindings)
    return Comparison(len(later) - first, decisions, None, None)


def _find_unknown(trial: Trial, record: CycleRecord) -> str | None:
    """Return a pod that was decided and is not there: worlds that differ may have the same counts."""
    return next((uid for uid, _ in record.bindings if trial.cache.find_pod(uid) is None), None)


def _is_same(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether two worlds are the same but for the exact answer that guides decisions."""
    return replace(one, targets="") == replace(other, targets="")
