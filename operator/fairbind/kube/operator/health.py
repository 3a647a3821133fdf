"""Is it alive, is it ready: the two questions that the kubelet asks, answered from what the parts report.

Alive means that the scheduling loop turns: it reports a beat at each turn, also while it waits. Ready means that
everything is listed, the API server answers, and the event loop on which all that happens has turned lately. Every part
that waits for something names it here ("pods: not listed yet"); they are what people read in the body of /readyz.

The parts report on that event loop; the questions may be asked in any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

DEAD_AFTER_SECONDS = 60.0
UNREADY_AFTER_SECONDS = 4.0
"""The event loop reports every second."""


class Health:
    """What keeps the operator from being ready, by part, when its scheduling loop last turned, and its event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._problems: dict[str, str] = {"operator": "starting"}
        self._last_beat = clock()
        self._event_loop_at = self._last_beat

    def note_event_loop(self) -> None:
        """Report that the event loop turned; due every second."""
        self._event_loop_at = self._clock()

    @property
    def stalled_seconds(self) -> float:
        """How long ago the event loop last turned."""
        return self._clock() - self._event_loop_at

    def beat(self) -> None:
        """Report that the loop turned."""
        self._last_beat = self._clock()

    def set_problem(self, part: str, problem: str) -> bool:
        """Report what this part waits for; True when it is not what the part said before."""
        is_new = self._problems.get(part) != problem
        self._problems[part] = problem
        return is_new

    def clear_problem(self, part: str) -> bool:
        """Report that this part waits for nothing any more; True when it did."""
        return self._problems.pop(part, None) is not None

    def find_dead(self) -> str | None:
        """Return why the process should be restarted, or None."""
        silence = self._clock() - self._last_beat
        return f"the scheduling loop has not turned for {silence:.0f} s" if silence > DEAD_AFTER_SECONDS else None

    def find_unready(self) -> str | None:
        """Return what the operator waits for, or None when it is ready."""
        problems = dict(self._problems)  # at once: the parts report in another thread
        if (seconds := self.stalled_seconds) > UNREADY_AFTER_SECONDS:
            problems["event loop"] = f"has not turned for {seconds:.0f} s"
        return "; ".join(f"{part}: {problems[part]}" for part in sorted(problems)) or None
