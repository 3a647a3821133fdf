"""Run times: how long tasks of one kind ran, and for how long one that runs is expected to go on."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter

from fairbind.model import RunningTask

MAX_SAMPLES = 64
"""So many of the last run times of a kind are kept."""

MAX_KINDS = 1024
"""So many kinds of tasks have run times; the one whose tasks ended longest ago is forgotten first."""

LEAST_SECONDS = 1.0
"""What is expected of a running task at least."""

_TimedTasks = tuple[str, tuple[int, ...]]


class _Samples:
    """The last run times of one kind."""

    __slots__ = ("_sorted", "_sums", "times")

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=MAX_SAMPLES)
        self._sorted: list[float] | None = None
        self._sums: list[float] = []

    def add(self, seconds: float) -> None:
        """Keep one more run time."""
        self.times.append(seconds)
        self._sorted = None

    def compute_mean_above(self, age: float) -> float | None:
        """Return the mean of the run times above an age; None: there is none."""
        if self._sorted is None:
            self._sorted = sorted(self.times)
            self._sums = [0.0, *accumulate(reversed(self._sorted))]
        longer = len(self._sorted) - bisect_right(self._sorted, age)
        return self._sums[longer] / longer if longer else None


class RunTimes:
    """The last run times of each kind of task: those of one tenant with one demand.

    They are learned on the servers that are looked at: a task that was there and is there no more has ended.
    find_start: when a task began, seconds since the epoch. find_end: when it ends, where that is known.
    """

    def __init__(
        self,
        find_start: Callable[[RunningTask], float] = attrgetter("start"),
        find_end: Callable[[RunningTask], float | None] = lambda _running: None,
    ) -> None:
        self._find_start = find_start
        self._find_end = find_end
        self._observed: dict[str, tuple[tuple[RunningTask, ...], list[float]]] = {}
        self._samples: dict[_TimedTasks, _Samples] = {}

    def observe(self, running: Mapping[str, tuple[RunningTask, ...]], servers: Iterable[str], now: float) -> None:
        """Learn what ended since the last look, and look at these servers from now on, by their names."""
        for server, (before, starts) in self._observed.items():
            after = running.get(server, ())
            if after is not before:
                uids = {task.uid for task in after}
                for task, start in zip(before, starts, strict=True):
                    if task.uid not in uids:
                        self._learn(task, now - start)
        former, self._observed = self._observed, {}
        for server in servers:
            tasks = running.get(server, ())
            known = former.get(server)
            is_same = known is not None and known[0] is tasks
            self._observed[server] = known if known and is_same else (tasks, list(map(self._find_start, tasks)))

    def _learn(self, task: RunningTask, seconds: float) -> None:
        kind = task.tenant, task.demand_r
        samples = self._samples.pop(kind, None) or _Samples()
        samples.add(max(seconds, 0.0))
        self._samples[kind] = samples
        if len(self._samples) > MAX_KINDS:
            del self._samples[next(iter(self._samples))]

    def compute_remaining(self, task: RunningTask, now: float) -> float:
        """Return for how many seconds a task is expected to go on.

        That is by how much those of its kind that ran longer did so, in the mean. A task that has run longer than all
        of them, or of whose kind none has ended, is expected to run as long again: to wait for a service is in vain,
        and the more so the longer it runs. No task is expected to go on for longer than it may.
        """
        end = self._find_end(task)
        if end is not None:
            return max(end - now, 0.0)
        age = max(now - self._find_start(task), 0.0)
        samples = self._samples.get((task.tenant, task.demand_r))
        mean = None if samples is None else samples.compute_mean_above(age)
        expected = age if mean is None else mean - age
        return max(min(expected, task.most_seconds - age), LEAST_SECONDS)


def find_times(
    ends: Iterable[tuple[float, Sequence[int]]], free_r: Sequence[int], demand_r: Sequence[int]
) -> Iterator[float]:
    """Yield for the first, the second, ... task of a demand after how many seconds it may fit on a server.

    ends: for each task there, for how many seconds it is expected to go on, and what it takes. free_r: what is free
    now. The last of several tasks ends later than each of them is expected to: the sum of cubes is near to that for
    fixed, exponential and heavy-tailed run times.

    >>> [round(seconds, 1) for seconds in find_times([(9.0, [2]), (5.0, [2])], [1], [2])]
    [5.0, 9.5]
    """
    asked = [r for r, demand in enumerate(demand_r) if demand > 0]
    left = {r: free_r[r] - demand_r[r] for r in asked}
    cubes, coming = 0.0, iter(sorted(ends))
    while asked:
        while min(left.values()) < 0:
            end = next(coming, None)
            if end is None:
                return
            cubes += end[0] ** 3
            for r in asked:
                left[r] += end[1][r]
        yield cubes ** (1 / 3)
        for r in asked:
            left[r] -= demand_r[r]
