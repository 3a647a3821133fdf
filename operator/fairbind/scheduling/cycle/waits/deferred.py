"""Classes that are deferred where few servers gained free capacity: many may fit there, and the first take it all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import gt

import numpy as np

from fairbind.model import TaskClass
from fairbind.model.servers import FloatArray
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.waits.store import SINGLE_CLASSES, Fitting


class DeferredClasses:
    """Classes for which one of a few servers had free capacity, by tenant, until the tenant is next.

    servers: their indices. _places_of: where a tenant's classes are among all of them. _demand_rn: what all ask for,
    shape (R, n), _least_r: the least of it, length R; None: not needed yet.
    """

    __slots__ = ("_classes", "_demand_rn", "_fitting", "_free", "_least_r", "_places_of", "servers")

    def __init__(self, fitting: Sequence[Fitting], servers: Sequence[int], free: FreeCapacity | None) -> None:
        """Take what is deferred. free: None where nothing is held."""
        self.servers = servers
        self._free = free
        self._fitting = fitting
        self._classes = [each for part in fitting for each in part.classes]
        self._demand_rn: FloatArray | None = None
        self._least_r: Sequence[float] | None = None
        self._places_of: dict[str, list[int]] = {}
        for place, task_class in enumerate(self._classes):
            self._places_of.setdefault(task_class.tenant, []).append(place)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._places_of

    def list_tenants(self) -> list[str]:
        """Return whose classes are held."""
        return list(self._places_of)

    def let_go(self, tenant: str) -> list[TaskClass]:
        """Return the classes that were held of a tenant and that one of the servers has free capacity for now, once.

        Where there is no free capacity for any class of any tenant, nothing is held any more.
        """
        if not self._places_of or self._free is None:
            return []
        left_sr = self._free.left_rk[:, self.servers].T
        lefts = left_sr.tolist()
        if not has_capacity(lefts, self._get_least(self._free)):
            self._places_of.clear()
        places = self._places_of.pop(tenant, [])
        if len(places) < SINGLE_CLASSES:
            return [each for place in places if has_capacity(lefts, (each := self._classes[place]).demand_r)]
        demand_rn, fits_n = self._get_demands(self._free)[:, places], np.zeros(len(places), dtype=np.bool_)
        for left_r in left_sr:
            fits_n |= (demand_rn <= left_r[:, None]).all(axis=0)
        return [self._classes[places[n]] for n in np.flatnonzero(fits_n).tolist()]

    def _get_demands(self, free: FreeCapacity) -> FloatArray:
        if self._demand_rn is None:
            axes = len(free.left_rk)
            self._demand_rn = np.concatenate([part.compute_demands(axes) for part in self._fitting], axis=1)
        return self._demand_rn

    def _get_least(self, free: FreeCapacity) -> Sequence[float]:
        """Return the least that any class asks for, length R: where that is too much, none fits."""
        if self._least_r is None:
            if len(self._classes) < SINGLE_CLASSES:
                self._least_r = list(map(min, zip(*(each.demand_r for each in self._classes), strict=True)))
            else:
                self._least_r = self._get_demands(free).min(axis=1).tolist()
        return self._least_r


NOTHING_DEFERRED = DeferredClasses((), (), None)


def has_capacity(lefts: Iterable[Sequence[float]], demand_r: Sequence[float]) -> bool:
    """Whether one of these has enough of everything."""
    return not all(any(map(gt, demand_r, left_r)) for left_r in lefts)
