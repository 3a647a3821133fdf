"""The operator's metrics: fixed names, base units, series that come and go with their tenants.

Two kinds of numbers. What *happened* (bindings, cycles, restarted watches) is counted when it happens. What *is*
(who holds what, the cluster's capacity) is not kept in gauges that must be deleted: the newest
`ClusterOverview` is turned into series at each scrape, so a deleted tenant has none.

Units are those of Prometheus: cores, bytes, seconds, counts; the label `unit` says which. The cardinality is bounded by
tenants x resources, by namespaces, and by a few server classes.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    exposition,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from fairbind import __version__
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model.overview import ClusterOverview
from fairbind.web.metric_specs import METRICS, OVERVIEW_METRICS
from fairbind.web.overview_samples import all_tenant_samples, by_resource, cluster_samples
from fairbind.web.resource_seconds import ResourceSeconds

BINDING_RESULTS = ("bound", "conflict", "gone", "invalid", "fenced", "stale", "crowded", "deferred", "failed")
WATCHED_RESOURCES = (
    *("pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes", "storageclasses"),
    *("csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
    *("resourceclaims", "deviceclasses", "resourceslices", "tenants", "schedulingpolicies", "jobs", "resourcequotas"),
    *(f"podgroups.scheduling.{group}" for group in ("k8s.io", "x-k8s.io", "volcano.sh")),
)
SOLVE_RESULTS = ("solved", "failed", "timeout")
RESTART_REASONS = ("expired", "connection", "unreadable", "unconfirmed")
EVICTION_RESULTS = ("evicted", "blocked", "failed")
REJECTIONS = ("resources", "ports", "node", "other")
REPORTING_PARTS = (
    *("recorder", "nominator", "status", "overview", "fair_shares", "journal", "turns", "share_reports"),
    *("group_status", "group_undo", "volcano_phases"),
)
COUNTED: Mapping[str, tuple[str, ...]] = {
    "fairbind_bindings_total": BINDING_RESULTS,
    "fairbind_rejected_pods_total": REJECTIONS,
    "fairbind_group_evictions_total": EVICTION_RESULTS,
    "fairbind_exact_solves_total": SOLVE_RESULTS,
    "fairbind_part_failures_total": REPORTING_PARTS,
}
"""Counters with one label, whose values are known."""
UNKNOWN_REVISION = "unknown"

CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SOLVE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
POD_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Few, because each tenant has its own series, and not below half a second: creation times are whole seconds."""


_SPECS = {spec.name: spec for spec in METRICS}
_FAMILIES: Mapping[str, type[GaugeMetricFamily | CounterMetricFamily]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
}


class OverviewCollector:
    """Turns the newest overview into series at the moment of a scrape. wall_clock: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.overview: ClusterOverview | None = None
        self._wall_clock = wall_clock
        self._resource_seconds = ResourceSeconds(clock)

    def show(self, overview: ClusterOverview) -> None:
        """Show this overview from now on."""
        self._resource_seconds.follow(overview)
        self.overview = overview

    def collect(self) -> Iterator[Metric]:
        """Give one family for each metric of tenants and of the cluster; none before the first overview."""
        overview = self.overview
        if overview is None:
            return
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            spec.name: _FAMILIES[spec.kind](spec.name, spec.description, labels=spec.labels)
            for spec in OVERVIEW_METRICS
        }
        for name, samples in cluster_samples(overview):
            for labels, value in samples:
                families[name].add_metric(labels, value)
        for name, samples in all_tenant_samples(overview):
            for labels, value in samples:
                families[name].add_metric(labels, value)
        for tenant_name, sums in self._resource_seconds.compute().items():
            for labels, value in by_resource([tenant_name], sums):
                families["fairbind_tenant_resource_seconds_total"].add_metric(labels, value)
        now = self._wall_clock()
        for tenant in overview.shown or overview.tenants:
            age = 0.0 if tenant.oldest_pending is None else max(0.0, now - tenant.oldest_pending)
            families["fairbind_tenant_oldest_pending_seconds"].add_metric([tenant.name], age)
        yield from families.values()


class Metrics:
    """Counts what the operator reports and renders it for Prometheus. One registry of its own, nothing global."""

    def __init__(
        self,
        *,
        revision: str = UNKNOWN_REVISION,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of series
        self.registry = CollectorRegistry()
        self._overviews = OverviewCollector(clock, wall_clock)
        self.registry.register(self._overviews)
        self._leader = self._gauge("fairbind_leader")
        self._gauge("fairbind_build_info").labels(__version__, revision, platform.python_version()).set(1)
        self._cycle_seconds = self._histogram("fairbind_scheduling_cycle_duration_seconds", CYCLE_BUCKETS)
        self._timed_tenants: set[str] = set()
        self._pod_seconds = self._histogram("fairbind_pod_scheduling_duration_seconds", POD_BUCKETS)
        self._restarts = self._counter("fairbind_watch_restarts_total")
        self._cycle_errors = self._counter("fairbind_cycle_errors_total")
        self._loop_lag = self._gauge("fairbind_loop_lag_seconds")
        self._watch_ages = self._gauge("fairbind_watch_age_seconds")
        self._solve_seconds = self._histogram("fairbind_exact_solve_duration_seconds", SOLVE_BUCKETS)
        # A counter that appears with its first event hides this event from rate(): start them all at 0.
        self._counters = {name: self._counter(name) for name in COUNTED}
        for name, labels in COUNTED.items():
            for label in labels:
                self._counters[name].labels(label)
        for resource in WATCHED_RESOURCES:
            for reason in RESTART_REASONS:
                self._restarts.labels(resource, reason)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        spec = _SPECS[name]
        return Gauge(name, spec.description, spec.labels, registry=self.registry)

    def _counter(self, name: str) -> Counter:
        spec = _SPECS[name]
        return Counter(name, spec.description, spec.labels, registry=self.registry)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        spec = _SPECS[name]
        return Histogram(name, spec.description, spec.labels, registry=self.registry, buckets=buckets)

    def binding_finished(self, result: str) -> None:
        """Count a binding by its result."""
        self._counters["fairbind_bindings_total"].labels(result).inc()

    def pod_scheduled(self, tenant: str, seconds: float) -> None:
        """Time a pod until its binding; a clock that differs from the server's may say below 0."""
        name = find_tenant_of_leaf(tenant)
        self._timed_tenants.add(name)
        self._pod_seconds.labels(name).observe(max(0.0, seconds))

    def pod_rejected(self, rejection: str) -> None:
        """Count a pod that its kubelet refused."""
        self._counters["fairbind_rejected_pods_total"].labels(rejection).inc()

    def member_evicted(self, result: str) -> None:
        """Count an eviction of a member of a group by its result."""
        self._counters["fairbind_group_evictions_total"].labels(result).inc()

    def cycle_finished(self, seconds: float) -> None:
        """Time a cycle."""
        self._cycle_seconds.observe(seconds)

    def cycle_failed(self) -> None:
        """Count a cycle that raised an error."""
        self._cycle_errors.inc()

    def exact_solve_finished(self, result: str, seconds: float) -> None:
        """Count and time a solve of the fair shares."""
        self._counters["fairbind_exact_solves_total"].labels(result).inc()
        self._solve_seconds.observe(seconds)

    def watch_restarted(self, resource: str, reason: str) -> None:
        """Count a watch that began again."""
        self._restarts.labels(resource, reason).inc()

    def watch_aged(self, resource: str, seconds: float) -> None:
        """Show how old what is known about a resource may be."""
        self._watch_ages.labels(resource).set(seconds)

    def loop_lagged(self, seconds: float) -> None:
        """Show how late the event loop came back to its clock."""
        self._loop_lag.set(seconds)

    def part_failed(self, part: str) -> None:
        """Count an error of a part that only reports."""
        self._counters["fairbind_part_failures_total"].labels(part).inc()

    def leadership_changed(self, leading: bool) -> None:  # noqa: FBT001 - the one thing that the call says
        """Show whether this replica leads."""
        self._leader.set(1 if leading else 0)

    def overview_changed(self, overview: ClusterOverview) -> None:
        """Show this overview from now on. A tenant that is not in it is gone, and so are its times."""
        self._overviews.show(overview)
        gone = self._timed_tenants.difference(find_tenant_of_leaf(tenant.name) for tenant in overview.tenants)
        for tenant in gone:
            self._pod_seconds.remove(tenant)
        self._timed_tenants -= gone

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return everything in the format that an Accept header asks for, and its content type."""
        encode, content_type = exposition.choose_encoder(accept)
        return encode(self.registry), content_type
