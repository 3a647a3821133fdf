"""Who carries out the decisions of the loop, as those who ask for it see it: the binder, or what stands before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fairbind.cluster.loop.pacing_events import BindResult


class BindCarrier(Protocol):
    """Carries out one decision after another."""

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, on_stall: Callable[[bool], None]
    ) -> BindResult:
        """Carry out a decision, and say what became of the pod. Raises only CancelledError.

        on_stall: called when it takes long; with True when a request has failed.
        """
