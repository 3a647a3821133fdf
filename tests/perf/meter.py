"""Times what the processes of `tests/kube/assembled` do at a stretch: the callbacks of their event loop."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kube.assembled.processes import timed

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Times callbacks, and looks from another thread where long ones are."""

    def __init__(self) -> None:
        self.phases = [Phase("before")]
        self._seen: Counter[str] = Counter()
        self._is_inside = False
        self._main = threading.get_ident()

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
            seen = list(self._seen.items())  # at once: the other thread may just write down one more
            phase.where = max(seen, key=lambda item: item[1], default=("", 0))[0]

    def watch(self, is_over: threading.Event) -> None:
        """Note again and again where the callback is, until it is over."""
        while not is_over.wait(SAMPLE_SECONDS):
            frame = sys._current_frames().get(self._main)
            if self._is_inside and frame is not None:
                stack = [entry for entry in traceback.extract_stack(frame) if "/fairbind/" in entry.filename]
                self._seen[" > ".join(f"{Path(entry.filename).stem}.{entry.name}" for entry in stack[-FRAMES:])] += 1


@contextmanager
def metering() -> Iterator[Meter]:
    """Time all callbacks of processes."""
    meter, is_over = Meter(), threading.Event()
    watcher = threading.Thread(target=meter.watch, args=(is_over,), daemon=True)
    watcher.start()
    try:
        with timed(meter.run):
            yield meter
    finally:
        is_over.set()
        watcher.join()
