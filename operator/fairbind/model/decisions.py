"""Decisions are values: the cycle proposes, other parts execute."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fairbind.model.groups import GroupWait
from fairbind.model.plans import Bind, Plan, list_binds
from fairbind.model.reasons import Rejection, Rejections
from fairbind.model.reservations import Reservation
from fairbind.model.tasks import Task, TaskClass
from fairbind.model.until import FREE_CAPACITY, FreeCapacity, FreeSlots, Until

WEIGHTED_SHARE = "weighted share"


class Precedence(StrEnum):
    """By what a sibling comes before another."""

    LEVEL = "level"
    PRIORITY = "priority"
    GUARANTEE = "guarantee"


@dataclass(frozen=True, slots=True)
class FairnessReason:
    """Another tenant is further below and takes the next free capacity that both could use on some empty server.

    share: where the waiting tenant stands in what the policy measures by, on the cluster or on the server class where
    the tenant is least behind. next_tenant, next_share: who comes before it there, and where that one stands.
    measure: what the two numbers are, in words that follow "its". reserved_on: on how many servers something is
    reserved for that tenant. by: why that one comes first.
    compared: in a tree, the two siblings that are compared, above the waiting tenant and above the other one, where one
    of them is an inner tenant; the two numbers are theirs. None: the two tenants themselves.
    """

    share: float
    next_tenant: str
    next_share: float
    measure: str = WEIGHTED_SHARE
    reserved_on: int = 0
    by: Precedence = Precedence.LEVEL
    compared: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """No task of this class that is still waiting fits anywhere now.

    first: the task of the class that is next. waiting: how many of the class wait.
    rejections: (reason, number of servers), sorted. A server that the class may not use counts once, under the
    placement's reason; one with conflicting keys once, as a port conflict; any other once for each resource of which
    it has too little.
    blocked: set when the class may not be placed at all. fairness: set when fairness is why the capacity went
    elsewhere. is_too_large: whether none of the servers that the class may use could hold a task of it when empty.
    at_limit: set when a limit of the tenant keeps the task from every server that could hold it, whatever is free
    there.
    reserved_on: on how many servers something is reserved for it. expected: when the first of these may have enough,
    of a group all of them, seconds since the epoch; None: none is, or it should have had by now.
    until: what may end the wait, each by itself. Until then no cycle that recalls looks at the class again.
    group: set when the class is of a group whose minimum does not fit; the rejections are of a task that is lacking.
    """

    task_class: TaskClass
    first: Task
    waiting: int
    rejections: Rejections
    blocked: Rejection | None = None
    fairness: FairnessReason | None = None
    is_too_large: bool = False
    at_limit: Rejection | None = None
    reserved_on: int = 0
    expected: float | None = None
    until: tuple[Until, ...] = FREE_CAPACITY
    group: GroupWait | None = None

    @property
    def is_for_capacity(self) -> bool:
        """Whether free capacity, and nothing else, ends the wait."""
        return all(isinstance(each, FreeCapacity | FreeSlots) for each in self.until)

    @property
    def missing_slots(self) -> int | None:
        """For how many tasks more there must be free capacity before the wait may end; None: one may be enough."""
        first = self.until[0]
        return first.count if isinstance(first, FreeSlots) and len(self.until) == 1 else None

    @property
    def is_ended_by_capacity(self) -> bool:
        """Whether free capacity may end the wait."""
        return any(isinstance(each, FreeCapacity | FreeSlots) for each in self.until)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the class fitted, although it may be placed."""
        return self.blocked is None and self.waiting == len(self.task_class.tasks)


@dataclass(frozen=True, slots=True, eq=False)
class CycleReport:
    """What one cycle decided, in the order of the decisions, and what still waits.

    now: the time that the caller gave, seconds since the epoch. policy: its id.
    plans: in the order in which they were decided. waits: one for each class that could not go on; sorted by tenant
    and sort key. complete: False when the limit of decisions ended the cycle before the filling did.
    weighted_shares: after the bindings, by tenant, sorted by name. is_rationed: whether tasks that fit were passed
    over, because their tenants may not have more of them decided now. reserved: what was reserved while it decided.
    reopens: whether some of that has come free for others since, so that another cycle may decide more. again_in: after
    so many seconds another cycle may decide or reserve more, though nothing changes; None: it would not.
    """

    now: float
    policy: str
    plans: tuple[Plan, ...]
    waits: tuple[Wait, ...]
    weighted_shares: tuple[tuple[str, float], ...]
    complete: bool
    is_rationed: bool = False
    reserved: tuple[Reservation, ...] = ()
    reopens: bool = False
    again_in: float | None = None

    @property
    def bindings(self) -> tuple[Bind, ...]:
        """The binds of all plans."""
        return tuple(list_binds(self.plans))
