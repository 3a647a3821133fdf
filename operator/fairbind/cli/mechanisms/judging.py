"""`fairbind check --allocation`: an allocation computed elsewhere, judged by a mechanism's conditions.

The file is what `fairbind allocate` prints (only `tasks` is read), the same as YAML, or CSV with the columns tenant,
server and tasks. A pair that is left out runs nothing.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.check import find_properties
from fairbind.cli.mechanisms.reading import read_document, read_text
from fairbind.cli.mechanisms.solving import read_problem
from fairbind.cli.mechanisms.tables import find_width, lay_out_explained
from fairbind.fairness.judge import Judgement, judge_allocation
from fairbind.fairness.problems.fields import show_path, show_value, suggest_name
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties import Witness
from fairbind.model.errors import InvalidProblemError

CSV_COLUMNS = ["tenant", "server", "tasks"]


def judge_file(
    source: str, allocation_source: str, mechanism_id: str, *, alpha: float | None, pools: bool, tolerance: float
) -> tuple[Judgement, dict[str, Witness | None]]:
    """Return what is wrong with the allocation, and witnesses against the properties that need no search."""
    problem = read_problem(source, pools=pools)
    solved = problem.pooled() if problem.is_pooled else problem
    tasks_ik = read_tasks(allocation_source, solved)
    judgement = judge_allocation(problem, mechanism_id, tasks_ik, alpha=alpha, tolerance=tolerance)
    witnesses: dict[str, Witness | None] = {}
    if judgement.is_feasible:
        for one in find_properties(mechanism_id, (), problem):
            if one.id in {"sharing-incentive", "envy-freeness", "pareto-optimality"}:
                witnesses[one.id] = one.find(problem, mechanism_id, judgement.allocation, alpha=alpha)
    return judgement, witnesses


def read_tasks(source: str, problem: Problem) -> FloatArray:
    """Return the tasks of each tenant on each server entry. Raises InvalidProblemError."""
    tenants = {name: i for i, name in enumerate(problem.tenant_names)}
    servers = {name: k for k, name in enumerate(problem.server_names)}
    tasks_ik = np.zeros((len(tenants), len(servers)))
    for where, tenant, server, tasks in _read_pairs(source):
        if tenant not in tenants:
            raise InvalidProblemError(
                f"{where}: {show_value(tenant)} is no tenant of the problem{suggest_name(tenant, tenants)}"
            )
        if server not in servers:
            raise InvalidProblemError(
                f"{where}: {show_value(server)} is no server of the problem{suggest_name(server, servers)}"
            )
        tasks_ik[tenants[tenant], servers[server]] += _read_number(where, tasks)
    return tasks_ik


def _read_number(where: str, tasks: object) -> float:
    try:
        number = float(tasks) if isinstance(tasks, str | float | int) and not isinstance(tasks, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise InvalidProblemError(f"{where}: must be a number of tasks from 0 on, not {show_value(tasks)}")
    return number


def _read_pairs(source: str) -> Iterable[tuple[str, str, str, object]]:
    """Return (where it stands, tenant, server, tasks) for everything in the file."""
    if source.lower().endswith(".csv"):
        return _read_csv(source)
    document = read_document(source)
    tasks = document.get("tasks") if isinstance(document, Mapping) else None
    if not isinstance(tasks, Mapping):
        raise InvalidProblemError(f"{source}: must have tasks: an object of tenants, each with tasks by server")
    pairs: list[tuple[str, str, str, object]] = []
    for tenant, row in tasks.items():
        if not isinstance(row, Mapping):
            raise InvalidProblemError(f"{show_path(('tasks', tenant))}: must be an object of tasks by server")
        pairs += [(show_path(("tasks", tenant, server)), tenant, server, number) for server, number in row.items()]
    return pairs


def _read_csv(source: str) -> list[tuple[str, str, str, object]]:
    rows = csv.DictReader(read_text(source).splitlines())
    try:
        if set(rows.fieldnames or ()) != set(CSV_COLUMNS):
            raise InvalidProblemError(f"{source}: the first line must be {','.join(CSV_COLUMNS)}")
        return [
            (f"{source} line {rows.line_num}", row["tenant"] or "", row["server"] or "", row["tasks"]) for row in rows
        ]
    except csv.Error as error:
        raise InvalidProblemError(f"{source}: line {rows.line_num + 1}: {error}") from error


def describe_judgement(judgement: Judgement, witnesses: Mapping[str, Witness | None]) -> dict[str, Any]:
    """Return plain JSON values. `by` is null where a tenant has nothing, or where nothing is allowed."""
    return {
        "mechanism": judgement.allocation.mechanism,
        "feasible": judgement.is_feasible,
        "fair": not judgement.violations,
        "violations": [
            {
                "condition": violation.condition,
                "text": violation.text,
                "by": violation.amount if math.isfinite(violation.amount) else None,
                "tenant": violation.tenant or None,
                "server": violation.servers or None,
                "resource": violation.resource or None,
            }
            for violation in judgement.violations
        ],
        "properties": {
            name: {"holds": witness is None, "witness": None if witness is None else witness.to_document()}
            for name, witness in witnesses.items()
        },
    }


def show_judgement(judgement: Judgement, witnesses: Mapping[str, Witness | None], output: str) -> str:
    """Return what the command prints."""
    if output != "table":
        return format_document(describe_judgement(judgement, witnesses), output)
    name = judgement.allocation.mechanism
    rows = [(one.condition, "violated", one.text) for one in judgement.violations]
    if judgement.is_feasible and not judgement.violations:
        rows.append(("fairness", "holds", f"the allocation meets the conditions of {name}"))
    rows += [
        (one, "holds" if witness is None else "violated", "" if witness is None else witness.text)
        for one, witness in witnesses.items()
    ]
    cells, texts = [row[:2] for row in rows], [row[2] for row in rows]
    return "\n".join(lay_out_explained(cells, texts, width=find_width(), numbers_from=2, headings=0))
