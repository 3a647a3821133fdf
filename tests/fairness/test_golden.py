"""The numbers that the papers print, and the right ones where the print is wrong.

A file is one problem, one mechanism and what must come out: `expected` has some of `totals`, `tasks`,
`dominantShares`, `held` (amounts), `utilization` and `unused` (of the pool), `virtualDominantShares`, `monopoly` (tasks
of a tenant that has all servers to itself), `evenSplitTasks` and `evenSplitShares` (what an even part of each server
would run), `capacityParts` and `demandParts` (as parts of the totals). Numbers may be fractions written as text.
`printed` is what the paper has where that differs, and `why` says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import FloatArray
from fairbind.fairness.solve import compute_allocation

GOLDEN = Path(__file__).parents[1] / "golden"
PAPERS = ("drf-nsdi-2011", "drfh-tpds-2015", "drbf-2018", "dynamic-drf-2019", "ps-dsf")
FILES = {path.relative_to(GOLDEN).as_posix(): path for paper in PAPERS for path in sorted((GOLDEN / paper).glob("*"))}

Tree: TypeAlias = "Mapping[str, Tree] | float"


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILES[name].read_text(encoding="utf-8"))
    return document


def compute_allocation_of(golden: Mapping[str, Any]) -> Allocation:
    return compute_allocation(parse_problem(golden["problem"]), golden["mechanism"], **golden["options"])


def by_tenant(allocation: Allocation, values: FloatArray) -> Tree:
    return dict(zip(allocation.problem.tenant_names, values.tolist(), strict=True))


def by_tenant_and(names: tuple[str, ...], allocation: Allocation, rows: FloatArray) -> Tree:
    tenants = allocation.problem.tenant_names
    return {tenant: dict(zip(names, row.tolist(), strict=True)) for tenant, row in zip(tenants, rows, strict=True)}


def compute_held(allocation: Allocation) -> FloatArray:
    held_ir: FloatArray = allocation.totals_i[:, None] * allocation.problem.demand_ir
    return held_ir


def show_held(allocation: Allocation) -> Tree:
    return by_tenant_and(allocation.problem.resources, allocation, compute_held(allocation))


def show_utilization(allocation: Allocation) -> Tree:
    used_r = compute_held(allocation).sum(axis=0) / allocation.problem.total_r
    return dict(zip(allocation.problem.resources, used_r.tolist(), strict=True))


def show_unused(allocation: Allocation) -> Tree:
    left_r = allocation.problem.total_r - compute_held(allocation).sum(axis=0)
    return dict(zip(allocation.problem.resources, left_r.tolist(), strict=True))


def reduce(allocation: Allocation) -> Instance:
    return reduce_problem(allocation.problem, alpha=None, merges_tenants=False)


def show_monopoly(allocation: Allocation) -> Tree:
    instance = reduce(allocation)
    return by_tenant(allocation, instance.monopoly_i[instance.group_of_tenant])


def show_virtual_dominant_shares(allocation: Allocation) -> Tree:
    instance = reduce(allocation)
    gamma_ik = instance.gamma_ik[instance.group_of_tenant][:, instance.class_of_server]
    with np.errstate(divide="ignore"):
        shares_ik = allocation.totals_i[:, None] / gamma_ik
    return by_tenant_and(allocation.problem.server_names, allocation, shares_ik)


def compute_even_split(allocation: Allocation) -> FloatArray:
    """Tasks on an even part of each server, shape (I,); the papers' examples have equal weights."""
    instance = reduce(allocation)
    tasks_i: FloatArray = instance.gamma_ik.sum(axis=1)[instance.group_of_tenant] / len(allocation.totals_i)
    return tasks_i


def show_even_split_shares(allocation: Allocation) -> Tree:
    share_per_task_i = allocation.dominant_shares_i / allocation.totals_i
    return by_tenant(allocation, compute_even_split(allocation) * share_per_task_i)


def show_capacity_parts(allocation: Allocation) -> Tree:
    instance, problem = reduce(allocation), allocation.problem
    parts_kr = instance.capacity_kr[instance.class_of_server] * instance.part_of_class[:, None]
    rows = zip(problem.server_names, parts_kr.tolist(), strict=True)
    return {server: dict(zip(problem.resources, row, strict=True)) for server, row in rows}


def show_demand_parts(allocation: Allocation) -> Tree:
    instance = reduce(allocation)
    return by_tenant_and(allocation.problem.resources, allocation, instance.demand_ir[instance.group_of_tenant])


SHOW: Mapping[str, Callable[[Allocation], Tree]] = {
    "totals": lambda allocation: by_tenant(allocation, allocation.totals_i),
    "tasks": lambda allocation: by_tenant_and(allocation.problem.server_names, allocation, allocation.tasks_ik),
    "dominantShares": lambda allocation: by_tenant(allocation, allocation.dominant_shares_i),
    "held": show_held,
    "utilization": show_utilization,
    "unused": show_unused,
    "monopoly": show_monopoly,
    "virtualDominantShares": show_virtual_dominant_shares,
    "evenSplitTasks": lambda allocation: by_tenant(allocation, compute_even_split(allocation)),
    "evenSplitShares": show_even_split_shares,
    "capacityParts": show_capacity_parts,
    "demandParts": show_demand_parts,
}


def find_differences(expected: Any, actual: Tree, tolerance: float, path: str) -> list[str]:
    """Return a line for each expected number that did not come out; what is not expected may be anything."""
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping)
        lines = [find_differences(value, actual[name], tolerance, f"{path}.{name}") for name, value in expected.items()]
        return [line for more in lines for line in more]
    wanted = float(Fraction(expected))
    return [] if actual == pytest.approx(wanted, rel=tolerance, abs=tolerance) else [f"{path}: {actual}, not {wanted}"]


@pytest.mark.parametrize("name", FILES)
def test_the_printed_numbers_come_out(name: str) -> None:
    golden = read(name)

    allocation = compute_allocation_of(golden)

    assert golden["expected"]
    found = [
        find_differences(golden["expected"][kind], SHOW[kind](allocation), golden["tolerance"], kind)
        for kind in golden["expected"]
    ]
    assert [line for lines in found for line in lines] == []


def test_every_mechanism_of_the_papers_has_numbers() -> None:
    assert {read(name)["mechanism"] for name in FILES} == set(MECHANISMS)
    assert {name.split("/")[0] for name in FILES} == set(PAPERS)


def test_another_number_is_noticed() -> None:
    allocation = compute_allocation_of(read("drf-nsdi-2011/section-4.1-drf.json"))

    assert find_differences({"A": "3", "B": 2.001}, SHOW["totals"](allocation), 1e-9, "totals") == [
        "totals.B: 2.0, not 2.001"
    ]
