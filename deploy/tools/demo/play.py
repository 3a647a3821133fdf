"""The minute itself: look, show, feed, once a second, until the time is up.

On a slow machine a tenant comes late and shares are known late; then it takes longer, until there is something to see.
Looks and objects that fail there for a moment are tried again with the next tick.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from rich.console import Console
from rich.live import Live

from demo import interruption, view
from demo.feeding import TROUBLES, Feeder, Patience
from demo.observe import Observer, Sample, compute_rate
from demo.servers import DemoError
from demo.stage import Stage, welcome
from demo.summary import SHARE_BLIND_POLICIES
from demo.view import Scene
from demo.workload import DemoTenant, Json

TICK_SECONDS = 1.0
LINE_SECONDS = 5.0
ARRIVAL_FRACTION = 1 / 3
LEAST_STAY_FRACTION = 1 / 2
LONGEST_DELAY_SECONDS = 120.0


class Screen(Protocol):
    """Where scenes are shown."""

    def show(self, scene: Scene) -> None:
        """Show one scene."""


class TableScreen:
    """A table that stays in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, scene: Scene) -> None:
        """Draw the scene over the last one."""
        self._live.update(view.render(scene, self._live.console.height), refresh=True)


class LineScreen:
    """A line every few seconds."""

    def __init__(self) -> None:
        self._next_seconds = 0.0

    def show(self, scene: Scene) -> None:
        """Print the scene when it is time for it."""
        if scene.sample.seconds >= self._next_seconds:
            self._next_seconds = scene.sample.seconds + LINE_SECONDS - TICK_SECONDS / 2
            print(view.format_line(scene), flush=True)


@contextlib.contextmanager
def open_screen(console: Console) -> Iterator[Screen]:
    """Return a table for a terminal and lines for everything else."""
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield TableScreen(live)
    else:
        yield LineScreen()


class Play:
    """One run on a stage. policy: for the title. clock: seconds."""

    def __init__(
        self, stage: Stage, *, duration_seconds: float, policy: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stage = stage
        self._duration_seconds = duration_seconds
        self._policy = policy
        self._clock = clock
        self._started = clock()
        self._present: tuple[DemoTenant, ...] = stage.cast.first
        self._observer = Observer(stage.api, stage.read_metrics, self.clock)
        self._feeder = Feeder(stage.api)
        self._looking, self._feeding = Patience(clock=clock), Patience(clock=clock)
        self._arrived_seconds: float | None = None
        self.samples: list[Sample] = []

    def clock(self) -> float:
        """Return the seconds since the start."""
        return self._clock() - self._started

    def run(self, screen: Screen) -> Scene:
        """Play until the time is up and return the last scene; raise DemoError when the operator is gone.

        Pods are made beside the looking, so that the table moves on while a busy API server takes its time.
        """
        tick = 0
        making: Future[None] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="feeder") as thread:
            while not self._is_over():
                is_idle = making is None or making.done()
                if self.look():
                    screen.show(self.compute_scene())
                    if is_idle:
                        if making is not None:
                            making.result()  # its error, if there is one
                        making = thread.submit(self.feed)
                tick += 1
                interruption.check()
                time.sleep(max(0.0, tick * TICK_SECONDS - self.clock()))
        return self.compute_scene()

    def _is_over(self) -> bool:
        late_seconds = self.clock() - self._duration_seconds
        if late_seconds < 0 or not self.samples:
            return False
        return late_seconds >= LONGEST_DELAY_SECONDS or (self._has_stayed() and self._is_judged(self.samples[-1]))

    def _has_stayed(self) -> bool:
        """Tell whether the late tenant has been seen for long enough to see shares move: a look can take long."""
        if self._arrived_seconds is None:
            return False
        return self.samples[-1].seconds - self._arrived_seconds >= self._duration_seconds * LEAST_STAY_FRACTION

    def _is_judged(self, sample: Sample) -> bool:
        """Tell whether the operator has found out how fair all is."""
        return bool(sample.envy) and (self._policy in SHARE_BLIND_POLICIES or sample.share_error is not None)

    def _is_arrival_due(self) -> bool:
        late_seconds = self._duration_seconds * ARRIVAL_FRACTION
        return self._stage.cast.late not in self._present and self.clock() >= late_seconds

    def look(self) -> bool:
        """Take a sample; tell whether that was possible. A moment's silence is no reason to stop, a long one is."""
        self._stage.check_operator()
        try:
            return self._looking.attempt(self._take_sample)
        except TROUBLES as error:
            log = self._stage.read_operator_log()
            raise DemoError(f"nothing can be seen any more: {error}; the end of the operator's log:\n{log}") from error

    def _take_sample(self) -> None:
        self.samples.append(self._observer.take_sample(self._present))

    def feed(self) -> None:
        """Make what could not be made the last time, or else what is wanted by the last sample.

        What fails now is made the next time; DemoError is raised when it is refused, or has been failing for long.
        """
        try:
            is_fed = self._feeding.attempt(lambda: self._feeder.feed(self._make_wanted))
        except TROUBLES as error:
            raise DemoError(f"nothing can be made any more: {error}") from error
        if is_fed and self._arrived_seconds is None and self._stage.cast.late in self._present:
            self._arrived_seconds = self.clock()

    def _make_wanted(self) -> Sequence[Json]:
        """Return what the late tenant comes with when it is due, and it comes; otherwise what the backlogs lack."""
        if self._is_arrival_due():
            objects = welcome(self._stage, self._stage.cast.late)
            self._present = self._stage.cast.tenants
            return objects
        waiting = self.samples[-1].waiting
        return [body for tenant in self._present for body in self._stage.stream.make_missing(tenant, waiting)]

    def compute_scene(self) -> Scene:
        """Return what there is to show now."""
        return Scene(
            sample=self.samples[-1],
            duration_seconds=self._duration_seconds,
            nodes=self._stage.nodes,
            policy=self._policy,
            pods_per_second=compute_rate(self.samples),
            note=self._compute_note(self.samples),
            done=view.LET_THROUGH if self._stage.cast.late.is_gated else view.BOUND,
        )

    def _compute_note(self, samples: Sequence[Sample]) -> str:
        late = self._stage.cast.late
        since_seconds = samples[-1].seconds - self._duration_seconds * ARRIVAL_FRACTION
        if late not in self._present:
            return f"{late.name}, a fourth tenant of weight {late.weight}, comes in {max(0.0, -since_seconds):.0f} s"
        return f"{late.name} came {since_seconds:.0f} s ago: its share grows as pods of the others end"
