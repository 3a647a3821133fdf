"""From the document that people write to the `Problem` that mechanisms take, or an error that says where it is wrong.

`parse_problem` takes what a JSON or YAML reader returns: objects, lists, text, numbers, true, false, null. Nothing is
guessed or corrected: the first invalid field raises InvalidProblemError with its path, its value and what
would be right, and an unknown name comes with the nearest one that is known. The name of the server or the
tenant follows the path.

>>> parse_problem({
...     "resources": ["cpu", "memory"],
...     "servers": [{"name": "a", "capacity": {"cpu": 9, "memory": 18}}],
...     "tenants": [{"name": "t", "demand": {"cpu": -1, "memory": 4}}],
... })
Traceback (most recent call last):
    ...
fairbind.model.errors.InvalidProblemError: tenants[0].demand.cpu of t: must be 0 or a number from 1e-15 to 1e+21, not -1
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Self, TypeAlias

import numpy as np

from fairbind.fairness.problems.problem import Problem
from fairbind.model.errors import InvalidProblemError
from fairbind.model.policy import LEAST_ALPHA

# Beyond these a unit was forgotten, not meant: 1e21 bytes are a zettabyte, 1e-15 cores a femto-core.
MIN_MAGNITUDE: Final = 1e-15
MAX_MAGNITUDE: Final = 1e21

PROBLEM_FIELDS: Final = ("resources", "servers", "tenants", "expectedTenants", "pool")
SERVER_FIELDS: Final = ("name", "capacity", "count", "alpha", "divisible")
TENANT_FIELDS: Final = ("name", "weight", "demand", "tasks", "eligible", "resourceWeights")

Path: TypeAlias = tuple[str | int, ...]


class NamedPlace(int):
    """The place of a server or a tenant in its list, with the name that messages add to the path."""

    name: str

    def __new__(cls, place: int, name: str) -> Self:
        """Return the place, which counts as the number that it is."""
        named = super().__new__(cls, place)
        named.name = name
        return named


_AMOUNT = f"0 or a number from {MIN_MAGNITUDE:g} to {MAX_MAGNITUDE:g}"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_MAX_SHOWN = 60  # characters of a value in a message
_MAX_LISTED = 300  # characters of all known names


def parse_problem(document: object) -> Problem:
    """Return the problem that the document describes. Raises InvalidProblemError at the first field that is wrong."""
    problem = _read_object(document, (), PROBLEM_FIELDS, required=("resources", "servers", "tenants"))
    resources = _read_names(problem["resources"], ("resources",))
    servers = _read_servers(_read_list(problem["servers"], ("servers",), "servers"), resources)
    tenants = _read_tenants(_read_list(problem["tenants"], ("tenants",), "tenants"), resources, servers)
    return Problem(
        resources=resources,
        server_names=tuple(servers.names),
        capacity_kr=_to_matrix(servers.capacity, len(resources)),
        count_k=np.array(servers.count, dtype=np.float64),
        divisible_k=np.array(servers.divisible, dtype=np.bool_),
        alpha_k=np.array(servers.alpha, dtype=np.float64),
        tenant_names=tuple(tenants.names),
        demand_ir=_to_matrix(tenants.demand, len(resources)),
        weight_i=np.array(tenants.weight, dtype=np.float64),
        tasks_i=np.array(tenants.tasks, dtype=np.float64),
        eligible_ik=_to_eligibility(tenants.eligible, len(servers.names)),
        resource_weight_ir=_to_matrix(tenants.resource_weights, len(resources)),
        expected_tenants=_read_expected(problem, len(tenants.names)),
        is_pooled=_read_flag(problem["pool"], ("pool",)) if "pool" in problem else False,
    )


@dataclass(frozen=True, slots=True)
class _Servers:
    names: dict[str, int]  # with their places in the list
    capacity: list[list[float]]
    count: list[float]
    divisible: list[bool]
    alpha: list[float]


@dataclass(frozen=True, slots=True)
class _Tenants:
    names: dict[str, int]
    demand: list[list[float]]
    weight: list[float]
    tasks: list[float]
    eligible: list[list[int] | None]  # the servers' places; None for all
    resource_weights: list[list[float]]


def _read_servers(entries: Sequence[object], resources: tuple[str, ...]) -> _Servers:
    axis = {name: r for r, name in enumerate(resources)}
    servers = _Servers({}, [], [], [], [])
    for k, entry in enumerate(entries):
        path: Path = ("servers", _name_place(k, entry))
        server = _read_object(entry, path, SERVER_FIELDS, required=("name", "capacity"))
        _add_name(server["name"], ("servers", k, "name"), servers.names)
        servers.capacity.append(_read_amounts(server["capacity"], (*path, "capacity"), axis))
        servers.count.append(_read_whole(server["count"], (*path, "count"), 1) if "count" in server else 1.0)
        servers.divisible.append(
            _read_flag(server["divisible"], (*path, "divisible")) if "divisible" in server else True
        )
        alpha = _read_positive(server["alpha"], (*path, "alpha"), LEAST_ALPHA) if "alpha" in server else math.nan
        servers.alpha.append(alpha)
    return servers


def _read_tenants(entries: Sequence[object], resources: tuple[str, ...], servers: _Servers) -> _Tenants:
    axis = {name: r for r, name in enumerate(resources)}
    tenants = _Tenants({}, [], [], [], [], [])
    for i, entry in enumerate(entries):
        path: Path = ("tenants", _name_place(i, entry))
        tenant = _read_object(entry, path, TENANT_FIELDS, required=("name", "demand"))
        _add_name(tenant["name"], ("tenants", i, "name"), tenants.names)
        tenants.demand.append(_read_demand(tenant["demand"], (*path, "demand"), axis))
        tenants.weight.append(_read_positive(tenant["weight"], (*path, "weight")) if "weight" in tenant else 1.0)
        tenants.tasks.append(_read_amount(tenant["tasks"], (*path, "tasks")) if "tasks" in tenant else math.inf)
        tenants.eligible.append(
            _read_eligible(tenant["eligible"], (*path, "eligible"), servers.names) if "eligible" in tenant else None
        )
        tenants.resource_weights.append(
            _read_resource_weights(tenant["resourceWeights"], (*path, "resourceWeights"), axis)
            if "resourceWeights" in tenant
            else [1.0] * len(resources)
        )
    return tenants


def _name_place(place: int, entry: object) -> int:
    """Return the place of an entry, with its name where it has one that a message can show."""
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return NamedPlace(place, name) if isinstance(name, str) and name.strip() and name.isprintable() else place


def _read_object(value: object, path: Path, fields: Sequence[str], *, required: Sequence[str]) -> Mapping[str, object]:
    members = _read_mapping(value, path, f"an object with {_join(required)}")
    for name in members:
        if name not in fields:
            raise InvalidProblemError(f"{show_path((*path, name))}: is no field here{suggest_name(name, fields)}")
    for name in required:
        if name not in members:
            raise InvalidProblemError(f"{show_path((*path, name))}: is missing; {_join(required)} must be there")
    return members


def _read_mapping(value: object, path: Path, right: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        _refuse(value, path, right)
    members: Mapping[Any, object] = value
    for name in members:
        if not isinstance(name, str):
            raise InvalidProblemError(f"{show_path(path)}: names must be text, not {show_value(name)}")
    return members


def _read_list(value: object, path: Path, what: str) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        _refuse(value, path, f"a list of {what}")
    if not value:
        raise InvalidProblemError(f"{show_path(path)}: must have at least one entry, not []")
    return value


def _read_names(value: object, path: Path) -> tuple[str, ...]:
    names: dict[str, int] = {}
    for place, name in enumerate(_read_list(value, path, "names")):
        _add_name(name, (*path, place), names)
    return tuple(names)


def _add_name(value: object, path: Path, names: dict[str, int]) -> None:
    if not isinstance(value, str):
        _refuse(value, path, "a name (text)")
    if not value.strip() or not value.isprintable():
        _refuse(value, path, "a name of printable characters")
    if value in names:
        first = (path[0], names[value], *path[2:])
        raise InvalidProblemError(
            f"{show_path(path)}: must differ from all others, but {show_value(value)} is {show_path(first)} already"
        )
    names[value] = len(names)


def _read_amounts(value: object, path: Path, axis: Mapping[str, int]) -> list[float]:
    row = [0.0] * len(axis)
    for name, amount in _read_mapping(value, path, "an object of amounts by resource").items():
        row[_find_axis(name, path, axis)] = _read_amount(amount, (*path, name))
    return row


def _read_demand(value: object, path: Path, axis: Mapping[str, int]) -> list[float]:
    row = _read_amounts(value, path, axis)
    if not any(row):
        raise InvalidProblemError(
            f"{show_path(path)}: must ask for more than 0 of at least one resource, not {show_value(value)}"
        )
    return row


def _read_resource_weights(value: object, path: Path, axis: Mapping[str, int]) -> list[float]:
    row = [1.0] * len(axis)
    for name, weight in _read_mapping(value, path, "an object of weights by resource").items():
        row[_find_axis(name, path, axis)] = _read_positive(weight, (*path, name))
    return row


def _find_axis(name: str, path: Path, axis: Mapping[str, int]) -> int:
    place = axis.get(name)
    if place is None:
        raise InvalidProblemError(
            f"{show_path((*path, name))}: is no resource of this problem{suggest_name(name, axis)}"
        )
    return place


def _read_eligible(value: object, path: Path, servers: Mapping[str, int]) -> list[int]:
    if not isinstance(value, list | tuple):
        _refuse(value, path, "a list of servers' names")
    found: dict[int, int] = {}
    for place, name in enumerate(value):
        if not isinstance(name, str):
            _refuse(name, (*path, place), "the name of a server")
        k = servers.get(name)
        if k is None:
            raise InvalidProblemError(
                f"{show_path((*path, place))}: {show_value(name)} is no server of this problem"
                f"{suggest_name(name, servers)}"
            )
        if k in found:
            first = show_path((*path, found[k]))
            raise InvalidProblemError(
                f"{show_path((*path, place))}: must differ from all others, but {show_value(name)} is {first} already"
            )
        found[k] = place
    return list(found)


def _read_expected(problem: Mapping[str, object], tenants: int) -> int | None:
    if "expectedTenants" not in problem:
        return None
    return int(_read_whole(problem["expectedTenants"], ("expectedTenants",), tenants))


def _read_amount(value: object, path: Path) -> float:
    number = _to_float(value)
    if number is None or not (number == 0 or MIN_MAGNITUDE <= number <= MAX_MAGNITUDE):
        _refuse(value, path, _AMOUNT)
    return number + 0.0  # -0.0 is 0.0


def _read_positive(value: object, path: Path, least: float = MIN_MAGNITUDE) -> float:
    number = _to_float(value)
    if number is None or not least <= number <= MAX_MAGNITUDE:
        _refuse(value, path, f"a number from {least:g} to {MAX_MAGNITUDE:g}")
    return number


def _read_whole(value: object, path: Path, least: int) -> float:
    number = _to_float(value)
    if number is None or not (least <= number <= MAX_MAGNITUDE and number.is_integer()):
        _refuse(value, path, f"a whole number from {least} to {MAX_MAGNITUDE:g}")
    return number


def _read_flag(value: object, path: Path) -> bool:
    if not isinstance(value, bool):
        _refuse(value, path, "true or false")
    return value


def _to_float(value: object) -> float | None:
    """Return the number as a plain float; inf for whole numbers beyond all floats, None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


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


def _refuse(value: object, path: Path, right: str) -> NoReturn:
    raise InvalidProblemError(f"{show_path(path)}: must be {right}, not {show_value(value)}")


def show_path(path: Path) -> str:
    """Return how a message names a field.

    >>> show_path(("tenants", 1, "demand", "cpu")), show_path(("tenants", 0, "demand", "nvidia.com/gpu"))
    ('tenants[1].demand.cpu', 'tenants[0].demand["nvidia.com/gpu"]')
    >>> show_path(("tenants", NamedPlace(1, "ada"), "weight"))
    'tenants[1].weight of ada'
    """
    text, owner = "", ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part:d}]"
            owner = f" of {_show_name(part.name)}" if isinstance(part, NamedPlace) else owner
        elif _PLAIN.fullmatch(part) and len(part) <= _MAX_SHOWN:
            text += f".{part}" if text else part
        else:
            text += f"[{show_value(part)}]"
    return text + owner or "problem"


def show_value(value: object) -> str:
    r"""Return how a message shows a value: on one line, not long, in the words of JSON.

    >>> show_value("no\nnumber"), show_value(None), show_value(10**50), show_value([1, 2])
    ('"no\\nnumber"', 'null', 'a whole number of 51 digits', 'a list')
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return _show_text(value)
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else json.dumps(float(value))
    if isinstance(value, int):
        return _show_whole(value)
    if isinstance(value, Mapping):
        return "an object" if value else "{}"
    return _show_other(value)


def _show_text(text: str) -> str:
    text = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
    # DEL is the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=not text.isprintable()).replace("\x7f", "\\u007f")


def _show_whole(number: int) -> str:
    digits = 1 + int(math.log10(abs(number))) if number else 1
    return f"{number}" if digits <= _MAX_SHOWN // 2 else f"a whole number of {digits} digits"


def _show_other(value: object) -> str:
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    return f"a {type(value).__name__}"


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or all of them if they are few.

    >>> suggest_name("memroy", ["cpu", "memory"]), suggest_name("xyz", ["cpu", "memory"])
    ('; did you mean memory?', '; known are cpu, memory')
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1) if len(name) <= _MAX_SHOWN else []
    near = near or [known_name for known_name in names if name and name in known_name]
    if near:
        return f"; did you mean {_show_name(near[0])}?"
    shown = ", ".join(_show_name(known_name) for known_name in names)
    return f"; known are {shown}" if len(shown) <= _MAX_LISTED else ""


def _show_name(name: str) -> str:
    return name if name.isprintable() and len(name) <= _MAX_SHOWN else show_value(name)


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
