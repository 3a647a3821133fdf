"""Reads the values of a scenario: fields as everywhere, names that nodes may have, and times."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from fairbind.fairness.problems.fields import (
    Path,
    add_name,
    check_known,
    complain,
    read_choice,
    read_list,
    read_mapping,
    read_number,
    read_object,
    read_optional_list,
    read_text,
    read_whole,
    refuse,
    show_path,
)
from fairbind.model import InvalidProblemError

__all__ = [
    "LEAST_SECONDS",
    "MOST_SECONDS",
    "NANOSECONDS",
    "add_name",
    "check_known",
    "complain",
    "convert_value",
    "read_choice",
    "read_list",
    "read_mapping",
    "read_name",
    "read_number",
    "read_object",
    "read_optional_list",
    "read_span",
    "read_text",
    "read_time",
    "read_whole",
    "refuse",
]

NANOSECONDS = 10**9
LEAST_SECONDS = 1e-9
MOST_SECONDS = 1e9
"""Thirty years. The clock counts whole nanoseconds, so that sums of times are exact."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,98}[A-Za-z0-9])?", re.ASCII)


def read_name(value: object, path: Path) -> str:
    """Return a name that nodes, tenants and tasks may have."""
    name = read_text(value, path)
    if not _NAME.fullmatch(name):
        refuse(value, path, "a name of at most 100 letters, digits, dots, dashes and underscores")
    return name


def convert_value(value: object, wanted: Any, path: Path) -> Any:
    """Return a value as the wanted type. Raises InvalidProblemError that names the place of what is wrong."""
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        place = f"{show_path(path)}{where.removesuffix('`')}"
        raise InvalidProblemError(f"{place}: {message[:1].lower()}{message[1:]}") from error


def read_time(value: object, path: Path) -> int:
    """Return a time from the start on, in nanoseconds."""
    return round(read_number(value, path, 0.0, MOST_SECONDS) * NANOSECONDS)


def read_span(value: object, path: Path) -> int:
    """Return a time that passes, in nanoseconds: more than nothing."""
    return round(read_number(value, path, LEAST_SECONDS, MOST_SECONDS) * NANOSECONDS)
