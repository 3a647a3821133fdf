"""Reads the fields of a document and refuses invalid ones, with the path of the field and what would be right.

A document is what a JSON or YAML reader returns: objects, lists, text, numbers, true, false, null. Problems and
scenarios are read by these functions, so that both say the same about the same mistake.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Self, TypeAlias

from fairbind.model.errors import InvalidProblemError

Path: TypeAlias = tuple[str | int, ...]

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_MAX_SHOWN = 60  # characters of a value in a message
_MAX_LISTED = 300  # characters of all known names


class FieldError(InvalidProblemError):
    """An invalid field. path: where it is. complaint: what is wrong with it."""

    def __init__(self, path: Path, complaint: str) -> None:
        """Word it."""
        self.path, self.complaint = path, complaint
        super().__init__(f"{show_path(path)}: {complaint}")


class DocumentName(str):
    """What the document is, as the first part of a path: shown where the whole document is meant."""

    __slots__ = ()


class NamedPlace(int):
    """The place of a server or a tenant in its list, with the name that messages add to the path."""

    name: str

    def __new__(cls, place: int, name: str) -> Self:
        """Return the place, which counts as the number that it is."""
        named = super().__new__(cls, place)
        named.name = name
        return named


def refuse(value: object, path: Path, right: str) -> NoReturn:
    """Raise FieldError: the field must be something else."""
    raise FieldError(path, f"must be {right}, not {show_value(value)}")


def complain(path: Path, complaint: str) -> NoReturn:
    """Raise FieldError, in words that follow the path."""
    raise FieldError(path, complaint)


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
    shown = _join(required) if required else ", ".join(fields)
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
    """Raise FieldError for a name that is not known, with the nearest one that is."""
    known = known if isinstance(known, Mapping | Sequence) else list(known)
    if name not in known:
        complain(path, f"{complaint}{suggest_name(name, known)}")


def read_list(value: object, path: Path, what: str) -> Sequence[object]:
    """Return a list that is not empty."""
    if not isinstance(value, list | tuple):
        refuse(value, path, f"a list of {what}")
    if not value:
        complain(path, "must have at least one entry, not []")
    return value


def read_optional_list(members: Mapping[str, object], field: str, path: Path) -> Sequence[object]:
    """Return a list, which may be empty or left out."""
    value = members.get(field, [])
    if not isinstance(value, list | tuple):
        refuse(value, (*path, field), "a list")
    return value


def read_text(value: object, path: Path, what: str = "text") -> str:
    """Return a text that is not empty and can be printed. what: the text is, such as a name."""
    if not isinstance(value, str):
        refuse(value, path, what if what == "text" else f"{what} (text)")
    if not value.strip() or not value.isprintable():
        refuse(value, path, f"{what} of printable characters")
    return value


def add_name(name: str, path: Path, names: dict[str, Path]) -> None:
    """Add a name to those that are there, or refuse it. names: with the paths of their fields."""
    if name in names:
        complain(path, f"must differ from all others, but {show_value(name)} is {show_path(names[name])} already")
    names[name] = path


def read_flag(value: object, path: Path) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        refuse(value, path, "true or false")
    return value


def read_number(value: object, path: Path, least: float, most: float) -> float:
    """Return a number within limits."""
    number = to_float(value)
    if number is None or not least <= number <= most:
        refuse(value, path, f"a number from {least:g} to {most:g}")
    return number + 0.0  # -0.0 is 0.0


def read_whole(value: object, path: Path, least: int, most: float) -> int:
    """Return a whole number within limits."""
    number = to_float(value)
    if number is None or not (least <= number <= most and number.is_integer()):
        refuse(value, path, f"a whole number from {least} to {most}")
    return int(number)


def to_float(value: object) -> float | None:
    """Return the number as a plain float; inf for whole numbers beyond all floats, None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def show_path(path: Path) -> str:
    """Return how a message names a field.

    >>> show_path(("tenants", 1, "demand", "cpu")), show_path(("tenants", 0, "demand", "nvidia.com/gpu"))
    ('tenants[1].demand.cpu', 'tenants[0].demand["nvidia.com/gpu"]')
    >>> show_path(("tenants", NamedPlace(1, "ada"), "weight"))
    'tenants[1].weight of ada'
    """
    text, owner, document = "", "", "problem"
    for part in path:
        if isinstance(part, DocumentName):
            document = part
        elif isinstance(part, int):
            text += f"[{part:d}]"
            owner = f" of {_show_name(part.name)}" if isinstance(part, NamedPlace) else owner
        elif _PLAIN.fullmatch(part) and len(part) <= _MAX_SHOWN:
            text += f".{part}" if text else part
        else:
            text += f"[{show_value(part)}]"
    return text + owner or document


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
