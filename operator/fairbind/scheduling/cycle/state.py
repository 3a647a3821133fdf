"""What stays as it was from one cycle to the next, so that a cycle for one new pod costs what one pod costs.

Between two cycles a few tenants and a few servers change. Everything that follows from the others only is kept here, by
the identity of the object that it was made from: tenants' progress and shares, the pools of the server classes, what
is left on the servers, the order of the servers for a placement. All of it is remade when it is not there, so a state
changes how long a cycle takes and nothing else.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from fairbind.model import ServerTable, Snapshot, TaskClass, Tenant
from fairbind.model.servers import FloatArray, IntArray
from fairbind.scheduling.cycle.checks import CheckedTenants
from fairbind.scheduling.cycle.layouts import Layouts
from fairbind.scheduling.cycle.room import compute_left
from fairbind.scheduling.policies.level_pools import LevelPools
from fairbind.scheduling.policies.levels import Progress, compute_progress
from fairbind.scheduling.policies.measures import DominantShares, Measure
from fairbind.scheduling.policies.registry import Policy

MANY_PART = 8
"""When more than one in so many servers changed, what is left on all of them is recomputed."""

_Axes = tuple[tuple[str, ...], tuple[bool, ...], tuple[int, ...]]


class CycleState:
    """For callers of `run_cycle` that make many cycles; one cycle (or draft) at a time may use it.

    It holds on to the last snapshot's tenants, task classes and arrays, which must not be written to.
    """

    __slots__ = (
        "_axes",
        "_classes",
        "_free_kr",
        "_layouts",
        "_left_rk",
        "_measure",
        "_measured",
        "_names",
        "_progress_of",
        "_sizes",
        "_tenants",
    )

    def __init__(self) -> None:
        self._axes: _Axes = (), (), ()
        self._classes: dict[int, TaskClass] = {}
        self._sizes = 0, 0
        self._tenants: tuple[Tenant, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._progress_of: dict[str, Progress] = {}
        self._measure: DominantShares | None = None
        self._measured: tuple[Policy, ServerTable, _Axes] | None = None
        self._free_kr: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._left_rk: FloatArray = np.zeros((0, 0))
        self._layouts = Layouts(None, None)

    def get_checked(self, snapshot: Snapshot) -> CheckedTenants:
        """Return what is known of the tenants of a snapshot."""
        changed = self._find_changed(snapshot)
        if changed is None:
            return CheckedTenants(None, snapshot.tenants)
        return CheckedTenants(self._names, [tenant for _, tenant in changed])

    def _find_changed(self, snapshot: Snapshot) -> list[tuple[int, Tenant]] | None:
        """Return the tenants that are other objects than before, with their places; None: resources or names differ."""
        if len(snapshot.tenants) != len(self._tenants) or _get_axes(snapshot) != self._axes:
            return None
        before = self._tenants
        pairs = enumerate(zip(snapshot.tenants, before, strict=True))
        changed = [(n, tenant) for n, (tenant, known) in pairs if tenant is not known]
        return changed if all(tenant.name == before[n].name for n, tenant in changed) else None

    def get_checked_classes(self, snapshot: Snapshot) -> Container[int]:
        """Return the identities of task classes that went with so many resources and servers before."""
        return self._classes if _get_sizes(snapshot) == self._sizes else ()

    def note_checked(self, snapshot: Snapshot) -> None:
        """Remember that the parts of a snapshot go together."""
        self._classes = {id(task_class): task_class for task_class in snapshot.task_classes}
        self._sizes = _get_sizes(snapshot)

    def get_progress(self, snapshot: Snapshot) -> dict[str, Progress]:
        """Return each tenant's progress at the beginning of a cycle, in the order of their names.

        The progress of a tenant that is the same object is the same object too, if nothing was counted in it.
        """
        changed = self._find_changed(snapshot)
        if changed is None:
            ordered = sorted(snapshot.tenants, key=lambda tenant: tenant.name)
            self._progress_of = {tenant.name: compute_progress(tenant, snapshot) for tenant in ordered}
            self._names = frozenset(self._progress_of)
        else:
            progress_of = self._progress_of
            for _, tenant in changed:
                progress_of[tenant.name] = compute_progress(tenant, snapshot)
            used = [progress for progress in progress_of.values() if progress.version]
            if used:
                by_name = {tenant.name: tenant for tenant in snapshot.tenants}
                for progress in used:
                    progress_of[progress.name] = compute_progress(by_name[progress.name], snapshot)
        self._axes, self._tenants = _get_axes(snapshot), snapshot.tenants
        return self._progress_of.copy()

    def get_measure(self, policy: Policy, snapshot: Snapshot) -> Measure:
        """Return the policy's measure at the beginning of a cycle.

        One that looks only at progress and at pools from which nothing is taken is kept while the pools are the same.
        """
        servers, axes = snapshot.servers, _get_axes(snapshot)
        if self._measure is not None and self._measured is not None:
            known_policy, known, known_axes = self._measured
            if policy is known_policy and axes == known_axes and _have_same_capacity(servers, known):
                return self._measure
        measure = policy.build_measure(snapshot)
        is_kept = isinstance(measure, DominantShares) and not measure.pools.residual
        self._measure = measure if is_kept and isinstance(measure, DominantShares) else None
        self._measured = (policy, servers, axes) if is_kept else None
        return measure

    def get_left(self, servers: ServerTable) -> FloatArray:
        """Return what is left on each server at the beginning of a cycle, as `compute_left`; the caller owns it."""
        free_kr, before = servers.free_kr, self._free_kr
        if free_kr.shape != before.shape:
            self._left_rk = compute_left(free_kr)
        elif free_kr is not before:
            changed = np.flatnonzero((free_kr != before).any(axis=1))
            if len(changed) * MANY_PART > len(free_kr):
                self._left_rk = compute_left(free_kr)
            else:
                self._left_rk[:, changed] = compute_left(free_kr[changed])
        self._free_kr = free_kr
        return self._left_rk.copy()

    def get_layouts(self, servers: ServerTable, pools: LevelPools) -> Layouts:
        """Return the layouts of placements that the last cycle used, if they are still right."""
        self._layouts = self._layouts.renew(servers, pools)
        return self._layouts


def _get_axes(snapshot: Snapshot) -> _Axes:
    return snapshot.resources, snapshot.counts_r, snapshot.total_r


def _get_sizes(snapshot: Snapshot) -> tuple[int, int]:
    return len(snapshot.resources), len(snapshot.servers.names)


def _have_same_capacity(one: ServerTable, other: ServerTable) -> bool:
    return (
        one.capacity_kr is other.capacity_kr
        and one.usable_k is other.usable_k
        and one.class_k is other.class_k
        and one.class_names == other.class_names
    )
