"""Wakes a pod in kube-scheduler's queue when it gets a permit: one PATCH of its status.

kube-scheduler puts a pod that an extender refused aside until something happens that may help, at the latest for five
minutes. It looks at a pod again after any change of that pod itself. So the condition `fairbind.io/Turn` is written
into the pod's status, each time with another time. Nothing reads it.

All that holds for bindings (`binder`) holds here: slots, the fence in the moment in which the bytes are handed over,
repetition after a lost answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from fairbind.kube.client.api import STRATEGIC
from fairbind.kube.client.times import format_time
from fairbind.kube.writers.binder import Binder, Binding

PERMIT_CONDITION = "fairbind.io/Turn"


@dataclass(frozen=True, slots=True)
class Woken:
    """The pod that is woken. generation: of its spec; 0: the API server counts none."""

    namespace: str
    name: str
    uid: str
    generation: int = 0


def make_nudge(pod: Woken, now: float) -> bytes:
    """Return the body of the patch. now: seconds since the epoch.

    >>> make_nudge(Woken("team-a", "web-0", "u", 2), 0.0)[-91:]
    b'"reason":"TurnGiven","lastTransitionTime":"1970-01-01T00:00:00Z","observedGeneration":2}]}}'
    """
    condition: dict[str, object] = {
        "type": PERMIT_CONDITION,
        "status": "True",
        "message": f"The pod's turn has come ({now:.3f}).",
        "reason": "TurnGiven",
        "lastTransitionTime": format_time(now),
    }
    if pod.generation:
        condition["observedGeneration"] = pod.generation
    return msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})


class Nudge(Binding):
    """One pod that is being woken."""

    right: ClassVar[str] = "patch on pods/status"
    is_counted: ClassVar[bool] = False

    def __init__(self, binder: Binder, pod: Woken, now: float, on_stall: Callable[[bool], None]) -> None:
        super().__init__(binder, pod.namespace, pod.name, pod.uid, "", on_stall)
        self._body = make_nudge(pod, now)

    @property
    def deed(self) -> str:
        """What is to be done, for people."""
        return "giving it its turn"

    async def _request(self) -> None:
        await self._api.request(
            "PATCH",
            f"{self._pod_path}/status",
            query=self._binder.query,
            body=self._body,
            content_type=STRATEGIC,
            timeout_seconds=self._binder.timeout_seconds,
            guard=self._binder.is_open,
        )
