"""Tasks: those that wait for a place, grouped in classes of equal tasks, and those that have one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairbind.model.groups import TaskGroup
from fairbind.model.preferences import Preferences
from fairbind.model.reasons import Rejection, Rejections
from fairbind.model.servers import BoolArray
from fairbind.model.topology import DomainRules


@dataclass(frozen=True, slots=True)
class Task:
    """One waiting task. Inside a tenant the order goes by higher priority, then earlier queue time, then uid.

    name: for people and for the last tie of `fifo`; for Kubernetes "namespace/name".
    queue_time: seconds since the epoch at which it began to wait.
    """

    uid: str
    name: str
    priority: int
    queue_time: float


@dataclass(frozen=True, slots=True)
class ExclusiveKeys:
    """Keys that at most one task on a server may hold, such as a port of the machine.

    taken: keys that the task marks as taken on its server. conflicting: keys of which none may be taken there before.
    The two differ so that wildcards can be said: a wildcard takes "p/*" and conflicts with "p/any", which all take.
    """

    taken: frozenset[str] = frozenset()
    conflicting: frozenset[str] = frozenset()


NO_EXCLUSIVE_KEYS = ExclusiveKeys()


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where a task may go, whatever is free. Shared by all classes with equal constraints.

    eligible_k: shape (K,), aligned with the server table.
    preference_k: preferences as a score, more is better, shape (K,), int64; None when there are none. Ranks before fit.
    rejections: why servers are not eligible, as (reason, how many servers), counted once a server; sorted.
    exclusive_keys: keys of which a server has one.
    reserved: what is kept from others on servers and not from these tasks, by the server's index, length R, base units.
    It is no part of `ServerTable.free_kr`. A server has it once, however many placements may use it.
    is_open: whether any server is eligible.
    """

    eligible_k: BoolArray
    preference_k: NDArray[np.int64] | None = None
    rejections: Rejections = ()
    exclusive_keys: ExclusiveKeys = NO_EXCLUSIVE_KEYS
    reserved: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    is_open: bool = field(init=False)

    def __post_init__(self) -> None:
        """Compute `is_open` once; thousands of classes share a placement."""
        object.__setattr__(self, "is_open", bool(self.eligible_k.any()))


@dataclass(frozen=True, slots=True)
class Pin:
    """The one server, of all that a placement allows, to which tasks may go: a thousand pins share one placement.

    name: of the server. server: its index, of an eligible one; None: the tasks may not go there, or it does not exist.
    rejections: why servers are not eligible for these tasks, in place of the placement's; sorted.
    """

    name: str
    server: int | None
    rejections: Rejections = ()


@dataclass(frozen=True, slots=True, eq=False)
class TaskClass:
    """A tenant's waiting tasks with equal demand and equal constraints.

    tenant: the tenant's name, one of the snapshot's.
    demand_r: what one task takes from a server, length R, base units. Decides whether it fits.
    share_demand_r: what one task counts in shares; differs from demand_r only where a request is missing.
    placement: where it may go. pin: the only server of these where it may; None: all of them.
    tasks: in their order (priority descending, queue time, uid); never empty.
    blocked: why no task of this class may be placed at all, or None.
    rules: what closes servers depending on which tasks their topology domains hold; None: nothing does.
    preferences: which of the servers on which they fit its tasks should take; None: what `Placement.preference_k` says.
    counts_as: the subjects of counters in which its tasks count once they are placed.
    brings: what else each of its tasks adds to counters then: subject and amount.
    is_rationed: whether so many of its tasks at most are decided as the caller of a cycle lets its tenant have.
    most_seconds: for how long each of its tasks runs at most once it is placed.
    group: whose minimum its tasks are part of; None: each is placed by itself. Other classes of the tenant may have an
    equal one. role: what its tasks are in the group; empty: nothing in particular.
    """

    tenant: str
    demand_r: tuple[int, ...]
    share_demand_r: tuple[int, ...]
    placement: Placement
    tasks: tuple[Task, ...]
    blocked: Rejection | None = None
    pin: Pin | None = None
    rules: DomainRules | None = None
    preferences: Preferences | None = None
    counts_as: frozenset[Hashable] = frozenset()
    brings: tuple[tuple[Hashable, int], ...] = ()
    is_rationed: bool = False
    most_seconds: float = inf
    group: TaskGroup | None = None
    role: str = ""

    @property
    def is_eligible(self) -> bool:
        """Whether there is a server to which its tasks may go, however full it is and whatever its domains hold."""
        return self.placement.is_open if self.pin is None else self.pin.server is not None

    @property
    def group_name(self) -> str:
        """The name of the group; empty: each task is placed by itself."""
        return "" if self.group is None else self.group.name

    @property
    def has_rules_or_preferences(self) -> bool:
        """Whether something about it depends on what topology domains hold."""
        return self.rules is not None or self.preferences is not None


@dataclass(frozen=True, slots=True)
class RunningTask:
    """One task that a tenant holds on a server; any scheduler may have placed it.

    tenant, server: names. start: when it began to run, seconds since the epoch; of a task that is decided and does not
    run yet, when it was made. group: what it belongs to and must not be taken apart from ("namespace/name"); None: to
    nothing. demand_r, share_demand_r: as in `TaskClass`, length R, base units. keys: the exclusive keys that it takes.
    most_seconds: for how long it runs at most, from its start.
    """

    uid: str
    tenant: str
    server: str
    priority: int
    start: float
    group: str | None
    demand_r: tuple[int, ...]
    share_demand_r: tuple[int, ...]
    keys: frozenset[str] = frozenset()
    most_seconds: float = inf
