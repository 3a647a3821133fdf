"""When each task of a scenario arrives and how long it runs.

What is drawn for a task depends on the seed, its workload entry's place and its own index, and on nothing else: each
entry has two streams of random numbers of its own, and a task's number in a stream is its index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairbind.simulator.scenario import (
    AllAt,
    Arrival,
    Duration,
    Each,
    Entry,
    Every,
    Exponential,
    Fixed,
    Gang,
    Lognormal,
    Poisson,
    Scenario,
    Times,
    Uniform,
)
from fairbind.what_if.reading import MOST_SECONDS, NANOSECONDS

FOREVER = -1
"""The length of a task that never ends."""
MOST_NANOSECONDS = round(MOST_SECONDS) * NANOSECONDS
ALONE = -1
"""The group of a task that is in none."""
_FIRST_CHUNK = 1024
_ARRIVALS, _DURATIONS = 0, 1

Times64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """All tasks that arrive, in the order of their arrival: by time, then entry, then index.

    arrival_t, duration_t: nanoseconds; FOREVER for a task that never ends. entry_t: the place of its entry. index_t:
    its own in the entry. group_t: its group's in the entry; ALONE for a task that starts by itself.
    """

    arrival_t: Times64
    duration_t: Times64
    entry_t: Times64
    index_t: Times64
    group_t: Times64


def draw_workload(scenario: Scenario) -> Workload:
    """Return the tasks that arrive up to the horizon."""
    parts = [_draw_entry(scenario, place, entry) for place, entry in enumerate(scenario.workload)]
    arrival_t, duration_t, entry_t, index_t, group_t = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((index_t, entry_t, arrival_t))
    return Workload(*(column[order] for column in (arrival_t, duration_t, entry_t, index_t, group_t)))


def _draw_entry(scenario: Scenario, place: int, entry: Entry) -> tuple[Times64, Times64, Times64, Times64, Times64]:
    seed = scenario.seed, place, _ARRIVALS
    size = entry.gang.size if entry.gang is not None and isinstance(entry.arrival, Every | Poisson) else None
    if size is None:
        arrival_t = _draw_arrivals(entry.arrival, entry.tasks, scenario.horizon, seed)
    else:  # whole groups arrive
        groups = None if entry.tasks is None else entry.tasks // size
        arrival_t = np.repeat(_draw_arrivals(entry.arrival, groups, scenario.horizon, seed), size)
    duration_t = _draw_durations(entry.duration, len(arrival_t), (scenario.seed, place, _DURATIONS))
    index_t = np.arange(len(arrival_t), dtype=np.int64)
    kept = np.ones(len(arrival_t), dtype=np.bool_) if scenario.horizon is None else arrival_t <= scenario.horizon
    entry_t = np.full(int(kept.sum()), place, dtype=np.int64)
    return arrival_t[kept], duration_t[kept], entry_t, index_t[kept], _number_groups(entry.gang, arrival_t)[kept]


def _number_groups(gang: Gang | None, arrival_t: Times64) -> Times64:
    """Return the group of each task: of those that arrive together the first `size`, the next, and so on."""
    if gang is None:
        return np.full(len(arrival_t), ALONE, dtype=np.int64)
    order = np.argsort(arrival_t, kind="stable")
    times, counts = np.unique(arrival_t, return_counts=True)
    within = np.concatenate([np.arange(count) for count in counts]) if len(times) else np.zeros(0, dtype=np.int64)
    begins = within % (gang.size or max(1, len(within))) == 0
    group_t = np.empty(len(arrival_t), dtype=np.int64)
    group_t[order] = np.cumsum(begins) - 1
    return group_t


def _draw_arrivals(arrival: Arrival, tasks: int | None, horizon: int | None, seed: tuple[int, int, int]) -> Times64:
    match arrival:
        case AllAt(at):
            assert tasks is not None
            return np.full(tasks, at, dtype=np.int64)
        case Times(times):
            return np.array(times, dtype=np.int64)
        case Every(at, every):
            if tasks is None:
                assert horizon is not None
                tasks = max(0, (horizon - at) // every + 1)
            return _clip(at + every * np.arange(tasks, dtype=np.float64), exact=(at, every, tasks))
        case Poisson(at, rate):
            return _draw_poisson(at, rate, tasks, horizon, seed)


def _clip(times: NDArray[np.float64], *, exact: tuple[int, int, int] | None = None) -> Times64:
    """Return times as whole nanoseconds, none beyond what a clock may show. exact: first, step and count, if known."""
    if exact is not None:
        first, step, count = exact
        if first + step * max(0, count - 1) <= MOST_NANOSECONDS:
            return first + step * np.arange(count, dtype=np.int64)
    return np.rint(np.minimum(times, MOST_NANOSECONDS)).astype(np.int64)


def _draw_poisson(at: int, rate: float, tasks: int | None, horizon: int | None, seed: tuple[int, int, int]) -> Times64:
    stream = np.random.default_rng(seed)
    if tasks is not None:
        return _clip(at + np.cumsum(stream.exponential(NANOSECONDS / rate, tasks)))
    assert horizon is not None
    gaps = stream.exponential(NANOSECONDS / rate, _FIRST_CHUNK)
    while at + gaps.sum() <= horizon:
        gaps = np.concatenate([gaps, stream.exponential(NANOSECONDS / rate, len(gaps))])
    return _clip(at + np.cumsum(gaps))


def _draw_durations(duration: Duration, count: int, seed: tuple[int, int, int]) -> Times64:
    stream = np.random.default_rng(seed)
    match duration:
        case Fixed(length):
            return np.full(count, FOREVER if length is None else length, dtype=np.int64)
        case Each(lengths):
            return np.array([FOREVER if length is None else length for length in lengths], dtype=np.int64)
        case Exponential(mean):
            seconds = stream.exponential(mean, count)
        case Lognormal(median, sigma):
            seconds = median * np.exp(sigma * stream.standard_normal(count))
        case Uniform(low, high):
            seconds = stream.uniform(low, high, count)
    return np.maximum(_clip(seconds * NANOSECONDS), 1)
