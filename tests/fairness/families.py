"""Kinds of problems that are known to be hard, each drawn from a generator that is passed in.

A family says which options its problems use, so that a test is generated only for mechanisms that take them:
`families_for(mechanism.options)`. Every family that can be has a twin with one server, "...-one-pool", for the
mechanisms that divide one pool; problems of the two have nothing else in common.

>>> sorted(family.name for family in families_for({Option.WEIGHT}) if "weight" in family.name)
['weights-one-pool']
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation

Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class Family:
    """Problems of one kind. options: those that at least some of its problems use; make: draws one."""

    name: str
    options: frozenset[Option]
    make: Callable[[Generator], Problem]

    @property
    def is_one_pool(self) -> bool:
        """Whether its problems have one server entry."""
        return Option.SERVERS not in self.options


def families_for(options: Collection[Option]) -> tuple[Family, ...]:
    """Return the families whose problems use no other than these options."""
    return tuple(family for family in FAMILIES.values() if family.options <= frozenset(options))


def mark_for_quick(index: int) -> list[pytest.MarkDecorator]:
    """Return the marks of a case of many, by its place among them: `make quick` takes each fourth."""
    return [pytest.mark.slow] if index % 4 else []


def with_bottleneck(problem: Problem, resource: int = 0) -> Problem:
    """Return the problem with demands for the other resources cut until this one is the bottleneck of every server.

    What a tenant cannot use does not count; whoever does not need the resource now does, a little.
    """
    needs_i = problem.demand_ir[:, resource] > 0
    some = problem.demand_ir[needs_i, resource].min(initial=1.0)
    demand_ir = problem.demand_ir.copy()
    demand_ir[:, resource] = np.where(needs_i, demand_ir[:, resource], some)
    for server in np.flatnonzero(problem.capacity_kr[:, resource] > 0):
        has_r = problem.capacity_kr[server] > 0
        runs_i = problem.eligible_ik[:, server] & ~(demand_ir[:, ~has_r] > 0).any(axis=1)
        most_ir = demand_ir[:, [resource]] * problem.capacity_kr[server] / problem.capacity_kr[server, resource]
        demand_ir = np.where(runs_i[:, None] & has_r, np.minimum(demand_ir, most_ir), demand_ir)
    return replace(problem, demand_ir=demand_ir)


def _spread(generator: Generator, shape: tuple[int, ...], low: float, high: float) -> FloatArray:
    """Return numbers whose logarithms are uniform: as many small as large ones."""
    return np.exp(generator.uniform(np.log(low), np.log(high), shape))


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plain problem's sizes and arrays, for a family to change. Demands are 1/200 to 1/10 of an average server."""

    servers: int
    tenants: int
    resources: int
    capacity_kr: FloatArray
    demand_ir: FloatArray


def _draw(generator: Generator, servers: int | None, *, tenants: int | None = None) -> _Draft:
    """Draw a plain problem; `servers` None: two to four of them."""
    servers = servers or int(generator.integers(2, 5))
    tenants = tenants or int(generator.integers(2, 7))
    resources = int(generator.integers(2, 4))
    capacity_kr = _spread(generator, (servers, resources), 20.0, 200.0)
    return _Draft(servers, tenants, resources, capacity_kr, _spread(generator, (tenants, resources), 0.3, 6.0))


def _plain(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    return make_problem(draft.capacity_kr, draft.demand_ir)


def _counts(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    return make_problem(draft.capacity_kr, draft.demand_ir, count_k=generator.integers(1, 60, draft.servers))


def _eligibility(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    eligible_ik = generator.random((draft.tenants, draft.servers)) < 0.6
    eligible_ik[np.arange(draft.tenants), generator.integers(0, draft.servers, draft.tenants)] = True
    return make_problem(draft.capacity_kr, draft.demand_ir, eligible_ik=eligible_ik)


def _weights(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    return make_problem(draft.capacity_kr, draft.demand_ir, weight_i=_spread(generator, (draft.tenants,), 1e-3, 1e3))


def _resource_weights(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    resource_weight_ir = _spread(generator, draft.demand_ir.shape, 0.25, 4.0)
    return make_problem(draft.capacity_kr, draft.demand_ir, resource_weight_ir=resource_weight_ir)


def _zero_demands(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    is_zero_ir = generator.random(draft.demand_ir.shape) < 0.45
    is_zero_ir[np.arange(draft.tenants), generator.integers(0, draft.resources, draft.tenants)] = False
    return make_problem(draft.capacity_kr, np.where(is_zero_ir, 0.0, draft.demand_ir))


def _zero_capacities(generator: Generator, servers: int | None) -> Problem:
    """Some servers lack some resource; now and then everybody does, and most tenants can do without one."""
    draft = _draw(generator, servers)
    is_zero_kr = generator.random(draft.capacity_kr.shape) < 0.3
    is_zero_kr[:, 0] = False
    demand_ir = draft.demand_ir.copy()
    demand_ir[generator.random(draft.tenants) < 0.7, -1] = 0.0
    return make_problem(np.where(is_zero_kr, 0.0, draft.capacity_kr), demand_ir)


def _nobody_eligible(generator: Generator, servers: int | None) -> Problem:
    """One tenant may run nowhere, and (of several) one server is for nobody."""
    draft = _draw(generator, servers)
    eligible_ik = np.ones((draft.tenants, draft.servers), dtype=bool)
    if draft.servers > 1:
        eligible_ik[:, generator.integers(draft.servers)] = False
    eligible_ik[generator.integers(draft.tenants)] = False
    return make_problem(draft.capacity_kr, draft.demand_ir, eligible_ik=eligible_ik)


def _nearly_identical_servers(generator: Generator, servers: int | None) -> Problem:
    """Servers that differ by a part in 10,000 to one in 100: where PS-DSF is next to its discontinuity."""
    draft = _draw(generator, servers)
    jitter = float(_spread(generator, (1,), 1e-4, 1e-2)[0])
    change_kr = 1.0 + jitter * generator.uniform(-1.0, 1.0, draft.capacity_kr.shape)
    return make_problem(draft.capacity_kr[0] * change_kr, draft.demand_ir)


def _huge_server(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    capacity_kr = draft.capacity_kr.copy()
    capacity_kr[generator.integers(draft.servers)] *= 1e4
    return make_problem(capacity_kr, draft.demand_ir)


def _tasks_all_fit(generator: Generator, servers: int | None) -> Problem:
    """Everybody gets everything: each server alone has room for the tasks of all."""
    draft = _draw(generator, servers)
    left_r = 0.9 * float((draft.capacity_kr.min(axis=0) / draft.demand_ir.sum(axis=0)).min())
    return make_problem(draft.capacity_kr, draft.demand_ir, tasks_i=left_r * generator.random(draft.tenants) + 1e-3)


def _tasks_bind(generator: Generator, servers: int | None) -> Problem:
    """Some have fewer tasks than their share would be, some more, some no end of them."""
    draft = _draw(generator, servers)
    alone_i = (draft.capacity_kr.sum(axis=0) / draft.demand_ir).min(axis=1)
    tasks_i = alone_i * _spread(generator, (draft.tenants,), 0.3, 3.0) / draft.tenants
    tasks_i[generator.random(draft.tenants) < 0.3] = np.inf
    return make_problem(draft.capacity_kr, draft.demand_ir, tasks_i=tasks_i)


def _few_tasks(generator: Generator, servers: int | None) -> Problem:
    """Ordinary machines and pods; half of the tenants have next to no tasks, some only one in a hundred machines.

    A tenant that has all its few tasks has a slope (a power of 1 / its share) many orders of magnitude above the rest.
    """
    draft = _draw(generator, servers)
    cpu_k = generator.choice([4.0, 8.0, 16.0, 32.0, 64.0], draft.servers)
    memory_k = cpu_k * generator.choice([0.5, 1.0, 2.0, 4.0, 8.0], draft.servers)
    cpu_i = generator.choice([0.25, 0.5, 1.0, 2.0, 4.0], draft.tenants)
    memory_i = generator.choice([0.5, 1.0, 2.0, 4.0, 8.0], draft.tenants)
    tasks_i = generator.choice([1.0, 1.0, 2.0, 5.0, 30.0], draft.tenants)
    tasks_i[generator.random(draft.tenants) < 0.5] = np.inf
    return make_problem(
        np.column_stack([cpu_k, memory_k]),
        np.column_stack([cpu_i, memory_i]),
        count_k=generator.choice([1, 2, 10, 50, 100], draft.servers),
        tasks_i=tasks_i,
    )


def _tasks_as_many_as_bought(generator: Generator, servers: int | None) -> Problem:
    """Limits that do not bind and have no room either: what the market gives, to some tenants or to all.

    Now and then tenants are equal, or one resource is the bottleneck, and other mechanisms would give the same.
    """
    draft = _draw(generator, servers)
    problem = make_problem(draft.capacity_kr, draft.demand_ir)
    if generator.random() < 0.3:
        problem = replace(problem, demand_ir=problem.demand_ir[[0] * draft.tenants])
    elif generator.random() < 0.4:
        problem = with_bottleneck(problem)
    bought_i = compute_allocation(problem, "ceei" if draft.servers == 1 else "alpha-pf-vds").totals_i
    tasks_i = np.where(generator.random(draft.tenants) < 0.6, bought_i, np.inf)
    tenant = generator.integers(draft.tenants)
    tasks_i[tenant] = bought_i[tenant]
    return replace(problem, tasks_i=tasks_i)


def _thousand_equal_tenants(generator: Generator, servers: int | None) -> Problem:
    """A thousand copies of one tenant and two others."""
    draft = _draw(generator, servers, tenants=3)
    return make_problem(draft.capacity_kr, draft.demand_ir[[0] * 1000 + [1, 2]])


def _magnitudes(generator: Generator, servers: int | None) -> Problem:
    """Cores in milli (1e3), memory in bytes (1e11), and a third resource that is counted in millionths."""
    draft = _draw(generator, servers)
    unit_r = np.array([1e3, 2.0**32, 1e-9])[: draft.resources]
    return make_problem(draft.capacity_kr * unit_r, draft.demand_ir * unit_r)


def _combined(generator: Generator, servers: int | None) -> Problem:
    """Weights, finite tasks and zero demands together, and eligibility if there are several servers."""
    draft = _draw(generator, servers)
    zeros = _zero_demands(generator, servers)
    bound_i = (zeros.total_r / np.where(zeros.demand_ir > 0, zeros.demand_ir, 1e-300)).min(axis=1)
    tenants = len(zeros.tenant_names)
    tasks_i = bound_i * _spread(generator, (tenants,), 0.3, 3.0) / tenants
    tasks_i[generator.random(tenants) < 0.4] = np.inf
    eligible_ik = generator.random((tenants, len(zeros.server_names))) < (0.7 if draft.servers > 1 else 2.0)
    eligible_ik[np.arange(tenants), generator.integers(0, len(zeros.server_names), tenants)] = True
    return make_problem(
        zeros.capacity_kr,
        zeros.demand_ir,
        weight_i=_spread(generator, (tenants,), 0.1, 10.0),
        tasks_i=tasks_i,
        eligible_ik=eligible_ik,
    )


def _non_divisible_servers(generator: Generator, servers: int | None) -> Problem:
    """At least one server whose time is shared instead of its resources."""
    draft = _draw(generator, servers)
    divisible_k = generator.random(draft.servers) < 0.5
    divisible_k[generator.integers(draft.servers)] = False
    return make_problem(draft.capacity_kr, draft.demand_ir, divisible_k=divisible_k)


def _alphas(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    return make_problem(draft.capacity_kr, draft.demand_ir, alpha_k=generator.uniform(1.0, 4.0, draft.servers))


def _utilities(generator: Generator, servers: int | None) -> Problem:
    """Utilities with a linear term, next to nothing or next to all of it, and one that is nothing else."""
    draft = _draw(generator, servers)
    size = draft.servers
    utility_a_k = _spread(generator, (size,), 1e-2, 1e2)
    utility_a_k[generator.integers(size)] *= generator.integers(2)
    return make_problem(
        draft.capacity_kr,
        draft.demand_ir,
        count_k=generator.integers(1, 4, size),
        alpha_k=generator.uniform(1.0, 6.0, size),
        utility_a_k=utility_a_k,
        utility_b_k=_spread(generator, (size,), 1e-3, 1e3),
        weight_i=_spread(generator, (draft.tenants,), 0.1, 10.0),
    )


def _expected_tenants(generator: Generator, servers: int | None) -> Problem:
    draft = _draw(generator, servers)
    expected = draft.tenants + int(generator.integers(0, 4))
    return make_problem(draft.capacity_kr, draft.demand_ir, expected_tenants=expected)


_Draw = Callable[[Generator, int | None], Problem]
# What each uses beyond several servers; in its twin with one server the same.
_KINDS: tuple[tuple[str, _Draw, frozenset[Option]], ...] = (
    ("plain", _plain, frozenset()),
    ("counts", _counts, frozenset()),
    ("weights", _weights, frozenset({Option.WEIGHT})),
    ("resource-weights", _resource_weights, frozenset({Option.RESOURCE_WEIGHTS})),
    ("zero-demands", _zero_demands, frozenset()),
    ("zero-capacities", _zero_capacities, frozenset()),
    ("nobody-eligible", _nobody_eligible, frozenset({Option.ELIGIBLE})),
    ("tasks-all-fit", _tasks_all_fit, frozenset({Option.TASKS})),
    ("tasks-bind", _tasks_bind, frozenset({Option.TASKS})),
    ("few-tasks", _few_tasks, frozenset({Option.TASKS})),
    ("tasks-as-many-as-bought", _tasks_as_many_as_bought, frozenset({Option.TASKS})),
    ("thousand-equal-tenants", _thousand_equal_tenants, frozenset()),
    ("magnitudes", _magnitudes, frozenset()),
    ("non-divisible", _non_divisible_servers, frozenset({Option.DIVISIBLE})),
    ("alphas", _alphas, frozenset({Option.ALPHA})),
    ("utilities", _utilities, frozenset({Option.ALPHA, Option.UTILITY, Option.WEIGHT})),
)
_SEVERAL_SERVERS_ONLY: tuple[tuple[str, _Draw, frozenset[Option]], ...] = (
    ("eligibility", _eligibility, frozenset({Option.ELIGIBLE})),
    ("nearly-identical-servers", _nearly_identical_servers, frozenset()),
    ("huge-server", _huge_server, frozenset()),
    ("combined", _combined, frozenset({Option.WEIGHT, Option.TASKS, Option.ELIGIBLE})),
)
_ONE_POOL_ONLY: tuple[tuple[str, _Draw, frozenset[Option]], ...] = (
    ("combined", _combined, frozenset({Option.WEIGHT, Option.TASKS})),
    ("expected-tenants", _expected_tenants, frozenset({Option.EXPECTED_TENANTS})),
)


def _bind(draw: _Draw, servers: int | None) -> Callable[[Generator], Problem]:
    return lambda generator: draw(generator, servers)


def _make_families() -> dict[str, Family]:
    several = [
        Family(name, options | {Option.SERVERS}, _bind(draw, None))
        for name, draw, options in _KINDS + _SEVERAL_SERVERS_ONLY
    ]
    pools = [Family(f"{name}-one-pool", options, _bind(draw, 1)) for name, draw, options in _KINDS + _ONE_POOL_ONLY]
    return {family.name: family for family in several + pools}


FAMILIES = _make_families()
