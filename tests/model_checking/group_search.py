"""A search through all that can happen to two groups: every interleaving with so many troubles at most.

Between troubles the world goes on by itself: bindings are carried out in their order, and cycles run. So each state has
one way on that is free and several that cost a trouble. States that cannot be told apart are looked at once, with the
fewest troubles that lead there. A state is reached anew by what led to it, from the beginning: the parts cannot be
copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from kube.operator.simulation import VirtualLoop
from model_checking.group_server import Setting
from model_checking.group_world import GO_ON, Step, World

MOST_QUIET_STEPS = 60
"""So many steps without a trouble must be enough for everything to come to its end."""

Path = tuple[Step, ...]


@dataclass
class GroupSearch:
    """states: how many there are. complaint: what is wrong after these steps; None: nothing is."""

    setting: Setting
    troubles: int
    states: int = 0
    runs: int = 0
    complaint: str | None = None
    path: Path = ()
    known: dict[object, None] = field(default_factory=dict)

    async def search(self) -> GroupSearch:
        """Look at all states, those with fewer troubles first, until something is wrong."""
        layer: list[Path] = [()]
        for left in range(self.troubles, -1, -1):
            following: list[Path] = []
            for path in layer:
                for reached, steps in await self._follow(path):
                    following += [(*reached, step) for step in steps if step != GO_ON] if left else []
                if self.complaint is not None:
                    return self
            layer = following
        return self

    async def _follow(self, path: Path) -> list[tuple[Path, list[Step]]]:
        """Return the new states on the way that is free from where these steps lead, and what may happen in each."""
        self.runs += 1
        world = World(self.setting)
        try:
            for step in path:
                await world.take(step)
            return await self._go_on(world, path)
        finally:
            await world.close()

    async def _go_on(self, world: World, path: Path) -> list[tuple[Path, list[Step]]]:
        found: list[tuple[Path, list[Step]]] = []
        for _ in range(MOST_QUIET_STEPS):
            state = world.describe()
            if state in self.known:
                return found
            self.known[state] = None
            self.states += 1
            complaints = world.find_complaints()
            if complaints:
                self.complaint, self.path = "; ".join(complaints), path
                return found
            found.append((path, world.list_steps()))
            if world.is_quiet:
                return found
            path = (*path, GO_ON)
            await world.take(GO_ON)
        self.complaint, self.path = "it does not come to rest", path
        return found


def search(setting: Setting, troubles: int) -> GroupSearch:
    """Search in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(GroupSearch(setting, troubles).search())


def describe(path: Iterable[Step]) -> str:
    """Return the steps as text; those that come by themselves are dots."""
    return " ".join("." if step == GO_ON else f"[{step}]" for step in path)
