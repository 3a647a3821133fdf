"""What stays as it was from one cycle to the next, so that a cycle for one new pod costs what one pod costs.

Between two cycles a few tenants and a few servers change. Everything that follows from the others only is kept here:
tenants' progress and shares. All of it is remade when it is not there, so a state changes how long a cycle takes and
nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import compress, count
from operator import is_not

import numpy as np

from fairbind.derived import Table
from fairbind.model import ServerTable, Snapshot, Targets, TaskClass
from fairbind.model.hierarchy import FLAT
from fairbind.scheduling.cycle.checks import CheckedTenants, check_snapshot
from fairbind.scheduling.cycle.order.kept_back import KeepingRules
from fairbind.scheduling.cycle.order.least_asked import AskedAmounts
from fairbind.scheduling.policies.levels import Progress, compute_progress

_NO_AMOUNTS = np.zeros((0, 0), dtype=np.int64)
_NO_SERVERS = ServerTable((), _NO_AMOUNTS, _NO_AMOUNTS, np.zeros(0, np.bool_), np.zeros(0, np.int32), ())


class CycleState:
    """For callers of `run_cycle` that make many cycles; one cycle (or draft) at a time may use it.

    It holds on to the last snapshot's tenants and task classes, and not to its arrays: their memory serves the next.

    _classes, _sizes, _targets: of the last snapshot that was checked. _begun: the last one with which a cycle began,
    without servers and classes. _is_ended: whether that cycle came to its end. _places: where each tenant is in it, in
    the order of their names. _compared: the last snapshot that was compared with it. _asked: what the classes ask for;
    None: not asked for yet. _hierarchy: the last one that was checked. keeping: adds rules about what is kept back.
    """

    __slots__ = (
        "_asked",
        "_begun",
        "_classes",
        "_compared",
        "_hierarchy",
        "_is_ended",
        "_places",
        "_progress",
        "_ruled",
        "_shares",
        "_sizes",
        "_targets",
        "keeping",
    )

    def __init__(self) -> None:
        self._classes: tuple[TaskClass, ...] = ()
        self._sizes = 0, 0
        self._targets: Targets | None = None
        self._hierarchy = FLAT
        self.keeping = KeepingRules()
        self._asked: AskedAmounts | None = None
        self._ruled: dict[TaskClass, None] = {}
        self._begun: Snapshot | None = None
        self._is_ended = False
        self._compared: tuple[Snapshot, list[int] | None] | None = None
        self._places: dict[str, int] = {}
        self._progress: Table[str, Progress]
        self._shares: Table[str, tuple[str, float]]

    def check(self, snapshot: Snapshot) -> Snapshot:
        """Check what is other in a snapshot than before, and return it with what is known of that.

        Raises InvalidProblemError as `check_snapshot`.
        """
        changes, sizes = snapshot.compute_changes(self._classes), _get_sizes(snapshot)
        fresh = changes.added if sizes == self._sizes else snapshot.task_classes
        changed, tenants = self._find_changed(snapshot), None
        if changed is not None:
            tenants = CheckedTenants(self._places.keys(), [snapshot.tenants[place] for place in changed])
        check_snapshot(snapshot, fresh, tenants, self._targets, self._hierarchy if sizes == self._sizes else FLAT)
        for task_class in changes.removed:
            self._ruled.pop(task_class, None)
        for task_class in changes.added:
            if task_class.has_rules_or_preferences:
                self._ruled[task_class] = None
        if sizes != self._sizes or snapshot.hierarchy.is_flat:
            self._asked = None
        elif self._asked is not None:
            for task_class in changes.removed:
                self._asked.discard(task_class)
            for task_class in changes.added:
                self._asked.add(task_class)
        self._classes, self._sizes, self._targets = snapshot.task_classes, sizes, snapshot.targets
        self._hierarchy = snapshot.hierarchy
        return snapshot if changes is snapshot.changes else replace(snapshot, changes=changes)

    def _find_changed(self, snapshot: Snapshot) -> list[int] | None:
        """Return the places of tenants that are other objects than before; None: resources or names differ."""
        if self._compared is None or self._compared[0] is not snapshot:
            self._compared = snapshot, self._compare(snapshot)
        return self._compared[1]

    def _compare(self, snapshot: Snapshot) -> list[int] | None:
        begun, tenants = self._begun, snapshot.tenants
        if begun is None or not self._is_ended or len(tenants) != len(begun.tenants):
            return None
        if _get_axes(snapshot) != _get_axes(begun):
            return None
        changed = list(compress(count(), map(is_not, tenants, begun.tenants)))
        return changed if all(tenants[place].name == begun.tenants[place].name for place in changed) else None

    def get_ruled(self) -> Collection[TaskClass]:
        """Return the task classes that have rules or preferences."""
        return self._ruled.keys()

    def get_asked(self, snapshot: Snapshot) -> AskedAmounts:
        """Return what the classes of a snapshot that was checked ask for."""
        if self._asked is None:
            self._asked = AskedAmounts(len(snapshot.resources), snapshot.task_classes)
        return self._asked

    def get_progress(self, snapshot: Snapshot) -> dict[str, Progress]:
        """Return each tenant's progress at the beginning of a cycle, in the order of their names.

        The progress of a tenant that is the same object is the same object too, if nothing was counted in it.
        """
        changed, tenants = self._find_changed(snapshot), snapshot.tenants
        self._begun = replace(snapshot, servers=_NO_SERVERS, task_classes=(), changes=None, running={}, targets=None)
        self._is_ended, self._compared = False, None
        if changed is None:
            self._places = dict(sorted((tenant.name, place) for place, tenant in enumerate(tenants)))
            self._progress = Table(self._compute_progress, self._places.keys)
            self._shares = Table(self._compute_share, self._places.keys)
        else:
            self._note_changes(tenants[place].name for place in changed)
        self._progress.refresh()
        return self._progress.values.copy()

    def compute_shares(self, counted: AbstractSet[str]) -> tuple[tuple[str, float], ...]:
        """End a cycle, and return the shares of all tenants, by name.

        counted: the tenants in whose progress something was counted since `get_progress`.
        """
        for name in counted:
            self._shares.note_change(name)
        self._shares.refresh()
        shares = tuple(self._shares.values.values())
        self._note_changes(counted)
        self._is_ended = True
        return shares

    def _note_changes(self, names: Iterable[str]) -> None:
        for name in names:
            self._progress.note_change(name)
            self._shares.note_change(name)

    def _compute_progress(self, name: str) -> Progress | None:
        """Return what a tenant holds at the beginning of a cycle, with its weights."""
        assert self._begun is not None
        return compute_progress(self._begun.tenants[self._places[name]], self._begun)

    def _compute_share(self, name: str) -> tuple[str, float] | None:
        """Return a tenant with its share at the end of a cycle."""
        assert self._begun is not None
        self._progress.refresh()
        return name, self._progress.values[name].compute_share(self._begun.total_r)


def _get_axes(snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[bool, ...], tuple[int, ...]]:
    return snapshot.resources, snapshot.counts_r, snapshot.total_r


def _get_sizes(snapshot: Snapshot) -> tuple[int, int]:
    return len(snapshot.resources), len(snapshot.servers.names)
