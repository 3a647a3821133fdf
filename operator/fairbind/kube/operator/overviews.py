"""The overview of the cluster, made again when something changed, for metrics, pages and statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.cache.overview import complete_overview
from fairbind.cluster.tenancy.tenants import TenantState
from fairbind.kube.fair_shares.fair_shares import FairShares
from fairbind.kube.observer import Observer
from fairbind.kube.operator.node_fault_log import NodeFaultLog
from fairbind.kube.part_failures import PartFailures
from fairbind.model import Snapshot
from fairbind.model.overview import ClusterOverview
from fairbind.model.reservations import Reserved

OVERVIEW_SECONDS = 1.0


class Overviews:
    """The last overview, and the states of Tenants as of then. A standby makes them too.

    may_decide: whether this replica runs cycles, which bring snapshots up to date. sum_reserved: see
    `Reservations.sum_by_tenant`. find_refused: tenants whose bindings fail.
    """

    def __init__(
        self,
        cache: ClusterCache,
        fair_shares: FairShares,
        observer: Observer,
        failures: PartFailures,
        may_decide: Callable[[], bool],
        *,
        sum_reserved: Callable[[], Mapping[str, Reserved]],
        find_refused: Callable[[], Collection[str]],
    ) -> None:
        self.last: ClusterOverview | None = None
        self.states: Mapping[str, TenantState] = {}
        self._cache = cache
        self._fair_shares = fair_shares
        self._observer = observer
        self._failures = failures
        self._may_decide = may_decide
        self._sum_reserved = sum_reserved
        self._find_refused = find_refused
        self._node_fault_log = NodeFaultLog()

    async def run(self) -> None:
        """Publish until cancelled."""
        shown: tuple[Snapshot | None, Mapping[str, float] | None] = None, None
        while True:
            if not self._may_decide():  # a standby has no cycles that would do it
                self._cache.go_on()
            now = self._cache.build_snapshot(), self._fair_shares.shares
            # A decision changes the snapshot too, although it wakes no cycle; reasons change while a pod waits.
            if any(new is not old for new, old in zip(now, shown, strict=True)) or self._cache.queries.has_waiting:
                shown = now
                with self._failures.contain("overview"):
                    self.publish()
            await asyncio.sleep(OVERVIEW_SECONDS)

    def publish(self) -> None:
        """Make an overview and tell the observer."""
        overview = self._cache.queries.build_overview(self._fair_shares.shares, self._fair_shares.inner_shares)
        complete = complete_overview(overview, self._sum_reserved(), self._find_refused())
        self.last = replace(complete, audit=self._fair_shares.audit)
        self.states = self._cache.queries.tenant_states()
        self._node_fault_log.follow(self.last.node_faults, self.last.left_out)
        self._observer.overview_changed(self.last)

    def advance_rests(self, now: float) -> None:
        """Let nodes whose rest after refused pods is over take pods again, and log it. now: monotonic seconds."""
        self._node_fault_log.note_rests(self._cache.advance_rests(now))
