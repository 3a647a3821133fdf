"""What a replica is told at its start, and what it finds around it."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fairbind.cluster.state.undoing import UndoRule
from fairbind.cluster.tenancy.object_table import ObjectTable
from fairbind.kube.fair_shares.fair_shares import Solver
from fairbind.kube.fair_shares.solver_process import ExactSolver
from fairbind.kube.operator.clocks import Clocks
from fairbind.kube.operator.election import Election, OnChange
from fairbind.kube.operator.extender import ExtenderSettings
from fairbind.kube.operator.gates import GateSettings
from fairbind.kube.writers.share_report import ReportWords

YOUNG_OBJECTS = 20_000
"""How many new containers wake Python's cycle collector. Its default, 700, makes it run hundreds of times a second
during a backlog, while hardly anything here forms cycles."""


KEPT_SECONDS = 60.0
"""So long a controller may take to make another member."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """namespace: of the lease. identity: of this run, among all replicas.

    gates: of gate mode; None: there is none. extender: of extender mode; None: there is none.
    shows_taints: whether the messages of waiting pods name each taint with its key and value. report_words: what
    ShareReports may say; None: there are none. kept_seconds: for how long places of lost members are kept for their
    groups; 0: they are not. other_names: further schedulerNames of pods that are placed. undo_rule: what happens to
    groups that cannot be completed.
    volcano_inqueue: whether Jobs of Volcano may make their pods.
    """

    namespace: str
    scheduler_name: str
    identity: str
    gates: GateSettings | None = None
    extender: ExtenderSettings | None = None
    shows_taints: bool = False
    report_words: ReportWords | None = None
    kept_seconds: float = KEPT_SECONDS
    other_names: frozenset[str] = frozenset()
    undo_rule: UndoRule = field(default_factory=UndoRule)
    volcano_inqueue: bool = False

    def find_cache_fields(self) -> dict[str, Any]:
        """Return what the cache is told of them, by its parameters' names."""
        return {
            "operator_namespace": self.namespace,
            "gated_scheduler": None if self.gates is None else self.gates.scheduler_name,
            "asking": frozenset() if self.extender is None else self.extender.scheduler_names,
            "kept_seconds": self.kept_seconds,
            "other_names": self.other_names,
            "narrows_to_nodes": self.gates is not None and self.gates.narrows_to_nodes,
        }


class Follower(Protocol):
    """Who keeps the tables of Tenants and SchedulingPolicies up to date."""

    @property
    def listed(self) -> asyncio.Event:
        """Set when both kinds were listed once."""

    def find_ages(self) -> Mapping[str, float]:
        """Return for each kind that was listed how many seconds old what is known about it may be."""

    async def run(self) -> None:
        """Follow both kinds until cancelled."""


Answer = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Answers kube-scheduler in extender mode: status and body for a verb and a request's body."""

MakeFollower = Callable[[Mapping[str, ObjectTable]], Follower]
"""Makes a follower that fills these tables, by the kind's plural."""


def freeze_heap() -> None:
    """Take what was listed out of the collector's sight; it lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a replica finds around it; the defaults are those of a process of its own.

    randomness: spreads what many would do at the same moment. make_follower: None follows through kopf.
    make_election: None holds the election on the same loop. on_listed: called once, before the first decision.
    serve_extender: serves the answers of extender mode until cancelled; None: they are asked for directly.
    """

    clocks: Clocks = field(default_factory=Clocks)
    randomness: random.Random = field(default_factory=random.Random)
    make_solver: Callable[[], Solver] = ExactSolver
    make_follower: MakeFollower | None = None
    make_election: Callable[[OnChange], Election] | None = None
    on_listed: Callable[[], None] = freeze_heap
    serve_extender: Callable[[Answer], Coroutine[Any, Any, None]] | None = None
