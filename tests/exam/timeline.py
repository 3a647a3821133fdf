"""What the time of a case goes into: making pods and nodes, waiting until pods have been tried or are bound."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Spent(StrEnum):
    """What a case does or waits for at a time."""

    PODS = "create pods"
    TRIED = "until tried"
    NODES = "create nodes"
    BOUND = "until bound"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, by the monotonic clock."""

    spent: Spent
    began_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Part:
    """How long something of a kind took in all, and how many pods became bound in that time."""

    seconds: float = 0.0
    bound: int = 0


@dataclass(slots=True)
class Timeline:
    """All stretches of a case in the order of their ends."""

    spans: list[Span] = field(default_factory=list)

    @contextlib.contextmanager
    def note(self, spent: Spent) -> Iterator[None]:
        """Note what the time inside goes into."""
        began_at = time.monotonic()
        try:
            yield
        finally:
            self.spans.append(Span(spent, began_at, time.monotonic()))

    def compute_parts(self, began_at: float, bound_at: Collection[float]) -> dict[str, Part]:
        """Return what the time from a moment to the last binding went into; kinds that are not in it are missing.

        >>> line = Timeline([Span(Spent.PODS, 1.0, 3.0), Span(Spent.BOUND, 3.0, 9.0), Span(Spent.NODES, 9.0, 9.5)])
        >>> line.compute_parts(2.0, [2.5, 4.0, 7.0])
        {'create pods': Part(seconds=1.0, bound=1), 'until bound': Part(seconds=4.0, bound=2)}
        """
        ended_at = max(bound_at, default=began_at)
        parts: dict[str, Part] = {}
        for span in self.spans:
            seconds = min(span.ended_at, ended_at) - max(span.began_at, began_at)
            if seconds > 0.0:
                bound = sum(span.began_at <= at < span.ended_at for at in bound_at)
                before = parts.get(span.spent, Part())
                parts[str(span.spent)] = Part(before.seconds + seconds, before.bound + bound)
        return parts
