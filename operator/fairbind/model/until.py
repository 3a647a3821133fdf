"""What can end a wait, as values: a wait says which of them it waits for, an event is one of them that has come.

This is what kube-scheduler's queueing hints are for: a task that waits is looked at again when something has happened
that may help it, and not before. `FreeCapacity` is what nearly all wait for, and `FreeSlots` what
groups do. The amounts decide then, so no event has to say it. The same is true of `UsageBelow` and `TimeReached`,
which the next snapshot and the clock tell. The others are told by name: `ServerChange("n1")` ends the waits that have
an equal value.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Some server that the task may use has more free capacity, or accepts tasks again."""


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """The servers that the task may use have come to hold so many more of such tasks, together."""

    count: int


@dataclass(frozen=True, slots=True)
class ServerChange:
    """Something else about a server is different, such as for whom its capacity is reserved."""

    server: str


@dataclass(frozen=True, slots=True)
class UsageBelow:
    """What counts towards a limit has fallen below an amount, base units. subject: of the limit's counter."""

    subject: Hashable
    amount: int


@dataclass(frozen=True, slots=True)
class GroupComplete:
    """All members of a group are there."""

    group: str


@dataclass(frozen=True, slots=True)
class ClaimChange:
    """A claim of the task, or a device that it could use, is different."""

    claim: str


@dataclass(frozen=True, slots=True)
class TimeReached:
    """A time has come, seconds since the epoch."""

    time: float


Event = ServerChange | GroupComplete | ClaimChange
"""What is told by name."""

Until = FreeCapacity | FreeSlots | UsageBelow | TimeReached | Event
"""What can end a wait."""

FREE_CAPACITY: tuple[Until, ...] = (FreeCapacity(),)
"""What tasks wait for that fit nowhere for want of free capacity only."""
