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
from dataclasses import dataclass
from typing import Literal

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
from fairbind.web.overview_samples import all_tenant_samples, by_resource, cluster_samples
from fairbind.web.resource_seconds import ResourceSeconds

BINDING_RESULTS = ("bound", "conflict", "gone", "invalid", "fenced", "stale", "crowded", "deferred", "failed")
WATCHED_RESOURCES = (
    *("pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes", "storageclasses"),
    *("csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
    *("resourceclaims", "deviceclasses", "resourceslices", "tenants", "schedulingpolicies", "jobs"),
    *(f"podgroups.scheduling.{group}" for group in ("k8s.io", "x-k8s.io", "volcano.sh")),
)
SOLVE_RESULTS = ("solved", "failed", "timeout")
RESTART_REASONS = ("expired", "connection", "unreadable", "unconfirmed")
REJECTIONS = ("resources", "ports", "node", "other")
REPORTING_PARTS = (
    *("recorder", "nominator", "status", "overview", "fair_shares", "journal", "turns", "share_reports"),
    "group_status",
)
UNKNOWN_REVISION = "unknown"

CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SOLVE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
POD_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Few, because each tenant has its own series, and not below half a second: creation times are whole seconds."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric as it is documented: its full name, kind, labels and what it means."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    description: str


TENANT_METRICS = (
    MetricSpec(
        "fairbind_tenant_dominant_share",
        "gauge",
        ("tenant",),
        "Largest share of any fairness resource of the cluster that the tenant holds, from 0 to 1.",
    ),
    MetricSpec(
        "fairbind_tenant_weighted_dominant_share",
        "gauge",
        ("tenant",),
        "Dominant share divided by the tenant's weights: what the fair policies equalise. Above 1 with small weights.",
    ),
    MetricSpec(
        "fairbind_tenant_dominant_resource",
        "gauge",
        ("tenant", "resource"),
        "1 for the resource of which the tenant holds its largest share, 0 for the others that it holds.",
    ),
    MetricSpec("fairbind_tenant_weight", "gauge", ("tenant",), "Weight of the tenant."),
    MetricSpec(
        "fairbind_tenant_fair_share",
        "gauge",
        ("tenant",),
        "Dominant share that the policy's exact mechanism gives the tenant for all that it wants now. Absent when the "
        "policy has no such mechanism, or before its first answer.",
    ),
    MetricSpec(
        "fairbind_tenant_allocated",
        "gauge",
        ("tenant", "resource", "unit"),
        "What the tenant's bound and not finished pods request. Of a tenant with others below it, amounts and pods are "
        "those of its own namespaces, so that sums over tenants are right; its shares are of all below it.",
    ),
    MetricSpec(
        "fairbind_tenant_limit",
        "gauge",
        ("tenant", "resource", "unit"),
        "The most that the tenant may hold by its spec.limit: on all nodes, or in sum over the kinds of nodes that it "
        "names. Absent without a limit.",
    ),
    MetricSpec(
        "fairbind_tenant_guarantee",
        "gauge",
        ("tenant", "resource", "unit"),
        "Amount that counts of the tenant's spec.guarantee: on all nodes, or in sum over the kinds of nodes that it "
        "names. Absent without a guarantee.",
    ),
    MetricSpec(
        "fairbind_tenant_kept_back",
        "gauge",
        ("tenant", "resource", "unit"),
        "Amount of its guarantee that stays free for the tenant because of lending Never. Absent without any.",
    ),
    MetricSpec(
        "fairbind_tenant_parent_info",
        "gauge",
        ("tenant", "parent"),
        "Parent of a tenant that has one: 1.",
    ),
    MetricSpec(
        "fairbind_tenant_resource_seconds_total",
        "counter",
        ("tenant", "resource", "unit"),
        "What the tenant's pods request, summed over time: core-seconds, byte-seconds, and so on. All replicas count. "
        "For showback take the one that counted most: max by (tenant, resource, unit) (increase(...[30d])). Users of a "
        "tenant count together.",
    ),
    MetricSpec(
        "fairbind_tenant_share_gap",
        "gauge",
        ("tenant", "cause"),
        "Part of its fair share that a tenant with backlog lacks, from 0 to 1. The cause is refused, reserved, "
        "ineligible or history.",
    ),
    MetricSpec(
        "fairbind_reserved",
        "gauge",
        ("tenant", "resource", "unit"),
        "What reservations keep for the tenant on nodes where its next pods do not fit yet. Absent without any.",
    ),
    MetricSpec(
        "fairbind_scattered",
        "gauge",
        ("resource", "unit"),
        "Free amount that would be enough for a group that waits, if it were not in pieces that are too small, or in "
        "too many topology domains. Absent without any.",
    ),
    MetricSpec(
        "fairbind_tenant_oldest_pending_seconds",
        "gauge",
        ("tenant",),
        "Age of the tenant's oldest waiting pod that some node may take; 0 without one.",
    ),
    MetricSpec(
        "fairbind_tenant_virtual_dominant_share",
        "gauge",
        ("tenant", "server_class"),
        "Share of a server class alone that the tenant's whole allocation would be, which can be far above 1; "
        "the classes where most of its pods run, eight at most.",
    ),
    MetricSpec(
        "fairbind_tenant_running_pods",
        "gauge",
        ("tenant",),
        "Pods of the tenant that are bound by any scheduler and not finished.",
    ),
    MetricSpec(
        "fairbind_tenant_pending_pods",
        "gauge",
        ("tenant", "reason"),
        "Pods of the tenant that wait for a node, by the kind of reason.",
    ),
)

CLUSTER_METRICS = (
    MetricSpec(
        "fairbind_namespace_tenant_info",
        "gauge",
        ("namespace", "tenant"),
        "Always 1; its labels say which tenant a namespace belongs to.",
    ),
    MetricSpec(
        "fairbind_cluster_capacity",
        "gauge",
        ("resource", "unit"),
        "What tenants can hold on Ready nodes that are not cordoned, and what they hold on others.",
    ),
    MetricSpec("fairbind_cluster_allocated", "gauge", ("resource", "unit"), "What all tenants hold."),
    MetricSpec(
        "fairbind_server_class_nodes",
        "gauge",
        ("server_class",),
        "Nodes of a server class. The 32 largest classes are shown; the others together have the name *.",
    ),
    MetricSpec(
        "fairbind_server_class_capacity",
        "gauge",
        ("server_class", "resource", "unit"),
        "What tenants can hold on the class's Ready nodes that are not cordoned, and what they hold on its others.",
    ),
    MetricSpec(
        "fairbind_server_class_allocated",
        "gauge",
        ("server_class", "resource", "unit"),
        "What tenants hold on the class's nodes, and what is kept there for nominated pods.",
    ),
    MetricSpec(
        "fairbind_fairness_resource",
        "gauge",
        ("resource",),
        "1 for a resource that counts for shares now, else 0. By default slots count while they would run out first.",
    ),
    MetricSpec("fairbind_server_classes", "gauge", (), "Groups of nodes that are equal for every pending pod."),
    MetricSpec(
        "fairbind_nodes_with_faults",
        "gauge",
        (),
        "Nodes of which something cannot be read, or that offer more resources than are counted. The log names them.",
    ),
    MetricSpec(
        "fairbind_refusing_nodes", "gauge", (), "Nodes whose kubelets refuse pods of a kind. The log names them."
    ),
    MetricSpec(
        "fairbind_left_out_resources",
        "gauge",
        (),
        "Resources that nodes offer and that no pod can be given, because there are too many. The log names them.",
    ),
    MetricSpec(
        "fairbind_fairness_jain_index",
        "gauge",
        (),
        "Jain's index of the weighted shares of the root's children with backlog: 1 when equal, 1/n when one has all.",
    ),
    MetricSpec(
        "fairbind_fairness_share_error",
        "gauge",
        (),
        "How far the worst tenant with backlog is below its fair share, as a dominant share. Absent without any.",
    ),
)

AUDIT_METRICS = (
    MetricSpec(
        "fairbind_fairness_envy_pairs",
        "gauge",
        ("cause",),
        "Pairs of tenants of which the first could run more with what the second holds, by what that comes from.",
    ),
    MetricSpec(
        "fairbind_fairness_sharing_incentive_violations",
        "gauge",
        ("cause",),
        "Tenants that could run more in a cluster of their own, their weight's part of every node, by what that comes "
        "from.",
    ),
)

OWN_METRICS = (
    MetricSpec("fairbind_leader", "gauge", (), "1 while this replica holds the lease and binds pods, else 0."),
    MetricSpec(
        "fairbind_build_info",
        "gauge",
        ("version", "revision", "python_version"),
        "Always 1; its labels say what runs. revision: the commit from which the image was built, or unknown.",
    ),
    MetricSpec(
        "fairbind_scheduling_cycle_duration_seconds", "histogram", (), "How long a scheduling cycle took to decide."
    ),
    MetricSpec(
        "fairbind_pod_scheduling_duration_seconds",
        "histogram",
        ("tenant",),
        "From the creation of a pod, which Kubernetes keeps in whole seconds, or from when the last gate of others was "
        "seen gone, until it was bound. Of pods that another scheduler places: until their gate was opened, or until "
        "they got a turn, each time.",
    ),
    MetricSpec("fairbind_bindings_total", "counter", ("result",), "Bindings that came to their end, by result."),
    MetricSpec(
        "fairbind_rejected_pods_total",
        "counter",
        ("reason",),
        "Pods of this scheduler that a kubelet refused after they were bound, by what for; the leader counts.",
    ),
    MetricSpec(
        "fairbind_watch_restarts_total",
        "counter",
        ("resource", "reason"),
        "Watches that began again: expired means that history was lost and everything was listed again; unconfirmed, "
        "that accepted bindings did not show.",
    ),
    MetricSpec(
        "fairbind_watch_age_seconds",
        "gauge",
        ("resource",),
        "How long ago the API server last showed that it tells this replica everything about a resource. Above 75 s "
        "nothing is decided. Absent before the first list.",
    ),
    MetricSpec(
        "fairbind_loop_lag_seconds",
        "gauge",
        (),
        "How late the event loop that decides came back to its clock, the most of the last minute. One computation "
        "delays everything else on the loop by so much.",
    ),
    MetricSpec(
        "fairbind_cycle_errors_total", "counter", (), "Scheduling cycles that failed; nothing of them was done."
    ),
    MetricSpec(
        "fairbind_part_failures_total",
        "counter",
        ("part",),
        "Errors in parts that only report what was decided. Scheduling goes on without them; the log has the error.",
    ),
    MetricSpec(
        "fairbind_exact_solve_duration_seconds", "histogram", (), "How long an exact solve of the fair shares took."
    ),
    MetricSpec(
        "fairbind_exact_solves_total",
        "counter",
        ("result",),
        "Exact solves of the fair shares by result; while they fail or run out of time, the last fair shares stay.",
    ),
)

OVERVIEW_METRICS = TENANT_METRICS + CLUSTER_METRICS + AUDIT_METRICS
METRICS = OVERVIEW_METRICS + OWN_METRICS
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
        self._bindings = self._counter("fairbind_bindings_total")
        self._rejections = self._counter("fairbind_rejected_pods_total")
        self._restarts = self._counter("fairbind_watch_restarts_total")
        self._cycle_errors = self._counter("fairbind_cycle_errors_total")
        self._loop_lag = self._gauge("fairbind_loop_lag_seconds")
        self._watch_ages = self._gauge("fairbind_watch_age_seconds")
        self._part_failures = self._counter("fairbind_part_failures_total")
        self._solve_seconds = self._histogram("fairbind_exact_solve_duration_seconds", SOLVE_BUCKETS)
        self._solves = self._counter("fairbind_exact_solves_total")
        # A counter that appears with its first event hides this event from rate(): start them all at 0.
        for result in BINDING_RESULTS:
            self._bindings.labels(result)
        for rejection in REJECTIONS:
            self._rejections.labels(rejection)
        for result in SOLVE_RESULTS:
            self._solves.labels(result)
        for part in REPORTING_PARTS:
            self._part_failures.labels(part)
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
        self._bindings.labels(result).inc()

    def pod_scheduled(self, tenant: str, seconds: float) -> None:
        """Time a pod until its binding; a clock that differs from the server's may say below 0."""
        name = find_tenant_of_leaf(tenant)
        self._timed_tenants.add(name)
        self._pod_seconds.labels(name).observe(max(0.0, seconds))

    def pod_rejected(self, rejection: str) -> None:
        """Count a pod that its kubelet refused."""
        self._rejections.labels(rejection).inc()

    def cycle_finished(self, seconds: float) -> None:
        """Time a cycle."""
        self._cycle_seconds.observe(seconds)

    def cycle_failed(self) -> None:
        """Count a cycle that raised an error."""
        self._cycle_errors.inc()

    def exact_solve_finished(self, result: str, seconds: float) -> None:
        """Count and time a solve of the fair shares."""
        self._solves.labels(result).inc()
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
        self._part_failures.labels(part).inc()

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
