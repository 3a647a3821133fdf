"""Whether a replica sees what it decides about: what is listed, how old that may be, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairbind.kube.client.reflector import Reflector
from fairbind.kube.observer import Observer
from fairbind.kube.operator.surroundings import Follower

DECISIVE = ("pods", "nodes")
BLIND_SECONDS = 3.0
"""When pods or nodes are out of sight for longer, nothing is decided: what is free may be taken, or they gone."""
MAX_WATCH_AGE_SECONDS = 75.0
"""When the API server did not show for longer that a watch is alive, nothing is decided, whatever the watch is of."""


class Sight:
    """What all reflectors, and the follower of Tenants and policies, know of their own state."""

    def __init__(
        self,
        reflectors: dict[str, Reflector[Any]],
        follower: Follower,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        """reflectors: by the plural of their kind. clock: monotonic."""
        self.reflectors = reflectors
        self.follower = follower
        self._observer = observer
        self._clock = clock
        self._broken_since: dict[str, float] = {}

    async def wait_until_listed(self) -> None:
        """Wait until each kind was listed once."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        await self.follower.listed.wait()

    def is_blind(self) -> bool:
        """Whether pods or nodes have been out of sight for longer than an exchange of connections takes.

        Or whether anything on which decisions depend may be too old, read by half, or of a cluster that was restored.
        """
        now = self._clock()
        return (
            self.needs_list()
            or any(reflector.is_half_listed for reflector in self.reflectors.values())
            or any(now - since > BLIND_SECONDS for since in self._broken_since.values())
            or any(age > MAX_WATCH_AGE_SECONDS for age in self._find_ages().values())
        )

    def needs_list(self) -> bool:
        """Whether pods or nodes must be listed again before anything is decided or sent."""
        return any(self.reflectors[name].needs_relist for name in DECISIVE)

    def find_problems(self) -> dict[str, str | None]:
        """Return what each kind waits for, or None; tell the observer the ages of all watches. Due every second."""
        problems = {name: reflector.problem for name, reflector in self.reflectors.items()}
        for name in DECISIVE:
            if problems[name] is None:
                self._broken_since.pop(name, None)
            else:
                self._broken_since.setdefault(name, self._clock())
        for name, age in self._find_ages().items():
            self._observer.watch_aged(name, age)
            if age > MAX_WATCH_AGE_SECONDS and problems.get(name) is None:
                problems[name] = f"no sign of life of the watch for {age:.0f} s; nothing is decided"
        return problems

    def _find_ages(self) -> Mapping[str, float]:
        ages = {name: reflector.age for name, reflector in self.reflectors.items() if reflector.synced.is_set()}
        return ages | dict(self.follower.find_ages())
