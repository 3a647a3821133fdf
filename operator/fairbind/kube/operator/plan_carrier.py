"""Carries plans out: the bindings of a plan are sent together, or not at all as far as that can be known.

The API server binds one pod at a time, and a bound pod can only be unbound by being deleted, which is not done here:

* Before the first request of a plan of several, each of its pods is asked about (`is_ready`): the node is still there
  and takes it, its capacity is still there, and this replica may bind. If one is not ready, nothing of the plan is
  sent.
* Then the requests go out side by side. Once one of them has ended without success, those that were not sent yet are
  not sent any more: they end as deferred, and their pods wait on as before.
* What was bound by then stays bound and counts, as it does when the watch shows it. The plan is **torn**, which is
  logged; the next snapshot shows which of its tasks run.

Claims of pods are bound pod by pod, after the question and before the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.model import Bind, Plan

_log = logging.getLogger(__name__)

Pod = TypeVar("Pod")


class _UnderWay:
    """A plan that has begun. is_broken: whether one of its bindings has failed, or may not be sent."""

    __slots__ = ("bound", "ended", "is_broken", "plan")

    def __init__(self, plan: Plan, *, is_broken: bool) -> None:
        self.plan = plan
        self.is_broken = is_broken
        self.bound = self.ended = 0


class PlanCarrier(Generic[Pod]):
    """See the module."""

    def __init__(
        self,
        send: Callable[[Bind, Pod], Awaitable[BindResult]],
        end: Callable[[Bind, Pod, BindResult], None],
        is_ready: Callable[[str, str], bool],
    ) -> None:
        """send: carries a bind out, and asks `may_send` before. end: is told what became of it.

        is_ready: whether nothing that is known speaks against binding the pod with this UID to this node.
        """
        self._send = send
        self._end = end
        self._is_ready = is_ready
        self._plans: dict[str, _UnderWay] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, plan: Plan, pods: Sequence[Pod]) -> None:
        """Begin to carry a plan out. pods: of its binds, in their order."""
        is_ready = plan.is_single or all(self._is_ready(bind.task.uid, bind.server) for bind in plan.binds)
        under_way = _UnderWay(plan, is_broken=not is_ready)
        for bind, pod in zip(plan.binds, pods, strict=True):
            self._plans[bind.task.uid] = under_way
            carrying = self._carry(bind, pod, under_way)
            task = asyncio.get_running_loop().create_task(carrying, name=f"bind {bind.task.name}")
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

    async def _carry(self, bind: Bind, pod: Pod, under_way: _UnderWay) -> None:
        result = BindResult.DEFERRED if under_way.is_broken else await self._send(bind, pod)
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
