"""Which waiting pods are to be told something now, and which have heard it.

Twenty thousand pods may wait at the same time and their reasons change with every cycle, so this decides what is worth
a write to the API server:

* Each waiting pod carries the condition PodScheduled=False, with the generation of the pod's spec that it is about. It
  is written when it is new, and again when the kinds of reasons or the generation change, each time at least twice as
  late as the time before. When only numbers in it change, it is renewed
  after a minute at the earliest, and no more than `RENEWALS_PER_SECOND` of these are due for all pods together. The
  first pods of a class, at which people look, are renewed every `REFRESH_SECONDS` and from a budget of their own, so
  that a sentence about shares that have moved since does not stay.
* `FailedScheduling` events are due for the first `EVENTS_PER_CLASS` pods of a class, kind of reasons and five minutes.
* The controller of these pods (a Job, a ReplicaSet, a StatefulSet) gets one event, for as many controllers as pods:
  a user who describes it, or a pod without an event of its own, finds the reason there and in the pod's condition.
* A pod whose binding the API server did not accept is told so, in the same ways and as rarely. The events of all these
  pods of a namespace share one budget: the server's words differ from pod to pod.
* What a pod says already is not due, also not for the next leader or after a restart.

The picture of who waits is replaced as a whole after each cycle and looked at twice a second. A class whose pods and
kinds of reasons are as they were is looked at less often, and so is a large one that keeps changing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from fairbind.cluster.messages import (
    SCHEDULER_ERROR,
    compute_condition_reason,
    compute_gist,
    compute_signature,
    format_refusal,
    format_unschedulable,
)
from fairbind.cluster.objects.facts import Owner
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import Wait

RENEW_SECONDS = 60.0
RENEWALS_PER_SECOND = 2.0
REFRESH_SECONDS = 30.0
REFRESHED_PODS = 2
REFRESHES_PER_SECOND = 5.0
FIRST_REWRITE_SECONDS = 5.0
MAX_REWRITE_SECONDS = 300.0
EVENT_PERIOD_SECONDS = 300.0
EVENTS_PER_CLASS = 10
UNCHANGED_SECONDS = 5.0
"""How long a class that stays as it is is left alone."""
QUIET_SECONDS_PER_POD = 1e-4
"""How long a class is left alone even when it changes, for each of its pods: looking at one costs a hundredth of it."""
MAX_REFUSED = 1_000
"""Pods whose bindings were refused since the last look, at most; the others are told when they are refused again."""
FORGET_SECONDS = 60.0
"""How often pods that do not wait any more are forgotten."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that is neither bound nor about to be.

    namespace, name: its own. resource_version: of the newest version known.
    condition_message: what its PodScheduled=False says now, or None.
    blocked_detail: the very thing that it carries and that is not honoured, or None. owner: its controller, or None.
    is_gated: it has scheduling gates. condition_generation: of the spec that its condition is about; 0: it says none.
    """

    namespace: str
    name: str
    resource_version: str
    condition_message: str | None = None
    blocked_detail: str | None = None
    owner: Owner | None = None
    is_gated: bool = False
    condition_generation: int = 0


@dataclass(slots=True)
class Announced:
    """What one waiting pod, or the owner of some, was told. Times are those of `PodMessages`' clock.

    queued: it is about to be told something. owner: of the pod.
    generation: of the pod's spec, when it was told.
    writes: how often the kinds of its reasons were written; 0 before the first. message: the last, whole.
    event_name: of its FailedScheduling event; event_count: how often that was observed.
    """

    signature: Hashable = None
    generation: int = 0
    message: str | None = None
    written_at: float = 0.0
    writes: int = 0
    queued: bool = False
    event_name: str | None = None
    event_signature: Hashable = None
    event_at: float = 0.0
    event_count: int = 0
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a pod waits: it fits nowhere, or may not be placed. node_count: all nodes of the cluster.

    shows_taints: whether the message names each taint with its key and value.
    """

    wait: Wait
    node_count: int
    shows_taints: bool = False

    @property
    def signature(self) -> Hashable:
        """What two messages have in common that say the same."""
        return compute_signature(self.wait, shows_taints=self.shows_taints)

    @property
    def reason(self) -> str:
        """The reason of the condition."""
        return compute_condition_reason(self.wait)

    def format(self, blocked_detail: str | None = None) -> str:
        """Return the message. blocked_detail: for a blocked class, the very thing that this pod carries."""
        return format_unschedulable(
            self.wait, self.node_count, blocked_detail=blocked_detail, shows_taints=self.shows_taints
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a pod waits: the API server did not accept what carries out its decision.

    deed: what that was, such as "binding to n1". answer: the API server's words.
    """

    namespace: str
    deed: str
    answer: str

    @property
    def signature(self) -> Hashable:
        """What two messages have in common that say the same: the words may differ each time."""
        return SCHEDULER_ERROR

    @property
    def reason(self) -> str:
        """The reason of the condition."""
        return SCHEDULER_ERROR

    def format(self, blocked_detail: str | None = None) -> str:  # noqa: ARG002 - the same call as that of `Unplaced`
        """Return the message."""
        return format_refusal(self.deed, self.answer)


@dataclass(frozen=True, slots=True)
class Notice:
    """One pod, or the owner of some, is to be told why it waits.

    uid: of the pod. generation: of its spec; 0: unknown. announced: what was told before, to be changed by the writer.
    owner: whom to tell in the pod's stead; None: the pod. queue: the tenant, or the namespace whose bindings fail;
    notices of different queues take turns. event_budget: where the event is counted that it is told by; None when only
    its condition says it.
    """

    uid: str
    cause: Unplaced | Refused
    queue: Hashable
    signature: Hashable
    event_budget: Hashable | None
    announced: Announced
    owner: Owner | None = None
    generation: int = 0

    def note_told(self, message: str, now: float) -> None:
        """Note that it was told."""
        announced = self.announced
        is_other = announced.signature != self.signature or announced.generation != self.generation
        announced.writes += is_other or announced.writes == 0
        announced.signature, announced.generation = self.signature, self.generation
        announced.message, announced.written_at = message, now


@dataclass(slots=True)
class _ClassVisit:
    """When a class was looked at, and as what. It keeps what it was, so that no other object can have its identity.

    refreshed_at: when its first pods were last told what had changed in the message, or might have been.
    """

    wait: Wait
    signature: Hashable
    at: float
    refreshed_at: float

    def is_recent(self, wait: Wait, signature: Hashable, now: float) -> bool:
        is_same = (
            self.wait.task_class.tasks is wait.task_class.tasks
            and self.wait.waiting == wait.waiting
            and self.signature == signature
        )
        return now - self.at < (UNCHANGED_SECONDS if is_same else QUIET_SECONDS_PER_POD * wait.waiting)


class _Budget:
    """So many a second; what was not used for some seconds may be used later. Times are of `PodMessages`' clock."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self.left = 0.0
        self._at = now

    def refill(self, now: float) -> None:
        """Take what has come since the last time."""
        self.left = min(self.left + self._per_second * (now - self._at), self._per_second * UNCHANGED_SECONDS)
        self._at = now

    def spend(self) -> bool:
        """Take one, if there is one."""
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class PodMessages:
    """The pods that wait and what they were told."""

    def __init__(
        self,
        find_waiting: Callable[[str], WaitingPod | None],
        clock: Callable[[], float],
        *,
        has_place: Callable[[Hashable], bool] = lambda _: True,
        find_generation: Callable[[str], int] = lambda _: 0,
        shows_taints: bool = False,
    ) -> None:
        """find_waiting: by UID; None for a pod that is gone, bound or about to be bound.

        has_place: whether another notice of this queue can be written soon; if not, it stays due. find_generation:
        of a pod's spec, by UID; 0: unknown. shows_taints: whether messages name each taint with its key and value.
        """
        self._find_waiting = find_waiting
        self._clock = clock
        self._has_place = has_place
        self._find_generation = find_generation
        self._shows_taints = shows_taints
        self._waits: Sequence[Wait] = ()
        self._node_count = 0
        self._refused: dict[str, Refused] = {}
        self._announced: dict[str, Announced] = {}
        self._owners: dict[Hashable, Announced] = {}
        self._event_budgets: dict[Hashable, tuple[float, int]] = {}
        self._visits: dict[Hashable, _ClassVisit] = {}
        self._renewals = _Budget(RENEWALS_PER_SECOND, clock())
        self._refreshes = _Budget(REFRESHES_PER_SECOND, clock())
        self._next_forget_at = clock() + FORGET_SECONDS

    def __len__(self) -> int:
        return len(self._announced)

    def replace(self, waits: Sequence[Wait], node_count: int) -> None:
        """Take the whole picture of who waits."""
        self._waits = waits
        self._node_count = node_count

    def refuse(self, uid: str, refused: Refused) -> None:
        """Take note that the API server did not accept a pod's binding."""
        if len(self._refused) < MAX_REFUSED:
            self._refused[uid] = refused

    def forget(self, uid: str) -> None:
        """Drop a pod that waits no more."""
        self._announced.pop(uid, None)

    def clear(self) -> None:
        """Drop everything, because another replica tells the pods now."""
        self._waits = ()
        self._refused.clear()
        self._announced.clear()
        self._owners.clear()
        self._visits.clear()
        self._event_budgets.clear()

    def find_due(self) -> Iterator[Notice | None]:
        """Yield what is due now; None for each pod that nothing is due for, so that the caller can pause in between."""
        now = self._clock()
        self._renewals.refill(now)
        self._refreshes.refill(now)
        yield from self._find_due_refused()
        visits: dict[Hashable, _ClassVisit] = {}
        for wait in self._waits:
            task_class = wait.task_class
            key = (
                task_class.tenant,
                task_class.demand_r,
                id(task_class.placement),
                task_class.pin and task_class.pin.name,
            )
            visit = self._visits.get(key)
            if visit is not None and visit.wait is wait and now - visit.at < UNCHANGED_SECONDS:
                visits[key] = visit
                continue
            cause = Unplaced(wait, self._node_count, self._shows_taints)
            signature = cause.signature
            if visit is None or not visit.is_recent(wait, signature, now):
                refreshed_at = now if visit is None else visit.refreshed_at
                may_refresh = (
                    wait.blocked is None
                    and now - refreshed_at >= REFRESH_SECONDS
                    and self._refreshes.left >= REFRESHED_PODS
                )
                yield from self._find_due_in(cause, signature, may_refresh=may_refresh)
                visit = _ClassVisit(wait, signature, now, now if may_refresh else refreshed_at)
            visits[key] = visit
        self._visits = visits
        self._forget_others()

    def _find_due_in(self, cause: Unplaced, signature: Hashable, *, may_refresh: bool) -> Iterator[Notice | None]:
        wait = cause.wait
        tasks, tenant = wait.task_class.tasks, find_tenant_of_leaf(wait.task_class.tenant)  # users have one pace
        message = cause.format()
        event_budget = wait.task_class.tenant, wait.task_class.demand_r, signature
        owner_budget = "owner", *event_budget
        owners: set[str] = set()
        for rank, task in enumerate(tasks[len(tasks) - wait.waiting :]):
            if not self._has_place(tenant):
                yield None
                continue
            announced = self._announced.get(task.uid)
            if announced is None:
                announced = self._announced[task.uid] = self._recall(task.uid, cause, signature, message)
            owner = announced.owner
            if owner is not None and owner.uid not in owners:
                owners.add(owner.uid)
                if (told := self._find_due_owner(owner, tenant, owner_budget)) is not None:
                    yield Notice(task.uid, cause, tenant, signature, owner_budget, told, owner)
            if announced.queued:
                yield None
                continue
            now = self._clock()
            subject = signature, self._find_generation(task.uid)
            is_due = self._is_due(announced, message, subject, now, may_refresh=may_refresh and rank < REFRESHED_PODS)
            wants_event = (
                rank < EVENTS_PER_CLASS
                and _is_event_due(announced, signature, now, is_due=is_due)
                and self._spend_event(event_budget, now)
            )
            if is_due or wants_event:
                announced.queued = True
                budget = event_budget if wants_event else None
                yield Notice(task.uid, cause, tenant, signature, budget, announced, generation=subject[1])
            else:
                yield None

    def _find_due_owner(self, owner: Owner, tenant: str, event_budget: Hashable) -> Announced | None:
        """Return what an owner was told before, if it is to have an event now."""
        key, now = (owner.uid, event_budget), self._clock()
        announced = self._owners.get(key)
        if announced is not None and (announced.queued or now - announced.event_at < EVENT_PERIOD_SECONDS):
            return None
        if not self._has_place(tenant) or not self._spend_event(event_budget, now):
            return None
        announced = self._owners.setdefault(key, Announced(event_at=-EVENT_PERIOD_SECONDS))
        announced.queued = True
        return announced

    def _find_due_refused(self) -> Iterator[Notice | None]:
        """Yield what pods are to be told whose bindings were refused since the last look and that wait again."""
        refused, self._refused = self._refused, {}
        for uid, cause in refused.items():
            queue = SCHEDULER_ERROR, cause.namespace
            if self._find_waiting(uid) is None or not self._has_place(queue):
                yield None
                continue
            signature, message = cause.signature, cause.format()
            announced = self._announced.get(uid)
            if announced is None:
                announced = self._announced[uid] = self._recall(uid, cause, signature, message)
            now = self._clock()
            subject = signature, self._find_generation(uid)
            is_due = self._is_due(announced, message, subject, now, may_refresh=False)
            wants_event = _is_event_due(announced, signature, now, is_due=is_due) and self._spend_event(queue, now)
            if not announced.queued and (is_due or wants_event):
                announced.queued = True
                budget = queue if wants_event else None
                yield Notice(uid, cause, queue, signature, budget, announced, generation=subject[1])
            else:
                yield None

    def _recall(self, uid: str, cause: Unplaced | Refused, signature: Hashable, message: str) -> Announced:
        """Return what a pod knows that we have not told anything yet: its condition may be of a leader before us."""
        pod = self._find_waiting(uid)
        owner = None if pod is None else pod.owner
        if pod is None or pod.condition_message is None:
            return Announced(owner=owner)
        if pod.blocked_detail is not None:
            message = cause.format(pod.blocked_detail)
        if compute_gist(pod.condition_message) != compute_gist(message):
            return Announced(owner=owner)
        return Announced(
            signature,
            pod.condition_generation,
            pod.condition_message,
            written_at=self._clock(),
            writes=1,
            owner=owner,
        )

    def _is_due(
        self, announced: Announced, message: str, subject: tuple[Hashable, int], now: float, *, may_refresh: bool
    ) -> bool:
        """Whether a condition is to be written. subject: the signature, and the generation of the pod's spec."""
        if announced.writes == 0:
            return True
        age = now - announced.written_at
        if (announced.signature, announced.generation) != subject:
            patience = FIRST_REWRITE_SECONDS * 2.0 ** min(announced.writes - 1, 10)
            return age >= min(patience, MAX_REWRITE_SECONDS)
        if message == announced.message:
            return False
        if may_refresh and self._refreshes.spend():
            return True
        return age >= RENEW_SECONDS and self._renewals.spend()

    def give_back_event(self, budget: Hashable) -> None:
        """Let another event be written in place of one that could not be."""
        if (found := self._event_budgets.get(budget)) is not None:
            started, left = found
            self._event_budgets[budget] = started, min(left + 1, EVENTS_PER_CLASS)

    def _spend_event(self, key: Hashable, now: float) -> bool:
        """Take an event from a budget, if there is any left in this period."""
        started, left = self._event_budgets.get(key, (now, EVENTS_PER_CLASS))
        if now - started >= EVENT_PERIOD_SECONDS:
            started, left = now, EVENTS_PER_CLASS
        if left == 0:
            return False
        self._event_budgets[key] = (started, left - 1)
        return True

    def _forget_others(self) -> None:
        """Forget pods that do not wait any more, and budgets whose time is over."""
        now = self._clock()
        if now < self._next_forget_at:
            return
        self._next_forget_at = now + FORGET_SECONDS
        for uid in [uid for uid in self._announced if self._find_waiting(uid) is None]:
            del self._announced[uid]
        quiet = [key for key, told in self._owners.items() if now - told.event_at >= 2 * EVENT_PERIOD_SECONDS]
        for key in quiet:
            if not self._owners[key].queued:
                del self._owners[key]
        over = [key for key, (started, _) in self._event_budgets.items() if now - started >= EVENT_PERIOD_SECONDS]
        for key in over:
            del self._event_budgets[key]


def _is_event_due(announced: Announced, signature: Hashable, now: float, *, is_due: bool) -> bool:
    """Whether a pod is to have an event, the first or one more. is_due: whether its condition is due, too."""
    is_new = announced.event_count == 0 or (is_due and announced.event_signature != signature)
    return is_new or now - announced.event_at >= EVENT_PERIOD_SECONDS
