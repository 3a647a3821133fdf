"""The operator's metrics as they are documented: names, kinds, labels and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
        "fairbind_group_evictions_total",
        "counter",
        ("result",),
        "Evictions of members of groups that began and could not be completed, by result; none without groups.undo. "
        "blocked: a PodDisruptionBudget forbids it for now.",
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
