"""Reservations: capacity that is kept for a tenant that is rightfully next and whose task fits nowhere yet."""

from __future__ import annotations

from dataclasses import dataclass
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
    behind: the tenants that are further behind and may use it, too.
    """

    tenant: str
    server: str
    demand_r: tuple[int, ...]
    count: int
    since: float
    expected: float
    behind: frozenset[str] = frozenset()
