"""Reads the fields of an object, and knows which were read: each other one has no counterpart and is noted.

An invalid value is refused with the file, the document, the object, the field and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NoReturn

from fairbind.cluster.objects.quantity import QuantityError, parse_quantity, to_base_units
from fairbind.cluster.tenancy.tenants import PRIORITIES, WEIGHTS
from fairbind.fairness.problems.fields import Path, show_path, show_value
from fairbind.importing.notes import UNKNOWN, Note, Reasons
from fairbind.model.errors import InvalidProblemError

MOST_LETTERS: Final = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,250}[A-Za-z0-9])?")


def is_namespace(name: str) -> bool:
    """Return whether a namespace may have this name."""
    return _NAMESPACE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands. source: the file and the document. owner: the object's kind and name."""

    source: str
    owner: str
    path: Path = ()

    def to(self, part: str | int) -> Place:
        """Return the place of a member."""
        return Place(self.source, self.owner, (*self.path, part))

    @property
    def field(self) -> str:
        """The field as messages and notes name it."""
        return show_path(self.path) if self.path else "the whole"

    def refuse(self, value: object, right: str) -> NoReturn:
        """Raise InvalidProblemError: the field must be something else."""
        raise InvalidProblemError(f"{self.source}: {self.owner}: {self.field} must be {right}, not {show_value(value)}")

    def note(self, reason: str) -> Note:
        """Return a note about the field."""
        return Note(self.owner, self.field, reason)


class Section:
    """An object amid a document, read field by field. place: its own. An object that is absent has no fields."""

    def __init__(self, value: object, place: Place) -> None:
        """Raise InvalidProblemError where the value is neither an object nor null."""
        if value is not None and not isinstance(value, Mapping):
            place.refuse(value, "an object")
        self.place = place
        self._members: dict[str, object] = {str(name): member for name, member in (value or {}).items()}
        self._taken: set[str] = set()

    def owned_by(self, owner: str) -> Section:
        """Return the same object, of which no field is read, as one with a name of its own."""
        return Section(self._members, Place(self.place.source, owner))

    def has(self, name: str) -> bool:
        """Return whether the field is there with a value."""
        return self._members.get(name) is not None

    def take(self, name: str) -> object:
        """Return a field's value; None where it is absent."""
        self._taken.add(name)
        return self._members.get(name)

    def take_text(self, name: str) -> str:
        """Return a text; empty where it is absent."""
        value = self.take(name)
        if value is not None and not (isinstance(value, str) and value.isprintable()):
            self.place.to(name).refuse(value, "text")
        return value or ""

    def take_name(self, name: str) -> str:
        """Return the name of an object of the API; empty where it is absent."""
        value = self.take_text(name)
        if value and not (len(value) <= MOST_LETTERS and _NAME.fullmatch(value)):
            self.place.to(name).refuse(value, "a name of small letters, digits, - and .")
        return value

    def take_names(self, name: str) -> list[str]:
        """Return a list of texts."""
        value = self.take(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            self.place.to(name).refuse(value, "a list of names")
        return list(value) if isinstance(value, list) else []

    def take_namespace(self, name: str) -> str:
        """Return the name of a namespace; empty where it is absent."""
        value = self.take_text(name)
        if value and not is_namespace(value):
            self.place.to(name).refuse(value, "a namespace's name: at most 63 small letters, digits and -")
        return value

    def take_number(self, name: str) -> Fraction | None:
        """Return a number, or a quantity, of 0 or more, exactly; None where it is absent."""
        value = self.take(name)
        number = read_number(value)
        if value is not None and (number is None or number < 0):
            self.place.to(name).refuse(value, "a number of 0 or more")
        return number

    def take_whole(self, name: str) -> int | None:
        """Return a whole number; None where it is absent."""
        value = self.take(name)
        number = read_number(value)
        if value is not None and (number is None or number.denominator != 1):
            self.place.to(name).refuse(value, "a whole number")
        return None if number is None else int(number)

    def take_section(self, name: str) -> Section:
        """Return an object, without fields where it is absent."""
        return Section(self.take(name), self.place.to(name))

    def take_sections(self, name: str) -> list[Section]:
        """Return the objects of a list."""
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            self.place.to(name).refuse(value, "a list")
        place = self.place.to(name)
        return [Section(each, place.to(n)) for n, each in enumerate(value if isinstance(value, list) else ())]

    def take_amounts(self, name: str) -> dict[str, int]:
        """Return quantities by resource, in base units."""
        section = self.take_section(name)
        return {resource: section.take_amount(resource, resource) for resource in section.names}

    def take_amount(self, name: str, resource: str) -> int:
        """Return a quantity of a resource in base units; the field must be there."""
        return read_amount(self.take(name), resource, self.place.to(name))

    def take_labels(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return labels, sorted."""
        section = self.take_section(name)
        labels = []
        for key in section.names:
            value = section.take(key)
            if not isinstance(value, str) or len(value) > 63:  # noqa: PLR2004 - the API's own limit
                section.place.to(key).refuse(value, "the value of a label: text of at most 63 characters")
            labels.append((key, value))
        return tuple(sorted(labels))

    @property
    def names(self) -> list[str]:
        """The fields that are there, in their order."""
        return list(self._members)

    def note_rest(self, reasons: Reasons) -> Iterator[Note]:
        """Yield a note for each field that was not read and asks for something."""
        for name, value in self._members.items():
            reason = reasons.get(name, UNKNOWN)
            if name not in self._taken and not reason.is_silent(value):
                yield self.place.to(name).note(reason.text)


def read_number(value: object) -> Fraction | None:
    """Return the exact value of a number or a quantity; a float is the decimal that it is printed as.

    >>> read_number(0.1), read_number("500m"), read_number("many"), read_number(float("nan"))
    (Fraction(1, 10), Fraction(1, 2), None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return parse_quantity(repr(value) if isinstance(value, float) else str(value))
    except (QuantityError, ValueError):  # ValueError: an integer of more digits than Python prints
        return None


def read_amount(value: object, resource: str, place: Place) -> int:
    """Return a quantity of a resource in base units. Raises InvalidProblemError for what is none, or below 0."""
    if not _RESOURCE.fullmatch(resource):
        place.refuse(resource, "the name of a resource, such as cpu or nvidia.com/gpu")
    number = read_number(value)
    if number is None or number < 0:
        place.refuse(value, "a quantity of 0 or more, such as 16, 500m or 64Gi")
    return to_base_units(resource, repr(value) if isinstance(value, float) else str(value))


def fit_weight(weight: Fraction, place: Place, notes: list[Note]) -> Fraction:
    """Return a weight that a Tenant may have, the nearest one; a note says where it differs."""
    least, most = WEIGHTS
    fitting = min(max(weight, least), most)
    if fitting != weight:
        right = f"from {float(least):g} to {float(most):g}"
        notes.append(place.note(f"a Tenant's weight is {right}; {float(fitting):g} is written"))
    return fitting


def fit_priority(priority: int, place: Place, notes: list[Note]) -> int:
    """Return a priority that a Tenant may have, the nearest one; a note says where it differs."""
    least, most = PRIORITIES
    fitting = min(max(priority, least), most)
    if fitting != priority:
        notes.append(place.note(f"a Tenant's priority is from {least} to {most}; {fitting} is written"))
    return fitting
