"""Turns a document into the `Problem` that mechanisms take, or raises an error that says which field is wrong.

Nothing is guessed or corrected. The first invalid field raises FieldError, an InvalidProblemError, with its path, the
name of its server or tenant, its value and what would be right. An unknown name comes with the nearest known one.

>>> parse_problem({
...     "resources": ["cpu"],
...     "servers": [{"name": "a", "capacity": {"cpu": 9}}],
...     "tenants": [{"name": "t", "demand": {"cpu": 1}, "weight": "2"}],
... })
Traceback (most recent call last):
    ...
fairbind.fairness.problems.fields.FieldError: tenants[0].weight of t: must be a number from 1e-15 to 1e+21, not "2"
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fairbind.fairness.problems.fields import (
    Path,
    add_name,
    check_known,
    complain,
    read_flag,
    read_list,
    read_mapping,
    read_number,
    read_object,
    read_text,
    read_whole,
    refuse,
    show_value,
    to_float,
)
from fairbind.fairness.problems.parse_tree import TREE_FIELDS, TreeReader, find_children, name_place
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.problems.tree import Tree
from fairbind.model.policy import LEAST_ALPHA

# Beyond these a unit was forgotten, not meant: 1e21 bytes are a zettabyte, 1e-15 cores a femto-core.
MIN_MAGNITUDE: Final = 1e-15
MAX_MAGNITUDE: Final = 1e21

PROBLEM_FIELDS: Final = ("resources", "servers", "tenants", "expectedTenants", "pool")
SERVER_FIELDS: Final = ("name", "capacity", "count", "alpha", "utilityA", "utilityB", "divisible")
TENANT_FIELDS: Final = ("name", "weight", "demand", "tasks", "eligible", "resourceWeights", *TREE_FIELDS)

_AMOUNT = f"0 or a number from {MIN_MAGNITUDE:g} to {MAX_MAGNITUDE:g}"


def parse_problem(document: object) -> Problem:
    """Return the problem that the document describes. Raises InvalidProblemError at the first field that is wrong."""
    problem = read_object(document, (), PROBLEM_FIELDS, required=("resources", "servers", "tenants"))
    resources = _read_names(problem["resources"], ("resources",))
    servers = _read_servers(read_list(problem["servers"], ("servers",), "servers"), resources)
    tenants = _read_tenants(read_list(problem["tenants"], ("tenants",), "tenants"), resources, servers)
    return Problem(
        resources=resources,
        server_names=tuple(servers.names),
        capacity_kr=_to_matrix(servers.capacity, len(resources)),
        count_k=np.array(servers.count, dtype=np.float64),
        divisible_k=np.array(servers.divisible, dtype=np.bool_),
        alpha_k=np.array(servers.alpha, dtype=np.float64),
        utility_a_k=np.array(servers.utility_a, dtype=np.float64),
        utility_b_k=np.array(servers.utility_b, dtype=np.float64),
        tenant_names=tuple(tenants.names),
        demand_ir=_to_matrix(tenants.demand, len(resources)),
        weight_i=np.array(tenants.weight, dtype=np.float64),
        tasks_i=np.array(tenants.tasks, dtype=np.float64),
        eligible_ik=_to_eligibility(tenants.eligible, len(servers.names)),
        resource_weight_ir=_to_matrix(tenants.resource_weights, len(resources)),
        expected_tenants=_read_expected(problem, len(tenants.names)),
        is_pooled=read_flag(problem["pool"], ("pool",)) if "pool" in problem else False,
        tree=tenants.tree,
    )


@dataclass(frozen=True, slots=True)
class _Servers:
    names: dict[str, Path]
    capacity: list[list[float]]
    count: list[int]
    divisible: list[bool]
    alpha: list[float]
    utility_a: list[float]
    utility_b: list[float]


@dataclass(frozen=True, slots=True)
class _Tenants:
    names: dict[str, Path]
    demand: list[list[float]]
    weight: list[float]
    tasks: list[float]
    eligible: list[list[int] | None]  # the servers' places; None for all
    resource_weights: list[list[float]]
    tree: Tree | None = None


def _read_servers(entries: Sequence[object], resources: tuple[str, ...]) -> _Servers:
    axis = {name: r for r, name in enumerate(resources)}
    servers = _Servers({}, [], [], [], [], [], [])
    for k, entry in enumerate(entries):
        path: Path = ("servers", name_place(k, entry))
        server = read_object(entry, path, SERVER_FIELDS, required=("name", "capacity"))
        _add_name(server["name"], ("servers", k, "name"), servers.names)
        servers.capacity.append(_read_amounts(server["capacity"], (*path, "capacity"), axis))
        servers.count.append(_read_count(server["count"], (*path, "count"), 1) if "count" in server else 1)
        servers.divisible.append(
            read_flag(server["divisible"], (*path, "divisible")) if "divisible" in server else True
        )
        alpha = _read_positive(server["alpha"], (*path, "alpha"), LEAST_ALPHA) if "alpha" in server else math.nan
        servers.alpha.append(alpha)
        _read_utility(server, path, servers)
    return servers


def _read_utility(server: Mapping[str, object], path: Path, servers: _Servers) -> None:
    a = _read_amount(server["utilityA"], (*path, "utilityA")) if "utilityA" in server else 1.0
    b = _read_amount(server["utilityB"], (*path, "utilityB")) if "utilityB" in server else 0.0
    if a == 0 and b == 0:
        complain((*path, "utilityB"), f"must be above 0 where utilityA is 0, not {show_value(b)}")
    servers.utility_a.append(a)
    servers.utility_b.append(b)


def _read_tenants(entries: Sequence[object], resources: tuple[str, ...], servers: _Servers) -> _Tenants:
    axis = {name: r for r, name in enumerate(resources)}
    places = {name: k for k, name in enumerate(servers.names)}
    tenants = _Tenants({}, [], [], [], [], [])
    reader = TreeReader(
        axis, _read_amount, lambda value, path: _read_eligible(value, path, places), find_children(entries)
    )
    names: dict[str, Path] = {}
    for i, entry in enumerate(entries):
        path: Path = ("tenants", name_place(i, entry))
        is_inner = isinstance(entry, Mapping) and reader.is_inner(entry.get("name"))
        tenant = read_object(entry, path, TENANT_FIELDS, required=("name",) if is_inner else ("name", "demand"))
        _add_name(tenant["name"], ("tenants", i, "name"), names)
        weight = _read_positive(tenant["weight"], (*path, "weight")) if "weight" in tenant else 1.0
        resource_weights = (
            _read_resource_weights(tenant["resourceWeights"], (*path, "resourceWeights"), axis)
            if "resourceWeights" in tenant
            else [1.0] * len(resources)
        )
        if is_inner:
            reader.check_inner(tenant, path)
            reader.weights[str(tenant["name"])] = weight, resource_weights
        else:
            tenants.names[str(tenant["name"])] = path
            tenants.demand.append(_read_demand(tenant["demand"], (*path, "demand"), axis))
            tenants.weight.append(weight)
            tenants.tasks.append(_read_amount(tenant["tasks"], (*path, "tasks")) if "tasks" in tenant else math.inf)
            tenants.eligible.append(
                _read_eligible(tenant["eligible"], (*path, "eligible"), places) if "eligible" in tenant else None
            )
            tenants.resource_weights.append(resource_weights)
        reader.read(tenant, path)
    return replace(tenants, tree=reader.make(tuple(tenants.names), len(places)))


def _read_names(value: object, path: Path) -> tuple[str, ...]:
    names: dict[str, Path] = {}
    for place, name in enumerate(read_list(value, path, "names")):
        _add_name(name, (*path, place), names)
    return tuple(names)


def _add_name(value: object, path: Path, names: dict[str, Path]) -> None:
    add_name(read_text(value, path, "a name"), path, names)


def _read_amounts(value: object, path: Path, axis: Mapping[str, int]) -> list[float]:
    row = [0.0] * len(axis)
    for name, amount in read_mapping(value, path, "an object of amounts by resource").items():
        row[_find_axis(name, path, axis)] = _read_amount(amount, (*path, name))
    return row


def _read_demand(value: object, path: Path, axis: Mapping[str, int]) -> list[float]:
    row = _read_amounts(value, path, axis)
    if not any(row):
        complain(path, f"must ask for more than 0 of at least one resource, not {show_value(value)}")
    return row


def _read_resource_weights(value: object, path: Path, axis: Mapping[str, int]) -> list[float]:
    row = [1.0] * len(axis)
    for name, weight in read_mapping(value, path, "an object of weights by resource").items():
        row[_find_axis(name, path, axis)] = _read_positive(weight, (*path, name))
    return row


def _find_axis(name: str, path: Path, axis: Mapping[str, int]) -> int:
    check_known(name, (*path, name), axis, "is no resource of this problem")
    return axis[name]


def _read_eligible(value: object, path: Path, servers: Mapping[str, int]) -> list[int]:
    if not isinstance(value, list | tuple):
        refuse(value, path, "a list of servers' names")
    found: dict[str, Path] = {}
    for place, name in enumerate(value):
        if not isinstance(name, str):
            refuse(name, (*path, place), "the name of a server")
        check_known(name, (*path, place), servers, f"{show_value(name)} is no server of this problem")
        add_name(name, (*path, place), found)
    return [servers[name] for name in found]


def _read_expected(problem: Mapping[str, object], tenants: int) -> int | None:
    if "expectedTenants" not in problem:
        return None
    return _read_count(problem["expectedTenants"], ("expectedTenants",), tenants)


def _read_count(value: object, path: Path, least: int) -> int:
    return read_whole(value, path, least, MAX_MAGNITUDE)


def _read_amount(value: object, path: Path) -> float:
    number = to_float(value)
    if number is None or not (number == 0 or MIN_MAGNITUDE <= number <= MAX_MAGNITUDE):
        refuse(value, path, _AMOUNT)
    return number + 0.0  # -0.0 is 0.0


def _read_positive(value: object, path: Path, least: float = MIN_MAGNITUDE) -> float:
    return read_number(value, path, least, MAX_MAGNITUDE)


def _to_matrix(rows: list[list[float]], width: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def _to_eligibility(
    places: Sequence[list[int] | None], servers: int
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    eligible_ik = np.ones((len(places), servers), dtype=np.bool_)
    for i, found in enumerate(places):
        if found is not None:
            eligible_ik[i] = False
            eligible_ik[i, found] = True
    return eligible_ik
