"""What has no counterpart in a Tenant: a line for each field, with the object and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Note(NamedTuple):
    """A field that is not carried over, or not as it stands. owner: the object's kind and name."""

    owner: str
    field: str
    reason: str

    def __str__(self) -> str:
        """Return the line.

        >>> print(Note("Queue a", "spec.reclaimable", "no pod is evicted"))
        Queue a: spec.reclaimable: no pod is evicted
        """
        return f"{self.owner}: {self.field}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Reason:
    """A field's reason to have no counterpart. silent: values that ask for nothing, such as the API's defaults."""

    text: str
    silent: tuple[object, ...] = ()

    def is_silent(self, value: object) -> bool:
        """Return whether this value needs no note: it is empty, or asks for nothing."""
        kept = drop_empty(value)
        return kept in (None, {}, [], "") or any(kept == each and type(kept) is type(each) for each in self.silent)


Reasons = Mapping[str, Reason]
UNKNOWN = Reason("no field that fairbind knows")


def drop_empty(value: object) -> object:
    """Return a value without members that are empty, as an API writes optional fields."""
    if not isinstance(value, Mapping):
        return value
    kept = {name: drop_empty(member) for name, member in value.items()}
    return {name: member for name, member in kept.items() if member not in (None, {}, [], "")}
