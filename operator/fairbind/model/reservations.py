"""Reservations: capacity that is kept for a tenant that is rightfully next and whose task fits nowhere yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

DEFAULT_MAX_SECONDS = 600.0
DEFAULT_MOST = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    """What an administrator chose about reservations.

    is_on: whether any are made. max_seconds: after so long without progress a reservation goes to another server.
    most: the part of the capacity that a tenant may use of which so much at most is reserved, above 0 and at most 1.
    """

    is_on: bool = True
    max_seconds: float = DEFAULT_MAX_SECONDS
    most: Fraction = DEFAULT_MOST


DEFAULT_RESERVATIONS = ReservationSettings()
NO_RESERVATIONS = ReservationSettings(is_on=False)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity of one server that is kept for tasks of a tenant.

    tenant, server: names. demand_r: what one task takes, length R, base units. count: for how many tasks. since: when
    it was made, seconds since the epoch. expected: when enough for the first task may be free, as far as run times say.
    behind: the tenants that were further behind at the last review; each may use it, too, while it is so. group: for
    whose tasks alone it is; empty: for all tasks of the tenant with this demand. What is reserved for a group is
    expected when all of it may be free.
    """

    tenant: str
    server: str
    demand_r: tuple[int, ...]
    count: int
    since: float
    expected: float
    behind: frozenset[str] = frozenset()
    group: str = ""


@dataclass(slots=True)
class Reserved:
    """What is reserved for a tenant: on which servers, and how much of each resource, base units."""

    servers: set[str] = field(default_factory=set)
    amounts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Reserved) -> None:
        """Count what is reserved for another tenant as well; a server of both counts once."""
        self.servers |= other.servers
        self.amounts.update(other.amounts)
