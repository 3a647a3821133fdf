"""Bindings that the API server accepted and that no watch has shown since.

Such a pod holds its capacity by assumption only. Usually its event comes within milliseconds. When it does not, either
the watch is dead, or the binding was undone: the cluster was restored from a backup that is older. So after
`PATIENCE_SECONDS` all pods are listed again, and a pod that a newer list shows unbound waits again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

PATIENCE_SECONDS = 8.0
"""Looked at every second, so the list is asked for within 10 s."""
RELIST_SECONDS = 15.0
"""Lists that are asked for by this begin at least so far apart."""

_log = logging.getLogger(__name__)


class AssumedPod(Protocol):
    """A pod as the cache knows it."""

    @property
    def assumed(self) -> str | None:
        """The node on which it holds its capacity although no watch has shown it there."""


class AssumingWorld(Protocol):
    """The cache, as this sees it."""

    def find_pod(self, uid: str) -> AssumedPod | None: ...  # noqa: D102
    def forget(self, uid: str, *, postponed: bool = False) -> None: ...  # noqa: D102


class UnconfirmedBindings:
    """Remembers each accepted binding until the watch shows it or a list disproves it.

    relist: lists all pods and returns when a list that began after the call is in the cache.
    """

    def __init__(
        self,
        world: AssumingWorld,
        relist: Callable[[], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._relist = relist
        self._clock = clock
        self._accepted_at: dict[str, float] = {}
        self._not_before = 0.0

    def accepted(self, uid: str) -> None:
        """Note that the API server has accepted the binding of this pod just now."""
        if self._is_assumed(uid):
            self._accepted_at.pop(uid, None)  # oldest first
            self._accepted_at[uid] = self._clock()

    def is_list_due(self) -> bool:
        """Whether some binding was accepted too long ago; forgets those that were confirmed."""
        for uid in list(self._accepted_at):
            if self._clock() - self._accepted_at[uid] <= PATIENCE_SECONDS:
                return False
            if self._is_assumed(uid):
                return self._clock() >= self._not_before
            del self._accepted_at[uid]
        return False

    async def check(self) -> None:
        """List all pods, and let those wait again whose bindings were accepted before and are not there."""
        asked_at = self._clock()
        self._not_before = asked_at + RELIST_SECONDS
        await self._relist()
        undone = [uid for uid, at in self._accepted_at.items() if at <= asked_at and self._is_assumed(uid)]
        self._accepted_at = {uid: at for uid, at in self._accepted_at.items() if at > asked_at}
        for uid in undone:
            self._world.forget(uid)
        if undone:
            _log.warning("%d bindings were accepted and are not there any more; they are decided again", len(undone))

    def _is_assumed(self, uid: str) -> bool:
        pod = self._world.find_pod(uid)
        return pod is not None and pod.assumed is not None
