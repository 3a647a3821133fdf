"""Plans: what a cycle decides, each carried out or taken back as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from fairbind.model.tasks import RunningTask, Task


@dataclass(frozen=True, slots=True)
class Bind:
    """Place this task of this tenant on this server."""

    task: Task
    tenant: str
    server: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Let this running task go."""

    running: RunningTask


@dataclass(frozen=True, slots=True)
class Plan:
    """Binds and evictions that have a meaning only together; most plans are one bind.

    binds: at least one, in the order of the decisions. evictions: what must be gone before the first of them.
    """

    binds: tuple[Bind, ...]
    evictions: tuple[Evict, ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether it is one bind, and nothing else."""
        return len(self.binds) == 1 and not self.evictions


def plan_each(binds: Iterable[Bind]) -> tuple[Plan, ...]:
    """Return a plan for each bind."""
    return tuple([Plan((bind,)) for bind in binds])


def split_binds(binds: Sequence[Bind], sizes: Iterable[int]) -> tuple[Plan, ...]:
    """Return plans of so many binds each, which are all of them."""
    coming = iter(binds)
    return tuple([Plan(tuple(islice(coming, size))) for size in sizes])


def list_binds(plans: Sequence[Plan]) -> Iterator[Bind]:
    """Yield the binds of plans, in the order of the decisions."""
    for plan in plans:
        yield from plan.binds
