"""Random histories of a small cluster, and the timeline that a scheduling loop makes of each.

A history says when pods come and go, when the leader changes, when cycles fail, how long cycles and bindings take and
how they end. Its timeline is everything that the loop does, with its time. `tests/golden/timelines/pacing.json` has a
hash of each timeline, recorded before the loop's rules became a state machine. To record them again, after a change of
the rules that is meant:

    PYTHONPATH=operator:tests python tests/cluster/record_histories.py
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from fairbind.cluster.loop import pacing, postponements, rounds
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.model import CycleReport, Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant, Wait
from fairbind.scheduling import CycleState, Policy, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.reservations.reservations import Reservations

HISTORIES = 400
EPOCH = 1_000_000.0
DRAWN = [result for result in BindResult if result not in {BindResult.DEFERRED, BindResult.PERMITTED}]
"""What comes by itself: a binding is deferred only where pacing says so."""
RESULTS = [*(BindResult.BOUND,) * 12, *DRAWN, BindResult.FAILED, BindResult.FAILED]
NOT_POSTPONED = [*(BindResult.BOUND,) * 5, BindResult.FENCED, BindResult.STALE, BindResult.OVERCOMMITTED]


@dataclass(frozen=True, slots=True)
class Pod:
    """What the loop must know of a pod."""

    namespace: str
    name: str
    ready_since: float
    kind: int
    tenant: str = "t"


@dataclass(frozen=True, slots=True)
class History:
    """constants: values for the rules' modules. events: (seconds since the start, what happens, how much), in order."""

    seed: int
    seconds: float
    slots: int
    constants: Mapping[str, float]
    events: Sequence[tuple[float, str, int]]
    longest_cycle_seconds: float
    longest_bind_seconds: float


def set_constants(history: History, patch: pytest.MonkeyPatch) -> None:
    """Set the values in each of the rules' modules that has them."""
    for name, value in history.constants.items():
        holders = [module for module in (pacing, postponements, rounds) if hasattr(module, name)]
        assert len(holders) == 1, name
        patch.setattr(holders[0], name, value)


def draw_history(seed: int) -> History:
    """Draw a history; every twentieth has the real limits, every tenth is long enough for sweeps."""
    draw = random.Random(seed)
    is_large, is_long = seed % 20 == 0, seed % 10 == 5
    limit = 256 if is_large else draw.choice([1, 4, 8])
    seconds = 1000.0 if is_long else draw.choice([3.0, 20.0, 60.0])
    constants = {
        "MAX_OUTSTANDING": limit,
        "LOW_WATER": 160 if is_large else limit * 5 // 8,
        "MAX_REMEMBERED": draw.choice([1, 3, 10_000]),
        "MANY_CLASSES": draw.choice([1, 3, 200]),
        "EXPLAIN_SECONDS": draw.choice([0.3, 4.7]),
        "EXPLAIN_SECONDS_PER_CLASS": draw.choice([5e-4, 2.0]),
    }
    names = ["add"] * 8 + ["remove"] * 3 + ["add quietly", "wake", "lead", "fail", "fail late", "slots", "end some"]
    events = [
        (draw.uniform(0.0, seconds), draw.choice(names), draw.randint(1, 400 if is_large else 12))
        for _ in range(draw.choice([0, 3, 8]) if is_long else draw.choice([3, 10, 40]))
    ]
    return History(
        seed=seed,
        seconds=seconds,
        slots=draw.choice([0, 1, 5, 2000]),
        constants=constants,
        events=sorted(events),
        longest_cycle_seconds=draw.choice([0.0, 0.01, 0.3, 4.0]),
        longest_bind_seconds=draw.choice([0.001, 0.01, 0.5, 15.0]),
    )


@dataclass
class Timeline:
    """What happened, each with its time. clock: of the history, seconds."""

    clock: Callable[[], float]
    notes: list[tuple[str, str]] = field(default_factory=list)

    def note(self, *words: object) -> None:
        self.notes.append((f"{self.clock():.6f}", " ".join(map(str, words))))

    @property
    def lines(self) -> list[str]:
        """Leave out beats beside something else, and put resumed pods last: the order in a moment is asyncio's."""
        lines: list[str] = []
        for at, group in itertools.groupby(self.notes, key=lambda note: note[0]):
            words = [what for _, what in group if what != "beat"]
            resumed = sorted(what for what in words if what.startswith("resume "))
            others = [what for what in words if not what.startswith("resume ")]
            lines.extend(f"{at} {what}" for what in [*others, *resumed] or ["beat"])
        return lines

    def compute_hash(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


class HistoricWorld:
    """One server, whose pods all take one slot, in classes by their kind; also the announcer, observer and health.

    spend: lets so many seconds pass in which nothing else can run, as a cycle does.
    """

    def __init__(self, history: History, timeline: Timeline, spend: Callable[[float], None]) -> None:
        self.settings = PolicySettings()
        self.timeline = timeline
        self.leads = True
        self.is_over = False
        self.on_change: Callable[[], None] = lambda: None
        self._history = history
        self._spend = spend
        self._draw = random.Random(f"world {history.seed}")
        # Where bindings are withdrawn, none is postponed: the old loop could decide twice in one turn of asyncio's,
        # and then resumed nobody in between.
        self._withdraws = history.seed % 4 == 0
        self._slots = history.slots
        self._count = 0
        self._pods: dict[str, Pod] = {}
        self._held: dict[str, str] = {}
        self._postponed: set[str] = set()
        self._classes: dict[int, TaskClass] = {}
        self._placements = [Placement(np.array([True])) for _ in range(12)]
        self._waits: dict[int, tuple[int, Wait]] = {}
        self._faults: dict[str, int] = {"fail": 0, "fail late": 0}

    # --- what happens ---

    def happen(self, what: str, count: int) -> None:
        self.timeline.note("-", what, count)
        if what in {"add", "add quietly"}:
            self._add(count)
        elif what == "remove":
            for uid in sorted(self._pods)[:count]:
                del self._pods[uid]
                self._held.pop(uid, None)
        elif what == "lead":
            self.leads = not self.leads
        elif what == "slots":
            self._slots = count
        elif what == "end some":
            for uid in sorted(self._held)[: count // 2]:
                del self._pods[uid], self._held[uid]
        elif what in self._faults:
            self._faults[what] += 1 + count % 3
        if what != "add quietly":
            self.on_change()

    def _add(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            uid = f"p{self._count:04}"
            kind = self._draw.randrange(len(self._placements))
            self._pods[uid] = Pod("ns", uid, EPOCH + self.timeline.clock(), kind)

    # --- the world ---

    def build_snapshot(self) -> Snapshot:
        self.timeline.note("snapshot")
        self._fail_if_due("fail")
        by_kind: dict[int, list[Task]] = {}
        for uid, pod in sorted(self._pods.items()):
            if uid not in self._held and uid not in self._postponed:
                by_kind.setdefault(pod.kind, []).append(Task(uid, f"ns/{uid}", 0, pod.ready_since))
        for kind, tasks in by_kind.items():
            known = self._classes.get(kind)
            if known is None or known.tasks != tuple(tasks):  # the same object as long as nothing changes
                self._classes[kind] = TaskClass("t", (1,), (1,), self._placements[kind], tuple(tasks))
        servers = ServerTable(
            names=("only",),
            capacity_kr=np.array([[self._slots]], dtype=np.int64),
            free_kr=np.array([[self._slots - len(self._held)]], dtype=np.int64),
            usable_k=np.array([True]),
            class_k=np.zeros(1, dtype=np.int32),
            class_names=("only",),
        )
        tenants = (Tenant("t", allocated_r=(len(self._held),)),)
        classes = tuple(self._classes[kind] for kind in sorted(by_kind))
        return Snapshot(("cpu",), (True,), (self._slots,), servers, tenants, classes)

    def find_pod(self, uid: str) -> Pod | None:
        return None if self._withdraws and self._draw.random() < 0.1 else self._pods.get(uid)

    def assume(self, uid: str, node: str, *, joins: bool = False) -> bool:
        assert not joins
        if (self._withdraws and self._draw.random() < 0.1) or uid not in self._pods or uid in self._held:
            return False
        self._held[uid] = node
        return True

    def forget(self, uid: str, *, postponed: bool = False) -> None:
        self.timeline.note("forget", uid, "for a while" if postponed else "")
        if self._held.pop(uid, None) is not None:
            if postponed:
                self._postponed.add(uid)
            self.on_change()

    def back_off(self, uid: str) -> None:
        self._postponed.add(uid)

    def resume(self, uid: str) -> None:
        if not self.is_over:
            self.timeline.note("resume", uid)
        if uid in self._postponed:
            self._postponed.discard(uid)
            self.on_change()

    def note_waits(self, waits: Sequence[Wait], node_count: int | None = None, *, rotates: bool = True) -> bool:
        """Note each wait by when it was first seen: one that is remembered is the same object as before."""
        assert rotates
        if node_count is not None:
            self._fail_if_due("fail late")
        for wait in waits:
            self._waits.setdefault(id(wait), (len(self._waits), wait))
        numbers = ",".join(f"{self._waits[id(wait)][0]}x{wait.waiting}" for wait in waits)
        self.timeline.note("tell" if node_count is None else "announce", "waits", numbers)
        return False

    def _fail_if_due(self, fault: str) -> None:
        if self._faults[fault]:
            self._faults[fault] -= 1
            raise RuntimeError(fault)

    # --- the cycle and the bindings ---

    def run_cycle(
        self,
        snapshot: Snapshot,
        policy: PolicySettings,
        now: float,
        *,
        limit: int,
        unschedulable: UnschedulableCache | None,
        state: CycleState | None = None,
        baseline: Policy | None = None,
        explains: bool = True,
        finds_rivals: bool = True,
        may_have: Callable[[str, int], bool] = lambda _tenant, _count: True,
        reservations: Reservations | None = None,
        find_owner: Callable[[str], str] | None = None,
    ) -> CycleReport:
        self._spend(self._draw.uniform(0.0, self._history.longest_cycle_seconds))
        report = run_cycle(
            snapshot,
            policy,
            now,
            limit=limit,
            unschedulable=unschedulable,
            state=state,
            baseline=baseline,
            explains=explains,
            finds_rivals=finds_rivals,
            may_have=may_have,
            reservations=reservations,
            find_owner=find_owner,
        )
        how = "all" if unschedulable is None else "by memory"
        end = "complete" if report.complete else "more"
        self.timeline.note(
            "decide", limit, how, f"{now - EPOCH:.6f}", *(bind.task.uid for bind in report.bindings), end
        )
        return report

    def draw_binding(self, uid: str) -> tuple[float, BindResult | None]:
        """Return how long a binding takes and how it ends; None: with an error."""
        seconds = self._draw.uniform(0.0, self._history.longest_bind_seconds)
        if self._withdraws:
            result: BindResult | None = self._draw.choice(NOT_POSTPONED)
        else:
            result = None if self._draw.random() < 0.02 else self._draw.choice(RESULTS)
        self.timeline.note("bind", uid)
        return seconds, result

    # --- announcer, observer and health ---

    def scheduled(self, namespace: str, name: str, uid: str, node: str) -> None:
        self.timeline.note("announce", namespace, name, uid, node)

    def pod_scheduled(self, tenant: str, seconds: float) -> None:
        assert tenant == "t"
        self.timeline.note("scheduled", f"{seconds:.6f}")

    def cycle_finished(self, seconds: float) -> None:
        self.timeline.note("finished", f"{seconds:.6f}")

    def cycle_failed(self) -> None:
        self.timeline.note("failed")

    def beat(self) -> None:
        self.timeline.note("beat")


def draw_histories() -> Iterator[History]:
    return map(draw_history, range(HISTORIES))
