"""The command `fairbind audit`: the cluster once, its exact fair shares, and what is not as fair as it could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from fairbind.cli.cluster_listing import Source, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.tables import find_width, lay_out, wrap
from fairbind.cli.pod_groups import choose_tenants
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.cache.overview import find_scattered
from fairbind.cluster.cache.tenant_paths import list_inner, name_path
from fairbind.cluster.objects.quantity import format_amounts
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.model.overview import ClusterOverview, TenantOverview
from fairbind.scheduling.fair_shares.audit import AuditReport, Finding, audit, make_audit_scene
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly
from fairbind.what_if.listed_objects import ListedObjects, build_cache
from fairbind.what_if.trial import Trial

MOST_ROWS = 20
"""A table shows so many findings of a kind; JSON and YAML have all."""


def print_audit(source: Source, output: str) -> None:
    """Look at a cluster and print the audit. Raises as `read_objects` does."""
    listed = read_objects(source)
    cache = build_cache(listed, observer=AdministrationLog())
    policy, overview, report = compute_report(cache)
    overview = replace(overview, scattered=compute_scattered(listed, cache))
    if output in {"json", "yaml"}:
        click.echo(format_document(describe_report(policy, overview, report), output))
    else:
        click.echo("\n".join(format_report(policy, overview, report)))


def compute_report(cache: ClusterCache) -> tuple[str, ClusterOverview, AuditReport]:
    """Return the cluster's policy, its overview with exact fair shares, and the audit."""
    snapshot = cache.build_detailed_snapshot()
    problem = make_exact_problem(snapshot, cache.settings)
    exact = None if problem is None else solve_exactly(problem)
    fair_shares, inner_shares = (None, None) if exact is None else (exact.fair_shares, exact.inner_shares)
    return (
        cache.settings.policy,
        cache.queries.build_overview(fair_shares, inner_shares),
        audit(make_audit_scene(snapshot), fair_shares),
    )


def compute_scattered(listed: ListedObjects, cache: ClusterCache) -> Mapping[str, float]:
    """Return what is free and too scattered for a group that waits, by resource, once nothing more can start."""
    snapshot = cache.build_snapshot(whole=True)
    if not any(each.group is not None and each.blocked is None for each in snapshot.task_classes):
        return {}
    trial = Trial(listed)
    trial.decide()
    return find_scattered(trial.operator.waits, snapshot.resources)


def describe_report(policy: str, overview: ClusterOverview, report: AuditReport) -> dict[str, Any]:
    """Return the audit as JSON values."""
    inner = {tenant.name: _describe_tenant(tenant) for tenant in list_inner(overview)}
    return {
        "policy": policy,
        "compared": report.compared,
        "shareError": overview.share_error,
        "scattered": dict(overview.scattered),
        "tenants": {tenant.name: _describe_tenant(tenant) for tenant in overview.tenants},
        **({"innerTenants": inner} if inner else {}),
        "envy": [_describe(finding) for finding in report.envies],
        "sharingIncentiveViolations": [_describe(finding) for finding in report.sharing_incentive_violations],
    }


def _describe_tenant(tenant: TenantOverview) -> dict[str, Any]:
    return {
        **({} if tenant.parent is None else {"parent": tenant.parent}),
        "weight": tenant.weight,
        "dominantShare": tenant.dominant_share,
        "fairShare": tenant.fair_share,
        "backlogged": tenant.backlogged,
    }


def _describe(finding: Finding) -> dict[str, Any]:
    envied = {} if finding.envied is None else {"envied": finding.envied}
    return {
        "tenant": finding.tenant,
        **envied,
        "has": finding.has,
        "couldHave": finding.could_have,
        "cause": finding.cause.value,
    }


def format_report(policy: str, overview: ClusterOverview, report: AuditReport) -> list[str]:
    """Return the audit as lines for a terminal."""
    tenants = {tenant.name: tenant for tenant in overview.tenants}
    if inner := list_inner(overview):
        tenants = {name_path(tenant, overview): tenant for tenant in (*inner, *overview.tenants)}
        tenants = dict(sorted(tenants.items()))
    names, others = choose_tenants(list(tenants), lambda name: _find_excess(tenants[name]), "the worst off")
    rows = [["tenant", "weight", "share", "fair share", "waits"]]
    for name, tenant in ((name, tenants[name]) for name in names):
        fair = "-" if tenant.fair_share is None else f"{tenant.fair_share:.3f}"
        waits = "yes" if tenant.backlogged else "no"
        rows.append([name, f"{tenant.weight:g}", f"{tenant.dominant_share:.3f}", fair, waits])
    told = f"Policy {policy}; {report.compared} tenants that want something; dominant shares."
    lines = [*wrap(told, width=find_width()), "", *lay_out(rows), *others]
    lines += ["", *_format_findings("Envy: who could run more with what another holds", report.envies)]
    alone = "Sharing incentive: who could run more in a cluster of its own"
    lines += ["", *_format_findings(alone, report.sharing_incentive_violations)]
    if overview.scattered:
        amounts = ", ".join(f"{amount} {resource}" for resource, amount in format_amounts(overview.scattered).items())
        lines += ["", *wrap(f"Free, but too scattered for a group that waits: {amounts}.", width=find_width())]
    return lines


def _find_excess(tenant: TenantOverview) -> float:
    """Return by how much a tenant is above its fair share; below 0 for those that are worst off."""
    return tenant.dominant_share - (tenant.fair_share or 0.0)


def _format_findings(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return [f"{title}: no tenant."]
    rows = [["tenant", "of", "cause", "has", "could have"]]
    rows += [
        [f.tenant, f.envied or "its own", f.cause.value, f"{f.has:.3f}", f"{f.could_have:.3f}"]
        for f in findings[:MOST_ROWS]
    ]
    rest = len(findings) - MOST_ROWS
    more = [f"and {rest} more; -o json has all"] if rest > 0 else []
    return [f"{title}:", *lay_out(rows, numbers_from=3), *more]
