"""What an answer must not depend on: the order in which things are listed, the units, a common factor of all weights.

Made from the registry: each mechanism, with each change that should change nothing, on the family of problems that uses
most of what the mechanism takes. Where only the order of a list changes, tasks per server are compared; else totals, as
an answer may leave free where tasks run. A millionth of what each tenant gets may differ, or a billionth of
what it could run alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.instance import IntArray
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.properties.variants import compute_alone, keep_servers, keep_tenants
from fairbind.fairness.solve import compute_allocation
from fairness.families import FAMILIES, families_for

# A change of a problem, and the totals that must come out, from those of the problem as it was.
Change = Callable[[Problem, np.random.Generator, FloatArray], tuple[Problem, FloatArray]]

# The problem with something in another order, and the orders in which its tenants and servers are now.
Listing = Callable[[Problem, np.random.Generator], tuple[Problem, IntArray, IntArray]]


@functools.cache
def draw(family: str) -> Problem:
    return FAMILIES[family].make(np.random.default_rng([1, 13]))


@functools.cache
def allocate(mechanism: str, family: str) -> Allocation:
    return compute_allocation(draw(family), mechanism)


def list_tenants_otherwise(problem: Problem, generator: np.random.Generator) -> tuple[Problem, IntArray, IntArray]:
    order = generator.permutation(len(problem.tenant_names))
    return keep_tenants(problem, order), order, np.arange(len(problem.server_names))


def list_servers_otherwise(problem: Problem, generator: np.random.Generator) -> tuple[Problem, IntArray, IntArray]:
    order = generator.permutation(len(problem.server_names))
    return keep_servers(problem, order), np.arange(len(problem.tenant_names)), order


def list_resources_otherwise(problem: Problem, generator: np.random.Generator) -> tuple[Problem, IntArray, IntArray]:
    del generator
    order = np.arange(len(problem.resources))[::-1]
    changed = replace(
        problem,
        resources=tuple(problem.resources[r] for r in order),
        capacity_kr=problem.capacity_kr[:, order],
        demand_ir=problem.demand_ir[:, order],
        resource_weight_ir=problem.resource_weight_ir[:, order],
    )
    return changed, np.arange(len(problem.tenant_names)), np.arange(len(problem.server_names))


def change_units(problem: Problem, generator: np.random.Generator, totals_i: FloatArray) -> tuple[Problem, FloatArray]:
    unit_r = 10.0 ** generator.integers(-5, 6, len(problem.resources))
    return replace(problem, capacity_kr=problem.capacity_kr * unit_r, demand_ir=problem.demand_ir * unit_r), totals_i


def scale_weights(problem: Problem, generator: np.random.Generator, totals_i: FloatArray) -> tuple[Problem, FloatArray]:
    del generator
    if (problem.utility_b_k > 0).any():  # A and B are for shares, of which a common factor of weights is a unit
        problem = replace(problem, utility_a_k=problem.utility_a_k / 7.3, utility_b_k=problem.utility_b_k / 7.3)
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
    twice = replace(
        problem,
        server_names=tuple(f"{problem.server_names[row]}{'ab'[n % 2]}" for n, row in enumerate(rows)),
        capacity_kr=problem.capacity_kr[rows],
        count_k=problem.count_k[rows] / 2,
        divisible_k=problem.divisible_k[rows],
        alpha_k=problem.alpha_k[rows],
        utility_a_k=problem.utility_a_k[rows],
        utility_b_k=problem.utility_b_k[rows],
        eligible_ik=problem.eligible_ik[:, rows],
    )
    return twice, totals_i


LISTINGS: dict[str, Listing] = {
    "tenants": list_tenants_otherwise,
    "servers": list_servers_otherwise,
    "resources": list_resources_otherwise,
}
CHANGES: dict[str, Change] = {
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


def list_cases(changes: Iterable[str]) -> Iterator[Any]:
    for mechanism in MECHANISMS.values():
        for change in changes:
            families = [one for one in families_for(mechanism.options) if applies(change, mechanism.id, one.name)]
            if families:
                richest = max(families, key=lambda family: (len(family.options), family.name)).name
                yield pytest.param(change, mechanism.id, richest, id=f"{change}-{mechanism.id}-{richest}")


def assert_close(actual: FloatArray, expected: FloatArray, changed: Problem, totals_i: FloatArray) -> None:
    """Tasks of a tenant (first axis) may differ by so much of its total or of what it could run alone."""
    margin_i = 1e-6 * totals_i + 1e-9 * compute_alone(changed).sum(axis=1)
    assert (np.abs(actual - expected).reshape(margin_i.size, -1) <= margin_i[:, None]).all()


@pytest.mark.parametrize(("change", "mechanism", "family"), list(list_cases(CHANGES)))
def test_the_answer_is_the_same(change: str, mechanism: str, family: str) -> None:
    before = allocate(mechanism, family)
    changed, expected_i = CHANGES[change](draw(family), np.random.default_rng(3), before.totals_i)
    assert_close(compute_allocation(changed, mechanism).totals_i, expected_i, changed, expected_i)


@pytest.mark.parametrize(("listing", "mechanism", "family"), list(list_cases(LISTINGS)))
def test_in_another_order_everybody_has_the_same_tasks_on_the_same_servers(
    listing: str, mechanism: str, family: str
) -> None:
    before = allocate(mechanism, family)
    changed, tenants, servers = LISTINGS[listing](draw(family), np.random.default_rng(3))
    after = compute_allocation(changed, mechanism)
    assert_close(after.tasks_ik, before.tasks_ik[np.ix_(tenants, servers)], changed, before.totals_i[tenants])


@pytest.mark.parametrize("mechanism", ["drfh", "tsf", "ps-dsf", "alpha-pf-vds"])
@pytest.mark.parametrize("listing", LISTINGS)
def test_what_an_answer_leaves_free_does_not_depend_on_an_order_either(listing: str, mechanism: str) -> None:
    """Small numbers: many divisions give everybody as much, and a solver takes the one that it meets first.

    In tenths, as then already a sum over servers is rounded otherwise in another order.
    """
    generator = np.random.default_rng(5)
    for _ in range(12):
        problem = make_problem(generator.integers(1, 10, (3, 2)) / 10, generator.integers(1, 5, (3, 2)) / 10)
        changed, tenants, servers = LISTINGS[listing](problem, generator)
        expected_ik = compute_allocation(problem, mechanism).tasks_ik[np.ix_(tenants, servers)]
        tasks_ik = compute_allocation(changed, mechanism).tasks_ik
        np.testing.assert_allclose(tasks_ik, expected_ik, rtol=1e-9, atol=1e-9)
