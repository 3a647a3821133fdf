"""Random problems with trees, and trees around problems that have none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.problems.tree import ROOT, Tree, make_bounds

Generator = np.random.Generator


def tenant(name: str, parent: str | None = None, tasks: float | None = None, **fields: Any) -> dict[str, Any]:
    """Return a tenant of a problem; resources among the fields are its demand."""
    demand = {resource: fields.pop(resource) for resource in ("cpu", "mem", "gpu") if resource in fields}
    made = {"name": name, **({"demand": demand} if demand else {}), **fields}
    made |= {} if parent is None else {"parent": parent}
    return made | ({} if tasks is None else {"tasks": tasks})


SCIENCE_AND_ENGINEERING = (
    tenant("sci", weight=50, cpu=1, mem=1, tasks=10),
    tenant("eng", weight=50),
    tenant("dev", "eng", cpu=1, tasks=10),
    tenant("prod", "eng", mem=1, tasks=10),
)
FOUR_EQUAL_CHILDREN = (
    tenant("n1", cpu=1, tasks=30),
    tenant("n2", cpu=1, tasks=30),
    tenant("n3"),
    tenant("n31", "n3", cpu=1, tasks=30),
    tenant("n32", "n3", mem=1, tasks=30),
    tenant("n4", mem=1, tasks=30),
)


def with_flat_tree(problem: Problem) -> Problem:
    """Return the problem with a tree that says nothing: all tenants are children of the root."""
    tenants, servers = len(problem.tenant_names), len(problem.server_names)
    tree = Tree(
        inner_names=(),
        parent_v=np.full(tenants, ROOT, dtype=np.intp),
        priority_v=np.zeros(tenants, dtype=np.intp),
        weight_n=np.zeros(0),
        resource_weight_nr=np.zeros((0, len(problem.resources))),
        guarantees=make_bounds([], servers),
        limits=make_bounds([], servers),
        place_v=np.arange(tenants),
    )
    return replace(problem, tree=tree)


def draw_document(
    generator: Generator,
    *,
    servers: int = 1,
    levels: int = 3,
    bounds: bool = True,
    spread: float = 3.0,
    priorities: bool = False,
    resources: int = 3,
) -> dict[str, Any]:
    """Return a problem document with a tree of at most so many levels.

    Some demands are zero, some tenants can run nowhere, some have few tasks. bounds: with limits, and guarantees of
    which some are more than there is. spread: weights are 10 ** -spread to 10 ** spread.
    """
    names = [f"r{r}" for r in range(resources)]
    kinds = [
        {
            "name": f"s{k}",
            "capacity": {
                name: float(generator.integers(1, 20)) if generator.random() < 0.85 else 0.0 for name in names
            },
        }
        for k in range(servers)
    ]
    tenants: list[dict[str, Any]] = []

    def add(parent: str | None, level: int) -> None:
        tenant: dict[str, Any] = {"name": f"t{len(tenants)}", **({} if parent is None else {"parent": parent})}
        tenants.append(tenant)
        if generator.random() < 0.7:
            tenant["weight"] = float(10 ** generator.uniform(-spread, spread))
        if priorities and generator.random() < 0.3:
            tenant["priority"] = int(generator.integers(-2, 3))
        if bounds:
            _add_bounds(generator, tenant, names, kinds)
        if level < levels and generator.random() < (0.7 if level == 1 else 0.5):
            for _ in range(int(generator.integers(1, 4))):
                add(tenant["name"], level + 1)
        else:
            _add_tasks(generator, tenant, names, kinds)

    for _ in range(int(generator.integers(2, 4))):
        add(None, 1)
    return {"resources": names, "servers": kinds, "tenants": tenants}


def _add_bounds(generator: Generator, tenant: dict[str, Any], names: list[str], kinds: list[dict[str, Any]]) -> None:
    if generator.random() < 0.3:
        tenant["limit"] = [_draw_bound(generator, names, kinds, 0.0, 10.0)]
    if generator.random() < 0.3:
        entries = int(generator.integers(1, 3))
        tenant["guarantee"] = [_draw_bound(generator, names, kinds, 0.5, 20.0) for _ in range(entries)]


def _add_tasks(generator: Generator, tenant: dict[str, Any], names: list[str], kinds: list[dict[str, Any]]) -> None:
    demand = {r: float(generator.uniform(0.1, 3)) for r in names if generator.random() < 0.6}
    tenant["demand"] = demand or {names[0]: 1.0}
    if generator.random() < 0.4:
        tenant["tasks"] = float(generator.integers(0, 8))
    if len(kinds) > 1 and generator.random() < 0.4:
        tenant["eligible"] = [kind["name"] for kind in kinds if generator.random() < 0.6]


def _draw_bound(
    generator: Generator, names: list[str], kinds: list[dict[str, Any]], least: float, most: float
) -> dict[str, Any]:
    chosen = [name for name in names if generator.random() < 0.5] or names[:1]
    bound: dict[str, Any] = {"resources": {name: float(generator.uniform(least, most)) for name in chosen}}
    if len(kinds) > 1 and generator.random() < 0.5:
        bound["servers"] = [kind["name"] for kind in kinds if generator.random() < 0.5] or [kinds[0]["name"]]
    return bound


def draw(generator: Generator, **options: Any) -> Problem:
    """Return the problem of `draw_document`."""
    return parse_problem(draw_document(generator, **options))
