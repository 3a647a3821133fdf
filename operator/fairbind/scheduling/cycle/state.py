"""What stays as it was from one cycle to the next, so that a cycle for one new pod costs what one pod costs.

Between two cycles a few tenants and a few servers change. Everything that follows from the others only is kept here, by
the identity of the object that it was made from: tenants' progress and shares. All of it is remade when it
is not there, so a state changes how long a cycle takes and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import compress, count
from operator import is_not

from fairbind.model import Snapshot, Targets, TaskClass, Tenant
from fairbind.scheduling.cycle.checks import CheckedTenants, check_snapshot
from fairbind.scheduling.policies.levels import Progress, compute_progress

_Axes = tuple[tuple[str, ...], tuple[bool, ...], tuple[int, ...]]
_NO_AXES: _Axes = (), (), ()


class CycleState:
    """For callers of `run_cycle` that make many cycles; one cycle (or draft) at a time may use it.

    It holds on to the last snapshot's tenants, task classes and arrays, which must not be written to.

    _places: where each tenant is in the last snapshot, in the order of their names. _compared: the last snapshot that
    was compared with it. _counted: the tenants in whose progress the last cycle counted something; None: it did not
    come to its end. _stale: those whose shares are not in `_shares`.
    """

    __slots__ = (
        "_axes",
        "_compared",
        "_counted",
        "_places",
        "_progress_of",
        "_ruled",
        "_seen",
        "_shares",
        "_sizes",
        "_stale",
        "_targets",
        "_tenants",
    )

    def __init__(self) -> None:
        self._axes = _NO_AXES
        self._seen: tuple[TaskClass, ...] = ()
        self._ruled: dict[TaskClass, None] = {}
        self._sizes = 0, 0
        self._tenants: tuple[Tenant, ...] = ()
        self._targets: Targets | None = None
        self._places: dict[str, int] = {}
        self._compared: tuple[Snapshot, list[int] | None] | None = None
        self._progress_of: dict[str, Progress] = {}
        self._counted: AbstractSet[str] | None = None
        self._stale: set[str] = set()
        self._shares: dict[str, tuple[str, float]] = {}

    def check(self, snapshot: Snapshot) -> Snapshot:
        """Check what is other in a snapshot than before, and return it with what is known of that.

        Raises InvalidProblemError as `check_snapshot`.
        """
        changes, sizes = snapshot.compute_changes(self._seen), _get_sizes(snapshot)
        fresh = changes.added if sizes == self._sizes else snapshot.task_classes
        changed = self._find_changed(snapshot)
        if changed is None:
            check_snapshot(snapshot, fresh, None, self._targets)
        else:
            tenants = CheckedTenants(self._places.keys(), [snapshot.tenants[place] for place in changed])
            check_snapshot(snapshot, fresh, tenants, self._targets)
        self._targets = snapshot.targets
        for task_class in changes.removed:
            self._ruled.pop(task_class, None)
        for task_class in changes.added:
            if task_class.has_rules_or_preferences:
                self._ruled[task_class] = None
        self._seen, self._sizes = snapshot.task_classes, sizes
        return snapshot if changes is snapshot.changes else replace(snapshot, changes=changes)

    def _find_changed(self, snapshot: Snapshot) -> list[int] | None:
        """Return the places of tenants that are other objects than before; None: resources or names differ."""
        if self._compared is None or self._compared[0] is not snapshot:
            self._compared = snapshot, self._compare(snapshot)
        return self._compared[1]

    def _compare(self, snapshot: Snapshot) -> list[int] | None:
        tenants, before = snapshot.tenants, self._tenants
        if len(tenants) != len(before) or _get_axes(snapshot) != self._axes:
            return None
        changed = list(compress(count(), map(is_not, tenants, before)))
        return changed if all(tenants[place].name == before[place].name for place in changed) else None

    def get_ruled(self) -> Collection[TaskClass]:
        """Return the task classes that have rules or preferences."""
        return self._ruled.keys()

    def get_progress(self, snapshot: Snapshot) -> dict[str, Progress]:
        """Return each tenant's progress at the beginning of a cycle, in the order of their names.

        The progress of a tenant that is the same object is the same object too, if nothing was counted in it.
        """
        changed, tenants, former = self._find_changed(snapshot), snapshot.tenants, self._tenants
        self._tenants, self._axes, self._compared = (), _NO_AXES, None  # until all is right
        if changed is None:
            self._places = dict(sorted((tenant.name, place) for place, tenant in enumerate(tenants)))
            self._shares = {name: (name, 0.0) for name in self._places}
            self._progress_of = {}
            self._stale.clear()
            stale: Collection[str] = self._places
        else:
            counted = self._counted
            if counted is None:
                counted = {name for name, progress in self._progress_of.items() if progress.version}
            stale = counted | {tenants[place].name for place in changed}
        for name in stale:
            tenant, terms = tenants[self._places[name]], None
            if changed is not None and _have_same_weights(tenant, former[self._places[name]]):
                terms = self._progress_of[name].terms
            self._progress_of[name] = compute_progress(tenant, snapshot, terms)
        self._stale.update(stale)
        self._axes, self._tenants, self._counted = _get_axes(snapshot), tenants, None
        return self._progress_of.copy()

    def compute_shares(self, snapshot: Snapshot, counted: AbstractSet[str]) -> tuple[tuple[str, float], ...]:
        """Return the shares of all tenants at the end of a cycle, by name.

        counted: the tenants in whose progress something was counted since `get_progress`.
        """
        for name in self._stale | counted:
            self._shares[name] = name, self._progress_of[name].compute_share(snapshot.total_r)
        self._stale, self._counted = set(), counted
        return tuple(self._shares.values())


def _get_axes(snapshot: Snapshot) -> _Axes:
    return snapshot.resources, snapshot.counts_r, snapshot.total_r


def _have_same_weights(one: Tenant, other: Tenant) -> bool:
    """Whether two tenants have the same weights; False: it is not known."""
    return one.weight is other.weight and one.resource_weights is other.resource_weights


def _get_sizes(snapshot: Snapshot) -> tuple[int, int]:
    return len(snapshot.resources), len(snapshot.servers.names)
