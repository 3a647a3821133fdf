from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.workload import FOREVER, Workload, draw_workload
from simulator.scenarios import SECOND, make_entry, make_scenario

DRAWN: dict[str, Any] = {"arrival": {"poisson": 0.5, "at": 3}, "duration": {"lognormal": {"median": 60, "sigma": 1}}}


def draw(*entries: dict[str, Any], **more: Any) -> Workload:
    return draw_workload(parse_scenario(make_scenario(*entries, **more)))


def get_entry(workload: Workload, place: int) -> list[tuple[int, int]]:
    """Arrival and duration of each task of an entry, by index."""
    rows = np.flatnonzero(workload.entry_t == place)
    found = sorted(zip(workload.index_t[rows], workload.arrival_t[rows], workload.duration_t[rows], strict=True))
    return [(int(arrival), int(duration)) for _, arrival, duration in found]


def test_every_has_its_first_task_at_its_time() -> None:
    workload = draw(make_entry(tasks=3, arrival={"every": 5, "at": 10}))

    assert workload.arrival_t.tolist() == [10 * SECOND, 15 * SECOND, 20 * SECOND]


def test_every_begins_at_the_start_and_goes_on_to_the_horizon_and_no_further() -> None:
    workload = draw(make_entry(tasks=None, arrival={"every": 0.1}), horizon=0.3)

    assert workload.arrival_t.tolist() == [0, SECOND // 10, 2 * SECOND // 10, 3 * SECOND // 10]


def test_every_that_begins_after_the_horizon_has_no_task() -> None:
    assert len(draw(make_entry(tasks=None, arrival={"every": 1, "at": 9}), horizon=5).arrival_t) == 0


def test_times_are_from_the_start() -> None:
    workload = draw(make_entry(tasks=None, arrival={"times": [2.5, 1]}))

    assert (workload.arrival_t.tolist(), workload.index_t.tolist()) == ([SECOND, 5 * SECOND // 2], [1, 0])


def test_tasks_of_one_instant_stand_in_the_order_of_entries_then_of_their_index() -> None:
    workload = draw(make_entry("z", tasks=11), make_entry("b", tasks=2), make_entry("a", tasks=1))

    order = list(zip(workload.entry_t.tolist(), workload.index_t.tolist(), strict=True))
    assert order == [*((0, index) for index in range(11)), (1, 0), (1, 1), (2, 0)]


def test_draws_depend_on_seed_entry_and_index_alone() -> None:
    base = draw(make_entry(tasks=50, **DRAWN), seed=7)
    longer = draw(make_entry(tasks=80, **DRAWN), make_entry("behind", tasks=9, **DRAWN), seed=7)
    to_horizon = draw(make_entry(tasks=None, **DRAWN), seed=7, horizon=5000)

    assert get_entry(longer, 0)[:50] == get_entry(base, 0)
    assert get_entry(to_horizon, 0)[:50] == get_entry(base, 0)
    assert get_entry(longer, 1) != get_entry(longer, 0)[:9], "entries have draws of their own"
    assert get_entry(draw(make_entry(tasks=50, **DRAWN), seed=8), 0) != get_entry(base, 0)


def test_arrivals_and_durations_do_not_follow_each_other() -> None:
    """The first of a stream that both shared would give lengths that are proportional to gaps."""
    workload = draw(make_entry(tasks=2000, arrival={"poisson": 1}, duration={"exponential": 1}))
    gaps = np.diff(workload.arrival_t, prepend=0)

    assert abs(stats.pearsonr(gaps, workload.duration_t).statistic) < 0.1


@pytest.mark.parametrize(
    ("duration", "law"),
    [
        ({"exponential": 60}, stats.expon(scale=60)),
        ({"lognormal": {"median": 60, "sigma": 1.5}}, stats.lognorm(s=1.5, scale=60)),
        ({"uniform": [10, 20]}, stats.uniform(10, 10)),
    ],
)
def test_durations_have_the_law_that_is_said(duration: Any, law: Any) -> None:
    workload = draw(make_entry(tasks=4000, duration=duration), seed=1)

    assert stats.kstest(workload.duration_t / SECOND, law.cdf).pvalue > 0.01


def test_poisson_has_its_first_task_an_exponential_time_after_its_time() -> None:
    entries = [make_entry(f"w{n}", arrival={"poisson": 0.5, "at": 3}) for n in range(400)]
    workload = draw(*entries)

    assert stats.kstest(workload.arrival_t / SECOND - 3, stats.expon(scale=2).cdf).pvalue > 0.01


def test_forever_and_fixed() -> None:
    workload = draw(make_entry(duration="forever"), make_entry("x", duration=0.5))

    assert workload.duration_t.tolist() == [FOREVER, SECOND // 2]


def test_what_is_drawn_beyond_all_clocks_is_cut() -> None:
    workload = draw(make_entry(tasks=100, duration={"lognormal": {"median": 1e9, "sigma": 20}}))

    assert workload.duration_t.max() == 10**18
    assert workload.duration_t.min() >= 1


def test_arrivals_beyond_all_clocks_are_cut() -> None:
    assert draw(make_entry(tasks=3, arrival={"every": 1e9})).arrival_t.tolist() == [0, 10**18, 10**18]
