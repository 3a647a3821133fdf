"""`fairbind allocate`: one mechanism's answer, as JSON or as tables."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping

import numpy as np

from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.certificate import describe_proof
from fairbind.cli.mechanisms.solving import compute_summary, compute_use, read_problem, to_document
from fairbind.cli.mechanisms.tables import (
    find_width,
    format_numbers,
    format_percents,
    lay_out,
    lay_out_columns,
    measure,
)
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.problems.tree import ROOT, Tree
from fairbind.fairness.solve import compute_allocation

MOST_SERVERS_SHOWN = 40


def compute_text(
    source: str,
    mechanism_id: str,
    *,
    alpha: float | None,
    pools: bool,
    output: str,
    proves: bool = False,
    solver: str | None = None,
) -> str:
    """Return what the command prints. proves: with the prices, levels or multipliers of the certificate."""
    problem = read_problem(source, pools=pools)
    allocation = compute_allocation(problem, mechanism_id, alpha=alpha, solver=solver)
    document = to_document(allocation)
    if proves:
        document["certificate"] = {**document["certificate"], **describe_proof(allocation)}
    if output in {"json", "yaml"}:
        return format_document(document, output)
    if output == "csv":
        return _to_csv(allocation)
    return "\n".join(_compute_lines(allocation, find_width()))


def _to_csv(allocation: Allocation) -> str:
    """Return a line for each tenant and server entry that it runs tasks on, as `check --allocation` reads it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["tenant", "server", "tasks"])
    problem = allocation.problem
    for i, k in np.argwhere(allocation.tasks_ik > 0).tolist():
        writer.writerow([problem.tenant_names[i], problem.server_names[k], repr(float(allocation.tasks_ik[i, k]))])
    return text.getvalue().rstrip("\n")


def _compute_lines(allocation: Allocation, width: int) -> Iterator[str]:
    mechanism = MECHANISMS[allocation.mechanism]
    yield f"{mechanism.id}: {mechanism.name}; {allocation.status}"
    yield f"certificate: {show_certificate(allocation.certificate)}"
    yield ""
    yield from _compute_tenants(allocation, width)
    yield ""
    yield from _compute_servers(allocation)


def show_certificate(certificate: Mapping[str, object]) -> str:
    """Return the numbers and words of a certificate in a line; lists and tables in it are left to JSON.

    >>> show_certificate({"method": "duals", "largestViolation": 3e-12, "prices": [1, 2]})
    'duals, largestViolation 3e-12'
    """
    shown = [str(certificate["method"])] if "method" in certificate else []
    for name, value in certificate.items():
        if isinstance(value, float | int) and not isinstance(value, bool):
            shown.append(f"{name} {value:.3g}")
        elif isinstance(value, str) and name != "method":
            shown.append(f"{name} {value}")
    return ", ".join(shown)


def _compute_tenants(allocation: Allocation, width: int) -> Iterator[str]:
    problem = allocation.problem
    columns = [
        ["tenant", *problem.tenant_names],
        ["weight", *format_numbers(problem.weight_i.tolist())],
        ["tasks", *format_numbers(allocation.totals_i.tolist())],
        ["dominant share", *format_numbers(allocation.dominant_shares_i.tolist())],
    ]
    if (problem.weight_i == problem.weight_i[0]).all():
        del columns[1]
    if problem.tree is not None:
        columns.insert(1, ["below", *_compute_paths(problem, problem.tree)])
    numbers_from = 1 if problem.tree is None else 2
    if len(problem.server_names) == 1:
        yield from lay_out(list(zip(*columns, strict=True)), numbers_from=numbers_from)
        return
    if len(problem.server_names) > MOST_SERVERS_SHOWN:
        yield from lay_out(list(zip(*columns, strict=True)), numbers_from=numbers_from)
        yield f"(tasks on each of {len(problem.server_names)} servers: --output json)"
        return
    servers = [
        [f"on {name}", *format_numbers(tasks_i)]
        for name, tasks_i in zip(problem.server_names, allocation.tasks_ik.T.tolist(), strict=True)
    ]
    together = lay_out(list(zip(*columns, *servers, strict=True)), numbers_from=numbers_from)
    if measure(together[1]) <= width:
        yield from together
        return
    yield from lay_out(list(zip(*columns, strict=True)), numbers_from=numbers_from)
    for table in lay_out_columns(columns[0], servers, width=width):
        yield ""
        yield from table


def _compute_paths(problem: Problem, tree: Tree) -> Iterator[str]:
    """Return the names above each tenant with tasks, from the root down."""
    names = [*problem.tenant_names, *tree.inner_names]
    for tenant in range(len(problem.tenant_names)):
        path: list[str] = []
        vertex = int(tree.parent_v[tenant])
        while vertex != ROOT:
            path.insert(0, names[vertex])
            vertex = int(tree.parent_v[vertex])
        yield "/".join(path)


def _compute_servers(allocation: Allocation) -> Iterator[str]:
    problem = allocation.problem
    rows = [["used", "count", *problem.resources]]
    if 1 < len(problem.server_names) <= MOST_SERVERS_SHOWN:
        for name, count, parts in zip(
            problem.server_names, problem.count_k.tolist(), compute_use(allocation).tolist(), strict=True
        ):
            rows.append([name, f"{count:.0f}", *(_show_part(part) for part in parts)])
    utilisation = compute_summary(allocation).utilisation
    total = [_show_part(utilisation.get(name, math.nan)) for name in problem.resources]
    name = "all servers" if len(problem.server_names) > 1 else problem.server_names[0]
    rows.append([name, f"{problem.count_k.sum():.0f}", *total])
    yield from lay_out(rows)


def _show_part(part: float) -> str:
    return "-" if math.isnan(part) else format_percents([part])[0]
