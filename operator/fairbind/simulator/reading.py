"""Reads values of a scenario and refuses invalid ones, with the path of the field and what would be right."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from fairbind.fairness.problems.parse import Path, show_path, show_value, suggest_name
from fairbind.model import InvalidProblemError

NANOSECONDS = 10**9
LEAST_SECONDS = 1e-9
MOST_SECONDS = 1e9
"""Thirty years. The clock counts whole nanoseconds, so that sums of times are exact."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,98}[A-Za-z0-9])?", re.ASCII)


def show_field(path: Path) -> str:
    """Return how a message names a field of a scenario."""
    return show_path(path) if path else "scenario"


def refuse(value: object, path: Path, right: str) -> NoReturn:
    """Raise InvalidProblemError: the field must be something else."""
    raise InvalidProblemError(f"{show_field(path)}: must be {right}, not {show_value(value)}")


def complain(path: Path, complaint: str) -> NoReturn:
    """Raise InvalidProblemError about a field, in words that follow its path."""
    raise InvalidProblemError(f"{show_field(path)}: {complaint}")


def read_mapping(value: object, path: Path, right: str) -> Mapping[str, object]:
    """Return an object whose names are text."""
    if not isinstance(value, Mapping):
        refuse(value, path, right)
    members: Mapping[Any, object] = value
    for name in members:
        if not isinstance(name, str):
            complain(path, f"names must be text, not {show_value(name)}")
    return members


def read_object(
    value: object, path: Path, fields: Sequence[str], *, required: Sequence[str] = ()
) -> Mapping[str, object]:
    """Return an object that has no other fields than these, and all that are required."""
    shown = ", ".join(required or fields)
    members = read_mapping(value, path, f"an object with {shown}")
    for name in members:
        check_known(name, (*path, name), fields, "is no field here")
    for name in required:
        if name not in members:
            complain((*path, name), f"is missing; {shown} must be there")
    return members


def read_choice(value: object, path: Path, fields: Sequence[str]) -> tuple[str, object]:
    """Return the only field of an object, one of these, with its value."""
    members = read_object(value, path, fields)
    if len(members) != 1:
        complain(path, f"must have exactly one of {', '.join(fields)}")
    return next(iter(members.items()))


def check_known(name: str, path: Path, known: Iterable[str], complaint: str) -> None:
    """Raise InvalidProblemError for a name that is not known, naming the nearest one that is."""
    known = list(known)
    if name not in known:
        complain(path, f"{complaint}{suggest_name(name, known)}")


def read_list(value: object, path: Path, what: str) -> Sequence[object]:
    """Return a list that is not empty."""
    if not isinstance(value, list | tuple):
        refuse(value, path, f"a list of {what}")
    if not value:
        complain(path, "must have at least one entry, not []")
    return value


def read_text(value: object, path: Path) -> str:
    """Return a text that is not empty and can be printed."""
    if not isinstance(value, str):
        refuse(value, path, "text")
    if not value.strip() or not value.isprintable():
        refuse(value, path, "text of printable characters")
    return value


def read_name(value: object, path: Path) -> str:
    """Return a name that nodes, tenants and tasks may have."""
    name = read_text(value, path)
    if not _NAME.fullmatch(name):
        refuse(value, path, "a name of at most 100 letters, digits, dots, dashes and underscores")
    return name


def add_name(name: str, path: Path, names: dict[str, Path]) -> None:
    """Add a name to those that are there, or refuse it. names: with the paths of their fields."""
    if name in names:
        complain(path, f"must differ from all others, but {show_value(name)} is {show_path(names[name])} already")
    names[name] = path


def read_optional_list(members: Mapping[str, object], field: str, path: Path) -> Sequence[object]:
    """Return a list, which may be empty or left out."""
    value = members.get(field, [])
    if not isinstance(value, list | tuple):
        refuse(value, (*path, field), "a list")
    return value


def read_number(value: object, path: Path, least: float, most: float) -> float:
    """Return a finite number within limits."""
    number = _to_float(value)
    if number is None or not least <= number <= most:
        refuse(value, path, f"a number from {least:g} to {most:g}")
    return number + 0.0  # -0.0 is 0.0


def read_whole(value: object, path: Path, least: int, most: int) -> int:
    """Return a whole number within limits."""
    number = _to_float(value)
    if number is None or not (least <= number <= most and number.is_integer()):
        refuse(value, path, f"a whole number from {least} to {most}")
    return int(number)


def read_time(value: object, path: Path) -> int:
    """Return a time from the start on, in nanoseconds."""
    return round(read_number(value, path, 0.0, MOST_SECONDS) * NANOSECONDS)


def read_span(value: object, path: Path) -> int:
    """Return a time that passes, in nanoseconds: more than nothing."""
    return round(read_number(value, path, LEAST_SECONDS, MOST_SECONDS) * NANOSECONDS)


def _to_float(value: object) -> float | None:
    """Return a number as a float; None for what is none, NaN among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
