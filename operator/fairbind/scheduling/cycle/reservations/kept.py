"""Kept reservations: which there are, how each goes on, and which servers were given up for whom."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fairbind.model import TaskClass
from fairbind.model.reservations import Reservation

FIRST_PAUSE = 60.0
"""A server on which nothing came free is passed over for so long, and then for twice as long each time."""

Key = tuple[str, str, tuple[int, ...]]
"""A tenant, a server, and what one task asks for."""


@dataclass(slots=True)
class _Progress:
    """How a reservation goes on. free: for how many of its tasks enough is free. best, at: its most, and when."""

    free: float
    best: float
    at: float


class KeptReservations:
    """The reservations of one cluster, by tenant and server."""

    def __init__(self) -> None:
        self._kept: dict[Key, Reservation] = {}
        self._progress: dict[Key, _Progress] = {}
        self._pauses: dict[tuple[str, str], tuple[float, float]] = {}
        self._taken: dict[Key, Reservation] = {}

    def __len__(self) -> int:
        """Return on how many servers something is reserved, each tenant for itself."""
        return len(self._kept)

    def list_all(self) -> list[Reservation]:
        """Return all of them, the oldest first."""
        return list(self._kept.values())

    def list_of(self, tenant: str) -> list[Reservation]:
        """Return those of a tenant, the oldest first."""
        return [each for each in self._kept.values() if each.tenant == tenant]

    def count_tasks(self, reservation: Reservation) -> int:
        """Return for how many tasks there is the same reservation now."""
        known = self._kept.get(_get_key(reservation))
        return 0 if known is None else known.count

    def add(self, reservation: Reservation) -> None:
        """Keep a reservation; one of the tenant for the same demand and server is for so many tasks more."""
        key = _get_key(reservation)
        known = self._kept.get(key)
        if known is None:
            self._kept[key] = reservation
            self._progress[key] = _Progress(0.0, 0.0, reservation.since)
        else:
            self._kept[key] = replace(known, count=known.count + reservation.count, behind=reservation.behind)

    def end(self, reservation: Reservation, count: int | None = None) -> None:
        """End a reservation for so many of its tasks; None: for all."""
        key = _get_key(reservation)
        known = self._kept[key]
        if count is None or count >= known.count:
            del self._kept[key], self._progress[key]
        else:
            self._kept[key] = replace(known, count=known.count - count)
            self._progress[key].best = min(self._progress[key].best, known.count - count)

    def end_all(self) -> None:
        """End every reservation."""
        self._kept.clear()
        self._progress.clear()
        self._taken.clear()

    def use(self, task_class: TaskClass, server: str, now: float) -> None:
        """Use up a reservation for a task of this class, if the server has one for it."""
        known = self._kept.get((task_class.tenant, server, task_class.demand_r))
        if known is not None and known.group == task_class.group_name:
            progress = self._progress[_get_key(known)]
            progress.best, progress.at = max(progress.best - 1, 0.0), now
            self.end(known, 1)

    def note_taken(self, reservation: Reservation) -> None:
        """Note that a task took some of what is reserved and may keep it for longer than was expected."""
        self._taken[_get_key(reservation)] = reservation

    def end_taken(self) -> None:
        """End what was reserved on servers where others came before, as it is expected at another time now."""
        for each in self._taken.values():
            if self.count_tasks(each):
                self.end(each)
        self._taken.clear()

    def set_behind(self, reservation: Reservation, behind: frozenset[str]) -> None:
        """Let other tenants be those that are further behind."""
        if behind != reservation.behind:
            self._kept[_get_key(reservation)] = replace(reservation, behind=behind)

    def expect(self, reservation: Reservation, expected: float) -> None:
        """Let what is reserved be expected at another time."""
        if expected != reservation.expected:
            self._kept[_get_key(reservation)] = replace(reservation, expected=expected)

    # --- progress ---

    def note_free(self, reservation: Reservation, free: float, now: float) -> None:
        """Note for how many of its tasks enough is free."""
        progress = self._progress[_get_key(reservation)]
        progress.free = free
        if free > progress.best:
            progress.best, progress.at = free, now

    def get_free(self, reservation: Reservation) -> float:
        """Return for how many of its tasks enough was free at the last look."""
        return self._progress[_get_key(reservation)].free

    def is_stalled(self, reservation: Reservation, now: float, seconds: float) -> bool:
        """Whether nothing more has come free for so long: of a group's reservations, on none of their servers."""
        same = [reservation] if not reservation.group else self.list_of(reservation.tenant)
        latest = max(self._progress[_get_key(each)].at for each in same if each.group == reservation.group)
        return now - latest > seconds

    def give_up(self, reservation: Reservation, now: float) -> None:
        """End a reservation, and pass its server over for a while."""
        key = reservation.tenant, reservation.server
        seconds = 2 * self._pauses[key][1] if key in self._pauses else FIRST_PAUSE
        self._pauses[key] = now + seconds, seconds
        self.end(reservation)

    def is_passed_over(self, tenant: str, server: str, now: float) -> bool:
        """Whether a server is passed over for a tenant."""
        pause = self._pauses.get((tenant, server))
        return pause is not None and now < pause[0]

    def forget_pauses(self, now: float) -> None:
        """Forget servers that were passed over, and have not been for as long again."""
        if self._pauses:
            self._pauses = {key: (at, long) for key, (at, long) in self._pauses.items() if now < at + long}


def _get_key(reservation: Reservation) -> Key:
    return reservation.tenant, reservation.server, reservation.demand_r
