"""The command `fairbind audit`: the cluster once, its exact fair shares, and what is not as fair as it could be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from fairbind.cli.cluster_listing import Source, read_cluster
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.tables import lay_out
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.model.overview import ClusterOverview
from fairbind.scheduling.fair_shares.audit import AuditReport, Finding, audit, make_audit_scene
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly

MOST_ROWS = 20
"""A table shows so many findings of a kind; JSON and YAML have all."""


def print_audit(source: Source, output: str) -> None:
    """Look at a cluster and print the audit. Raises as `read_objects` does."""
    cache = read_cluster(source)
    policy, overview, report = compute_report(cache)
    if output in {"json", "yaml"}:
        click.echo(format_document(describe_report(policy, overview, report), output))
    else:
        click.echo("\n".join(format_report(policy, overview, report)))


def compute_report(cache: ClusterCache) -> tuple[str, ClusterOverview, AuditReport]:
    """Return the cluster's policy, its overview with exact fair shares, and the audit."""
    snapshot = cache.build_detailed_snapshot()
    problem = make_exact_problem(snapshot, cache.settings)
    fair_shares = None if problem is None else solve_exactly(problem).fair_shares
    return (
        cache.settings.policy,
        cache.queries.build_overview(fair_shares),
        audit(make_audit_scene(snapshot), fair_shares),
    )


def describe_report(policy: str, overview: ClusterOverview, report: AuditReport) -> dict[str, Any]:
    """Return the audit as JSON values."""
    return {
        "policy": policy,
        "compared": report.compared,
        "shareError": overview.share_error,
        "tenants": {
            tenant.name: {
                "weight": tenant.weight,
                "dominantShare": tenant.dominant_share,
                "fairShare": tenant.fair_share,
                "backlogged": tenant.backlogged,
            }
            for tenant in overview.tenants
        },
        "envy": [_describe(finding) for finding in report.envies],
        "sharingIncentiveViolations": [_describe(finding) for finding in report.sharing_incentive_violations],
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
    rows = [["tenant", "weight", "share", "fair share", "waits"]]
    for tenant in overview.tenants:
        fair = "-" if tenant.fair_share is None else f"{tenant.fair_share:.3f}"
        waits = "yes" if tenant.backlogged else "no"
        rows.append([tenant.name, f"{tenant.weight:g}", f"{tenant.dominant_share:.3f}", fair, waits])
    lines = [f"Policy {policy}; {report.compared} tenants that want something; dominant shares.", "", *lay_out(rows)]
    lines += ["", *_format_findings("Envy: who could run more with what another holds", report.envies)]
    alone = "Sharing incentive: who could run more in a cluster of its own"
    return [*lines, "", *_format_findings(alone, report.sharing_incentive_violations)]


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
