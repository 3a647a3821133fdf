"""Times what the processes of `tests/kube/assembled` do at a stretch: the callbacks of their event loop."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kube.assembled.processes import timed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LIMITS = (0.02, 0.1, 1.0)
SAMPLE_SECONDS = 0.02
FRAMES = 5


@dataclass(slots=True)
class Phase:
    """What was done in a part of a run. seconds, longest: of processor time, of all callbacks and of the longest.

    above: how many took longer than each of `LIMITS`. where: most often seen in the longest one, inmost last.
    """

    name: str
    seconds: float = 0.0
    longest: float = 0.0
    above: list[int] = field(default_factory=lambda: [0] * len(LIMITS))
    where: str = ""


class Meter:
    """Times callbacks, and looks now and then where long ones are."""

    def __init__(self) -> None:
        self.phases = [Phase("before")]
        self._seen: Counter[str] = Counter()
        self._is_inside = False

    def begin(self, name: str) -> None:
        """Begin a phase; what was before the first one is forgotten."""
        if self.phases[-1].name == "before":
            self.phases.clear()
        self.phases.append(Phase(name))

    def run(self, callback: Callable[[], object]) -> None:
        """Run one callback."""
        self._seen = Counter()
        began = time.thread_time()
        self._is_inside = True
        try:
            callback()
        finally:
            self._is_inside = False
            self._note(time.thread_time() - began)

    def _note(self, seconds: float) -> None:
        phase = self.phases[-1]
        phase.seconds += seconds
        for n, limit in enumerate(LIMITS):
            phase.above[n] += seconds > limit
        if seconds > phase.longest:
            phase.longest = seconds
            phase.where = max(self._seen.items(), key=lambda item: item[1], default=("", 0))[0]

    def look(self, _signal: int, frame: FrameType | None) -> None:
        """Note where the callback is that runs; called in its own thread, as no other may walk its frames."""
        if not self._is_inside:
            return
        stack: list[str] = []
        while frame is not None and len(stack) < FRAMES:
            if "/fairbind/" in frame.f_code.co_filename:
                stack.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
            frame = frame.f_back
        self._seen[" > ".join(reversed(stack))] += 1


@contextmanager
def metering() -> Iterator[Meter]:
    """Time all callbacks of processes."""
    meter = Meter()
    before = signal.signal(signal.SIGPROF, meter.look)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
    try:
        with timed(meter.run):
            yield meter
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
