"""Classes that are held back where few servers have room again: many may fit there, and the first leave no room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairbind.model import TaskClass
from fairbind.scheduling.cycle.remembered import Fitting, choose_fitting
from fairbind.scheduling.cycle.room import Room


class Held:
    """Classes for which one of a few servers had room, by tenant, until it is the tenant's turn.

    servers: their indices. While tasks are only placed, room only shrinks: what does not fit any more is left out.
    _told: the tenants whose turn it was.
    """

    __slots__ = ("_by_tenant", "_fitting", "_log_size", "_room", "_told", "servers")

    def __init__(self, fitting: Sequence[Fitting], servers: Sequence[int], room: Room) -> None:
        """fitting: classes that may fit on one of the servers."""
        self.servers = servers
        self._fitting = fitting
        self._room = room
        self._log_size: int | None = None
        self._told: set[str] = set()
        self._by_tenant: dict[str, list[TaskClass]] = {}
        self._sort()

    def list_tenants(self) -> list[str]:
        """Return whose classes are held."""
        return list(self._by_tenant)

    def let_go(self, tenant: str) -> list[TaskClass]:
        """Return the classes that were held of a tenant and for which there is still room, once."""
        if self._room.log_size != self._log_size:
            self._log_size = self._room.log_size
            self._fitting = [self._choose(each) for each in self._fitting]
            self._sort()
        self._told.add(tenant)
        return self._by_tenant.pop(tenant, [])

    def _sort(self) -> None:
        self._by_tenant = {}
        for fitting in self._fitting:
            for task_class in fitting.classes:
                if task_class.tenant not in self._told:
                    self._by_tenant.setdefault(task_class.tenant, []).append(task_class)

    def _choose(self, fitting: Fitting) -> Fitting:
        """Return those that still fit on one of the servers."""
        classes, demand_rn, is_plain = fitting
        left_sr = self._room.left_rk[:, self.servers].T
        if demand_rn is None:
            chosen = {id(each): each for left_r in left_sr.tolist() for each in choose_fitting(classes, left_r)}
            return Fitting(list(chosen.values()), None, is_plain)
        fits_n = np.zeros(len(classes), dtype=np.bool_)
        for left_r in left_sr:
            fits_n |= (demand_rn <= left_r[:, None]).all(axis=0)
        places = np.flatnonzero(fits_n)
        return Fitting([classes[n] for n in places.tolist()], demand_rn[:, places], is_plain)
