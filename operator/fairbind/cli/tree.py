"""The command `fairbind tree`: who is below whom, and what each tenant holds, is guaranteed and waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from fairbind.cli.cluster_listing import Source, read_cluster
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.tables import find_width, lay_out_wrapped, wrap
from fairbind.cluster.objects.quantity import format_amounts
from fairbind.model.overview import ClusterOverview, TenantOverview
from fairbind.what_if.fair_shares import FairShares

MOST_CHILDREN = 20
"""A table shows so many children of a tenant, those that hold most; JSON and YAML have all."""
INDENT = "  "


class Row(NamedTuple):
    """A tenant of the tree. depth: of the root's children, 0. left_out: of its children, how many are not shown."""

    tenant: TenantOverview
    depth: int
    left_out: int = 0


def print_tree(source: Source, output: str) -> None:
    """Look at a cluster and print its tenants. Raises as `read_objects` does."""
    cache = read_cluster(source)
    fair_shares = FairShares(cache, cache.settings.policy)
    overview = cache.queries.build_overview(fair_shares.compute(), fair_shares.compute_inner())
    if output in {"json", "yaml"}:
        click.echo(format_document({"tenants": [describe_row(row.tenant) for row in list_rows(overview)]}, output))
    else:
        click.echo("\n".join(format_rows(cache.settings.policy, list(list_rows(overview, MOST_CHILDREN)))))


def list_rows(overview: ClusterOverview, most: int | None = None) -> Iterator[Row]:
    """Yield tenants, each before those below it, by name. most: of the children of a tenant; None: all.

    A tenant's own namespaces are one of its children, under its own name.
    """
    own = [tenant for tenant in overview.tenants if tenant.name == tenant.parent]
    children: dict[str | None, list[TenantOverview]] = {}
    for tenant in (*(overview.shown or overview.tenants), *own):
        children.setdefault(tenant.parent, []).append(tenant)

    def walk(parent: str | None, depth: int) -> Iterator[Row]:
        shown = sorted(children.get(parent, ()), key=lambda child: (-child.dominant_share, child.name))[:most]
        for tenant in sorted(shown, key=lambda child: child.name):
            is_own = tenant.name == tenant.parent
            below = 0 if is_own else len(children.get(tenant.name, ()))
            yield Row(tenant, depth, 0 if most is None else max(0, below - most))
            if below:
                yield from walk(tenant.name, depth + 1)

    yield from walk(None, 0)


def describe_row(tenant: TenantOverview) -> dict[str, Any]:
    """Return a tenant as JSON values."""
    return {
        "name": tenant.name,
        "parent": tenant.parent,
        "weight": tenant.weight,
        "held": format_amounts(tenant.allocated),
        "guaranteed": format_amounts(tenant.guaranteed),
        "fairShare": tenant.fair_share,
        "waiting": sum(tenant.pending.values()),
    }


def format_rows(policy: str, rows: Sequence[Row]) -> list[str]:
    """Return the tree as lines for a terminal."""
    cells = [["tenant", "weight", "share", "fair share", "waiting", "held (guaranteed)"]]
    for row in rows:
        tenant = row.tenant
        fair = "-" if tenant.fair_share is None else f"{tenant.fair_share:.3f}"
        waiting = str(sum(tenant.pending.values()))
        numbers = [f"{tenant.weight:g}", f"{tenant.dominant_share:.3f}", fair, waiting]
        cells.append([INDENT * row.depth + tenant.name, *numbers, _list_amounts(tenant)])
    told = f"Policy {policy}; dominant shares, of a tenant with children those of all below it."
    width = find_width()
    more = [f"and {row.left_out} more below {row.tenant.name}; -o json has all" for row in rows if row.left_out]
    return [*wrap(told, width=width), "", *lay_out_wrapped(cells, width=width), *more]


def _list_amounts(tenant: TenantOverview) -> str:
    held, guaranteed = format_amounts(tenant.allocated), format_amounts(tenant.guaranteed)
    words = [
        f"{resource} {held.get(resource, '0')}" + (f" ({guaranteed[resource]})" if resource in guaranteed else "")
        for resource in sorted(held.keys() | guaranteed.keys())
    ]
    return ", ".join(words)
