"""What the commands that solve share: the problem as it was meant, and what is told of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairbind.cli.mechanisms.csv_problem import read_csv
from fairbind.cli.mechanisms.quantities import read_quantities
from fairbind.cli.mechanisms.reading import read_document, read_text
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties.subtrees import compute_entitled


@dataclass(frozen=True, slots=True)
class Summary:
    """An allocation in a few numbers.

    utilisation: used part of each resource's total, by resource; those that no server has are left out. total: sum of
    the dominant shares. minimum: least dominant share / weight. jain: Jain's index of dominant share / weight, 1 when
    all are equal. In a tree the weight is that of the path: the part of everything that its weights give.
    """

    utilisation: Mapping[str, float]
    total: float
    minimum: float
    jain: float


def read_problem(source: str, *, pools: bool) -> Problem:
    """Return the problem in the file ("-": standard input), pooled if the command asks for it."""
    if source.lower().endswith(".csv"):
        table = read_csv(read_text(source), source)
        with table.naming_places():
            problem = parse_problem(read_quantities(table.document))
    else:
        problem = parse_problem(read_quantities(read_document(source)))
    return replace(problem, is_pooled=True) if pools else problem


def compute_use(allocation: Allocation) -> FloatArray:
    """Return the used part of each entry's resources, shape (K, R); NaN where it has nothing."""
    problem = allocation.problem
    has_kr = problem.count_k[:, None] * problem.capacity_kr
    used_kr = allocation.tasks_ik.T @ problem.demand_ir
    part_kr: FloatArray = np.divide(used_kr, has_kr, out=np.full(has_kr.shape, np.nan), where=has_kr > 0)
    return part_kr


def compute_summary(allocation: Allocation) -> Summary:
    """Return what can be compared between mechanisms."""
    problem = allocation.problem
    total_r = problem.total_r
    used_r = allocation.totals_i @ problem.demand_ir
    weight_i = problem.weight_i if problem.tree is None else compute_entitled(problem)[: problem.weight_i.size]
    level_i = allocation.dominant_shares_i / weight_i
    squares = float(level_i @ level_i)
    return Summary(
        utilisation={name: float(used_r[r] / total_r[r]) for r, name in enumerate(problem.resources) if total_r[r] > 0},
        total=float(allocation.dominant_shares_i.sum()),
        minimum=float(level_i.min()),
        jain=float(level_i.sum() ** 2 / (level_i.size * squares)) if squares > 0 else 1.0,
    )


def to_document(allocation: Allocation) -> dict[str, Any]:
    """Return the answer as JSON has it."""
    problem = allocation.problem
    return {
        "mechanism": allocation.mechanism,
        "status": allocation.status,
        "tasks": {
            tenant: dict(zip(problem.server_names, row, strict=True))
            for tenant, row in zip(problem.tenant_names, allocation.tasks_ik.tolist(), strict=True)
        },
        "totals": dict(zip(problem.tenant_names, allocation.totals_i.tolist(), strict=True)),
        "dominantShares": dict(zip(problem.tenant_names, allocation.dominant_shares_i.tolist(), strict=True)),
        "certificate": dict(allocation.certificate),
    }
