"""What an answer must not depend on: the order in which things are listed, the units, a common factor of all weights.

Made from the registry and the families. Totals are compared, as tasks per server need not be unique; a millionth of
what each tenant gets may differ, or a billionth of what it could run alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.instance import IntArray
from fairbind.fairness.mechanism import Option
from fairbind.fairness.problem import FloatArray, Problem
from fairbind.fairness.properties.variants import compute_alone, keep_servers, keep_tenants
from fairbind.fairness.registry import MECHANISMS
from fairbind.fairness.solve import compute_allocation
from fairness.families import FAMILIES, families_for

# A change of a problem, and the totals that must come out, from those of the problem as it was.
Change = Callable[[Problem, np.random.Generator, FloatArray], tuple[Problem, FloatArray]]


@functools.cache
def draw(family: str) -> Problem:
    return FAMILIES[family].make(np.random.default_rng([1, 13]))


@functools.cache
def compute_totals(mechanism: str, family: str) -> FloatArray:
    return compute_allocation(draw(family), mechanism).totals_i


def reverse(count: int) -> IntArray:
    return np.arange(count)[::-1]


def list_tenants_otherwise(
    problem: Problem, generator: np.random.Generator, totals_i: FloatArray
) -> tuple[Problem, FloatArray]:
    order = generator.permutation(len(problem.tenant_names))
    return keep_tenants(problem, order), totals_i[order]


def list_servers_otherwise(
    problem: Problem, generator: np.random.Generator, totals_i: FloatArray
) -> tuple[Problem, FloatArray]:
    del generator
    return keep_servers(problem, reverse(len(problem.server_names))), totals_i


def list_resources_otherwise(
    problem: Problem, generator: np.random.Generator, totals_i: FloatArray
) -> tuple[Problem, FloatArray]:
    del generator
    order = reverse(len(problem.resources))
    changed = replace(
        problem,
        resources=tuple(problem.resources[r] for r in order),
        capacity_kr=problem.capacity_kr[:, order],
        demand_ir=problem.demand_ir[:, order],
        resource_weight_ir=problem.resource_weight_ir[:, order],
    )
    return changed, totals_i


def change_units(problem: Problem, generator: np.random.Generator, totals_i: FloatArray) -> tuple[Problem, FloatArray]:
    unit_r = 10.0 ** generator.integers(-5, 6, len(problem.resources))
    return replace(problem, capacity_kr=problem.capacity_kr * unit_r, demand_ir=problem.demand_ir * unit_r), totals_i


def scale_weights(problem: Problem, generator: np.random.Generator, totals_i: FloatArray) -> tuple[Problem, FloatArray]:
    del generator
    return replace(problem, weight_i=problem.weight_i * 7.3), totals_i


def cut_tasks(problem: Problem, generator: np.random.Generator, totals_i: FloatArray) -> tuple[Problem, FloatArray]:
    """Every tenant's tasks are a number of smaller ones."""
    pieces_i = generator.integers(1, 9, len(problem.tenant_names)).astype(float)
    changed = replace(problem, demand_ir=problem.demand_ir / pieces_i[:, None], tasks_i=problem.tasks_i * pieces_i)
    return changed, totals_i * pieces_i


def split_servers(problem: Problem, generator: np.random.Generator, totals_i: FloatArray) -> tuple[Problem, FloatArray]:
    """Every entry becomes two entries of half as many servers."""
    del generator
    rows = np.repeat(np.arange(len(problem.server_names)), 2)
    twice = keep_servers(replace(problem, count_k=problem.count_k / 2), rows)
    names = tuple(f"{name}{'ab'[n % 2]}" for n, name in enumerate(twice.server_names))
    return replace(twice, server_names=names), totals_i


CHANGES: dict[str, Change] = {
    "tenants": list_tenants_otherwise,
    "servers": list_servers_otherwise,
    "resources": list_resources_otherwise,
    "units": change_units,
    "weights": scale_weights,
    "pieces": cut_tasks,
    "halves": split_servers,
}


def applies(change: str, mechanism: str, family: str) -> bool:
    """Whether the change means something, and should change nothing."""
    options = MECHANISMS[mechanism].options
    if change == "tenants":
        return MECHANISMS[mechanism].merges_tenants  # otherwise the order of arrival counts
    if change in {"servers", "halves"}:
        return not FAMILIES[family].is_one_pool and Option.SERVERS in options
    if change == "weights":
        return Option.WEIGHT in options
    return not (change == "pieces" and mechanism == "drbf")  # it counts tasks: as many as possible


def list_cases() -> Iterator[Any]:
    for mechanism in MECHANISMS.values():
        for family in families_for(mechanism.options):
            for change in CHANGES:
                if applies(change, mechanism.id, family.name):
                    yield pytest.param(change, mechanism.id, family.name, id=f"{change}-{mechanism.id}-{family.name}")


@pytest.mark.parametrize(("change", "mechanism", "family"), list(list_cases()))
def test_the_answer_is_the_same(change: str, mechanism: str, family: str) -> None:
    problem = draw(family)
    changed, expected_i = CHANGES[change](problem, np.random.default_rng(3), compute_totals(mechanism, family))
    totals_i = compute_allocation(changed, mechanism).totals_i
    alone_i = compute_alone(changed).sum(axis=1)
    assert (np.abs(totals_i - expected_i) <= 1e-6 * expected_i + 1e-9 * alone_i).all()
