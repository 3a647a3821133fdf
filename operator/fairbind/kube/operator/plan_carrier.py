"""Carries plans out: the bindings of a plan are sent together, or not at all as far as that can be known.

The API server binds one pod at a time, and a bound pod can only be unbound by being deleted, which is not done here:

* Before the first request of a plan of several, each of its pods is asked about (`find_obstacle`): the node is still
  there and takes it, its capacity is still there, and this replica may bind. If one has an obstacle, nothing of the
  plan is sent. The pods that have none wait on as before.
* If claims of its pods must be bound first, that is begun for all of them. When it fails for one, the others are
  abandoned. When it is done for all, they are asked about again. Meanwhile the plan leaves its places to others.
* Then the requests go out side by side. Once one of them has ended without success, those that were not sent yet are
  not sent any more: they end as deferred, and their pods wait on as before.
* What was bound by then stays bound and counts, as it does when the watch shows it. The plan is **torn**, which is
  logged; the next snapshot shows which of its tasks run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Generic, Protocol, TypeVar

from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.model import Bind, Plan

_log = logging.getLogger(__name__)


class PlannedPod(Protocol):
    """What must be known of a pod."""

    @property
    def namespace(self) -> str: ...  # noqa: D102


Pod = TypeVar("Pod", bound=PlannedPod)


class Readiness(Protocol):
    """What is asked about the pods of a plan before it is sent, and done for them."""

    def find_obstacle(self, uid: str, node: str) -> BindResult | None:
        """Return how the binding of a pod to a node would end without being sent; None: it would be sent now."""

    def must_prepare(self, uid: str) -> bool:
        """Tell whether something must be done before a pod is bound."""

    async def prepare(self, namespace: str, uid: str, node: str) -> BindResult | None:
        """Do it; None when it is done, else how the binding ends."""

    def abandon(self, uid: str) -> None:
        """End what is being done, as the pod will not be bound."""


class NothingToPrepare:
    """Readiness of pods about which there is nothing to ask."""

    def find_obstacle(self, _uid: str, _node: str) -> BindResult | None:
        """Return None."""
        return None

    def must_prepare(self, _uid: str) -> bool:
        """Return False."""
        return False

    async def prepare(self, _namespace: str, _uid: str, _node: str) -> BindResult | None:
        """Return None."""
        return None

    def abandon(self, _uid: str) -> None:
        """Do nothing."""


class _UnderWay:
    """A plan that has begun. is_broken: whether one of its bindings has failed, or may not be sent."""

    __slots__ = ("bound", "ended", "is_broken", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.is_broken = False
        self.bound = self.ended = 0


class PlanCarrier(Generic[Pod]):
    """See the module.

    send: has one binding carried out. end: called with what became of it. on_wait: called with a pod's UID when its
    plan begins to wait for what must be done before (True), and when that is over.
    """

    def __init__(
        self,
        send: Callable[[Bind, Pod], Awaitable[BindResult]],
        end: Callable[[Bind, Pod, BindResult], None],
        readiness: Readiness,
        on_wait: Callable[[str, bool], None],
    ) -> None:
        self._send = send
        self._end = end
        self._readiness = readiness
        self._on_wait = on_wait
        self._plans: dict[str, _UnderWay] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, plan: Plan, pods: Sequence[Pod]) -> None:
        """Begin to carry a plan out. pods: of its binds, in their order."""
        under_way = _UnderWay(plan)
        members = list(zip(plan.binds, pods, strict=True))
        for bind, _ in members:
            self._plans[bind.task.uid] = under_way
        if plan.is_single:
            self._start(self._carry(*members[0], under_way), plan.binds[0])
        else:
            self._start(self._carry_all(members, under_way), plan.binds[0])

    def _start(self, carrying: Coroutine[None, None, None], first: Bind) -> None:
        task = asyncio.get_running_loop().create_task(carrying, name=f"bind {first.task.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def may_send(self, uid: str) -> bool:
        """Whether the plan of a pod is whole so far."""
        under_way = self._plans.get(uid)
        return under_way is None or not under_way.is_broken

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait for what has begun; True when all has ended in time."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(set(self._tasks), timeout=timeout_seconds)
        return not pending

    # --- plans of several ---

    async def _carry_all(self, members: Sequence[tuple[Bind, Pod]], under_way: _UnderWay) -> None:
        try:
            obstacles = self._find_obstacles(under_way.plan)
            if not obstacles and any(self._readiness.must_prepare(bind.task.uid) for bind, _ in members):
                obstacles = await self._prepare_all(members, under_way.plan)
        except Exception:  # noqa: BLE001 - a bug; the pods must not hold their capacity for ever because of it
            _log.exception("a plan of %d pods could not be prepared", len(members))
            obstacles = {bind.task.uid: BindResult.FAILED for bind, _ in members}
        if obstacles:
            under_way.is_broken = True
            for bind, pod in members:
                self._note_end(bind, pod, obstacles.get(bind.task.uid, BindResult.DEFERRED), under_way)
            return
        await asyncio.gather(*(self._carry(bind, pod, under_way) for bind, pod in members))

    def _find_obstacles(self, plan: Plan) -> dict[str, BindResult]:
        """Return how the bindings end that cannot be sent, by UID. What must be prepared has its own questions."""
        asked = (bind for bind in plan.binds if not self._readiness.must_prepare(bind.task.uid))
        found = {bind.task.uid: self._readiness.find_obstacle(bind.task.uid, bind.server) for bind in asked}
        return {uid: result for uid, result in found.items() if result is not None}

    async def _prepare_all(self, members: Sequence[tuple[Bind, Pod]], plan: Plan) -> dict[str, BindResult]:
        """Do for all pods what must be done before; return how the bindings end that cannot be sent, by UID."""
        failed: dict[str, BindResult] = {}
        left = dict.fromkeys(bind.task.uid for bind in plan.binds)

        async def prepare(bind: Bind, pod: Pod) -> None:
            uid = bind.task.uid
            result: BindResult | None = BindResult.FAILED
            try:
                result = await self._readiness.prepare(pod.namespace, uid, bind.server)
            finally:
                del left[uid]
                if result is not None:
                    failed[uid] = result
                    for each in left:
                        self._readiness.abandon(each)

        for bind in plan.binds:
            self._on_wait(bind.task.uid, True)
        try:
            await asyncio.gather(*(prepare(bind, pod) for bind, pod in members))
        finally:
            for bind in plan.binds:
                self._on_wait(bind.task.uid, False)
        return failed or self._find_obstacles(plan)

    # --- single bindings ---

    async def _carry(self, bind: Bind, pod: Pod, under_way: _UnderWay) -> None:
        self._note_end(bind, pod, await self._send(bind, pod), under_way)

    def _note_end(self, bind: Bind, pod: Pod, result: BindResult, under_way: _UnderWay) -> None:
        under_way.ended += 1
        under_way.bound += result.is_done
        under_way.is_broken |= not result.is_done
        if self._plans.get(bind.task.uid) is under_way:
            del self._plans[bind.task.uid]
        self._end(bind, pod, result)
        whole = len(under_way.plan.binds)
        if under_way.ended == whole and 0 < under_way.bound < whole:
            names = ", ".join(each.task.name for each in under_way.plan.binds)
            _log.warning("a plan is torn: %d of %d pods are bound (%s)", under_way.bound, whole, names)
