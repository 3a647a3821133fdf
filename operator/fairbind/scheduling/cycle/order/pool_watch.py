"""Watches over pools: until when a tenant's candidate stays in its pool, though others take capacity there.

The level of an inner tenant is that on the pool of its candidate, which is another one only when no task of the class
fits in the pool any more. For each shape of tasks and pool a server with much free capacity is kept in mind, on which a
task fits. Only where a task is placed on that server is it looked at again.
"""

from __future__ import annotations

from typing import NamedTuple

from fairbind.scheduling.cycle.order.task_queues import Choice
from fairbind.scheduling.cycle.servers.shapes import PinnedShape, Shape


class _Watched(NamedTuple):
    """A shape in a pool; two shapes are never equal."""

    shape: Shape | PinnedShape
    pool: int


class PoolWatch:
    """See the module.

    _by_server: what is watched on each server. _placed_on: where something was placed since the last `follow`.
    _tenants: whose candidates are of a shape and in a pool.
    """

    __slots__ = ("_by_server", "_placed_on", "_tenants")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Watch nothing any more."""
        self._by_server: dict[int, list[_Watched]] = {}
        self._tenants: dict[_Watched, set[str]] = {}
        self._placed_on: list[int] = []

    def note_placed(self, server: int) -> None:
        """Note that something was placed on a server, or that it is closed to some tasks."""
        self._placed_on.append(server)

    def watch(self, choice: Choice) -> bool:
        """Watch over the pool of a candidate; False: other things than free capacity may take the pool from it."""
        task_class = choice.queue.task_class
        placement = task_class.placement
        if task_class.rules is not None or placement.exclusive_keys.conflicting or placement.reserved:
            return False
        watched = _Watched(choice.queue.shape, choice.pool)
        tenants = self._tenants.setdefault(watched, set())
        if not tenants and not self._set(watched):
            return False
        tenants.add(task_class.tenant)
        return True

    def follow(self) -> set[str]:
        """Catch up with what was placed, and return the tenants whose candidate is in its pool no more."""
        ended: set[str] = set()
        placed_on, self._placed_on = self._placed_on, []
        for server in placed_on:
            for watched in self._by_server.pop(server, ()):
                if not (watched.shape.fits_on(server) and self._keep(watched, server)) and not self._set(watched):
                    ended |= self._tenants.pop(watched)
        return ended

    def _set(self, watched: _Watched) -> bool:
        """Keep the best server for watching in mind; False: there is none."""
        server = watched.shape.find_spare(watched.pool)
        return server is not None and self._keep(watched, server)

    def _keep(self, watched: _Watched, server: int) -> bool:
        self._by_server.setdefault(server, []).append(watched)
        return True
