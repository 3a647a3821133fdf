"""The minute itself: look, show, feed, once a second, until the time is up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import urllib3
from rich.console import Console
from rich.live import Live

from demo import view, workload
from demo.observe import Observer, Sample, compute_rate
from demo.stage import DemoError, Stage, create_pods
from demo.view import Scene
from demo.workload import DemoTenant
from localplane.client import ApiError
from localplane.processes import read_tail

TICK_SECONDS = 1.0
LINE_SECONDS = 5.0
ARRIVAL_FRACTION = 1 / 3
BLIND_LIMIT = 10


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
    """One run on a stage. nodes, policy: for the title."""

    def __init__(self, stage: Stage, *, duration_seconds: float, nodes: int, policy: str) -> None:
        self._stage = stage
        self._duration_seconds = duration_seconds
        self._nodes = nodes
        self._policy = policy
        self._started = time.monotonic()
        self._present: tuple[DemoTenant, ...] = workload.FIRST_TENANTS
        self._observer = Observer(stage.plane.client, stage.metrics, self.clock)
        self._blind_ticks = 0
        self.samples: list[Sample] = []

    def clock(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started

    def run(self, screen: Screen) -> Scene:
        """Play until the time is up and return the last scene; raise DemoError when the operator is gone.

        Pods are made beside the looking, so that the table moves on while a busy API server takes its time.
        """
        tick = 0
        making: Future[None] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="feeder") as feeder:
            while self.clock() < self._duration_seconds or not self.samples:
                is_idle = making is None or making.done()
                if self.look():
                    screen.show(self.compute_scene())
                    if is_idle:
                        if making is not None:
                            making.result()  # its error, if there is one
                        making = feeder.submit(self._welcome_late if self._is_arrival_due() else self.feed)
                tick += 1
                time.sleep(max(0.0, tick * TICK_SECONDS - self.clock()))
        return self.compute_scene()

    def _is_arrival_due(self) -> bool:
        late_seconds = self._duration_seconds * ARRIVAL_FRACTION
        return workload.LATE_TENANT not in self._present and self.clock() >= late_seconds

    def _welcome_late(self) -> None:
        self._stage.welcome(workload.LATE_TENANT)
        self._present = workload.TENANTS

    def look(self) -> bool:
        """Take a sample; tell whether that was possible. A moment's silence is no reason to stop, a long one is."""
        self._stage.check_operator()
        try:
            self.samples.append(self._observer.take_sample(self._present))
        except (ApiError, urllib3.exceptions.HTTPError) as error:
            self._blind_ticks += 1
            if self._blind_ticks >= BLIND_LIMIT:
                log = read_tail(self._stage.operator_log)
                raise DemoError(
                    f"nothing can be seen any more: {error}; the end of the operator's log:\n{log}"
                ) from error
            return False
        self._blind_ticks = 0
        return True

    def feed(self) -> None:
        """Make the pods that are missing in the backlogs, by the last sample."""
        waiting = self.samples[-1].waiting
        pods = [pod for tenant in self._present for pod in self._stage.stream.make_missing(tenant, waiting)]
        create_pods(self._stage.plane.client, pods)

    def compute_scene(self) -> Scene:
        """Return what there is to show now."""
        return Scene(
            sample=self.samples[-1],
            duration_seconds=self._duration_seconds,
            nodes=self._nodes,
            policy=self._policy,
            pods_per_second=compute_rate(self.samples),
            note=self._compute_note(self.samples),
        )

    def _compute_note(self, samples: Sequence[Sample]) -> str:
        late = workload.LATE_TENANT
        since_seconds = samples[-1].seconds - self._duration_seconds * ARRIVAL_FRACTION
        if late not in self._present:
            return f"{late.name}, a fourth tenant of weight {late.weight}, comes in {max(0.0, -since_seconds):.0f} s"
        return f"{late.name} came {since_seconds:.0f} s ago: its share grows as pods of the others end"
