"""What pacing is told and what it says: events, and instructions that answer them. `pacing` has the rules."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from fairbind.model import Bind, Plan


class BindResult(enum.StrEnum):
    """What became of a decision.

    bound: the pod is on its node, or its gate is open. permitted: another scheduler was told that it may place the
    pod; whether bindings of its namespace fail is seen when it asks for the binding. conflict: it is bound
    elsewhere, was made again under its name, is gated or being deleted. gone: it does not exist any more. invalid:
    the API server will never take this binding. fenced: we may not bind any more; nothing more was sent. stale: its
    node is gone meanwhile, or closed to it; nothing was sent. crowded: another scheduler took its capacity meanwhile;
    nothing was sent. deferred: bindings of its namespace came to take long, or its claims could not be bound and
    rest; nothing was sent. failed: not bound, although it might be later; the reason was logged.
    """

    BOUND = "bound"
    PERMITTED = "permitted"
    CONFLICT = "conflict"
    GONE = "gone"
    INVALID = "invalid"
    FENCED = "fenced"
    STALE = "stale"
    OVERCOMMITTED = "crowded"
    DEFERRED = "deferred"
    FAILED = "failed"

    @property
    def is_done(self) -> bool:
        """Whether the decision is carried out."""
        return self in {BindResult.BOUND, BindResult.PERMITTED}


NOT_SENT = frozenset({BindResult.FENCED, BindResult.STALE, BindResult.OVERCOMMITTED, BindResult.DEFERRED})
"""After these the pod waits on as before."""

# --- events; msgspec's structs are made in a fraction of a dataclass's time, and two come with each binding ---


class Changed(msgspec.Struct, frozen=True):
    """Something changed: a cycle may decide more, or differently."""


class Tick(msgspec.Struct, frozen=True):
    """The time has come that the last `WakeAt` named. A tick at any other time does no harm."""


class CycleSkipped(msgspec.Struct, frozen=True):
    """Answers `RunCycle`: this replica may not decide now. The next event decides when it is asked again."""


class NothingWaits(msgspec.Struct, frozen=True):
    """Answers `RunCycle`: no task waits, so there was nothing to decide."""


class Decided(msgspec.Struct, frozen=True):
    """Answers `RunCycle`: the cycle's decisions. `CycleEnded` or `CycleFailed` follows.

    plans: in the order of the decisions. complete: False when the limit ended the cycle. classes: how many waited
    before the cycle. opens: the UIDs of those that open a gate. scale_ups: pods behind a gate that one more node could
    help, in the order of the tenants' shares; without a server. is_rationed: whether pods that fit were passed over,
    because no more of their tenants may be decided now. again_in: after so many seconds another cycle may decide or
    reserve more, though nothing changes.
    """

    plans: Sequence[Plan]
    complete: bool
    classes: int
    opens: frozenset[str] = frozenset()
    scale_ups: Sequence[Bind] = ()
    is_rationed: bool = False
    again_in: float | None = None


class BindWithdrawn(msgspec.Struct, frozen=True):
    """Answers a `Plan`, once for each of its binds: none begins, because a pod went away or waits no more.

    is_stuck: whether one could not hold its capacity beside the others of its plan. The same decision would end in the
    same way, so all of them leave the scheduling order for a while.
    """

    uid: str
    is_stuck: bool = False


class CycleEnded(msgspec.Struct, frozen=True):
    """Follows `Decided`: the cycle is over.

    seconds: how long it took, from the snapshot to the last binding begun. is_next_different: whether the next cycle
    looks at other waiting tasks, though nothing else changes.
    """

    seconds: float
    is_next_different: bool = False


class CycleFailed(msgspec.Struct, frozen=True):
    """Answers `RunCycle` or follows `Decided`: the cycle raised an error.

    classes: how many waited; None when there is no snapshot, or when `Decided` said it.
    """

    classes: int | None


class BindStalled(msgspec.Struct, frozen=True):
    """A binding that began has failed once, or takes long; it goes on. failed: whether an attempt failed."""

    uid: str
    failed: bool


class BindAwaits(msgspec.Struct, frozen=True):
    """A binding that began waits for the claims of its pod, which is nothing of the API server's, or not any more."""

    uid: str
    awaits: bool


class BindEnded(msgspec.Struct, frozen=True):
    """A binding that began has ended."""

    uid: str
    result: BindResult


class BindAsked(msgspec.Struct, frozen=True):
    """Another scheduler has asked for the binding of a pod that it may place, and it begins.

    binding: its name, which is no UID: telling the scheduler may be under way still. `BindStalled` has it, too.
    """

    binding: str
    tenant: str
    namespace: str


class BindAnswered(msgspec.Struct, frozen=True):
    """A binding that another scheduler asked for has ended."""

    binding: str
    result: BindResult


class PodOnItsWay(msgspec.Struct, frozen=True):
    """A pod of this tenant is found with an open gate and without a node, at the beginning of a leader's time.

    has_capacity: whether capacity could be kept for it.
    """

    uid: str
    tenant: str
    has_capacity: bool = True


class PodReserved(msgspec.Struct, frozen=True):
    """Other capacity is reserved for a pod on its way than was decided for it, or none any more."""

    uid: str
    has_capacity: bool


class PodRefused(msgspec.Struct, frozen=True):
    """Answers `GiveBack`: the other scheduler has looked at the pod and found no node for it."""

    uid: str


class PodArrived(msgspec.Struct, frozen=True):
    """A rationed pod has come to a node, or is gone."""

    uid: str
    is_bound: bool


Event = (
    Changed
    | Tick
    | CycleSkipped
    | NothingWaits
    | Decided
    | BindWithdrawn
    | CycleEnded
    | CycleFailed
    | BindStalled
    | BindAwaits
    | BindEnded
    | BindAsked
    | BindAnswered
    | PodOnItsWay
    | PodReserved
    | PodRefused
    | PodArrived
)

# --- instructions ---


class WakeAt(msgspec.Struct, frozen=True):
    """Feed a `Tick` at this time, at once if it is past. It takes the place of the `WakeAt` before it."""

    time: float


class Beat(msgspec.Struct, frozen=True):
    """Report that the loop turns."""


class RunCycle(msgspec.Struct, frozen=True):
    """Take a snapshot and decide; answered by `CycleSkipped`, `NothingWaits`, `Decided` or `CycleFailed`.

    limit: how many decisions at most. explains: whether to look also at classes for which no server has gained
    capacity, at `MAX_EXPLAINED` of them (see `is_recalling`), and to explain again what was looked at in vain. rotates:
    whether the cycle after it may look at other waiting tasks. opens: whether all places that are free may be
    given away; if not, only pods that take none are decided, and one of each tenant with nothing on its way. The cycle
    is skipped where there are none of either.
    """

    limit: int
    explains: bool
    rotates: bool = True
    opens: bool = True


class Announce(msgspec.Struct, frozen=True):
    """Tell the pod's owner that it is bound."""

    uid: str


class Forget(msgspec.Struct, frozen=True):
    """Take the decision back: the pod waits again, at once or, when it is postponed, from its `Resume` on."""

    uid: str
    postponed: bool


class BackOff(msgspec.Struct, frozen=True):
    """Do not carry the decision out: the pod waits for its `Resume`, because bindings of its namespace fail.

    Or because the gate of no further pod of its tenant may be opened, or its plan was withdrawn.
    """

    uid: str


class Resume(msgspec.Struct, frozen=True):
    """Let a postponed pod wait to be decided again."""

    uid: str


class GiveBack(msgspec.Struct, frozen=True):
    """Take the capacity of a pod whose gate is open, because its time is over, and say so."""

    uid: str


Instruction = WakeAt | Beat | RunCycle | Plan | Announce | Forget | BackOff | Resume | GiveBack
