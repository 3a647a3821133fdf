"""The slots of the DRFH paper's evaluation: table 2, and which size figures 6 to 8 compare with.

The paper tries five sizes and compares with the one that uses most. So do we, also with smaller slots than the paper
prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from fairbind.simulator.reproduction.drfh_runs import (
    OFFERED_LOAD,
    POLICIES,
    SEED,
    Day,
    compute_use,
    describe_workload,
    get_rows,
    make_day,
)
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series
from fairbind.simulator.results import TaskRow

SLOTS: Final = "slots"
TABLE_2: Final = {10: (35.1, 23.4), 12: (42.2, 27.4), 14: (43.9, 28.0), 16: (45.4, 24.2), 20: (40.6, 20.0)}
COUNTS: Final = (*TABLE_2, 24, 28, 32, 40)
"""Slots per maximum server: the printed ones, and more."""

WORKLOAD = (
    "the paper's is Google's of 2011, ours is synthetic, so levels are not comparable, only which policy is ahead"
)


def describe(lab: Lab) -> str:
    """Return what is run for figures 6 to 9, with every setting."""
    day = make_day(lab)
    tasks = sum(job.tasks for job in day.jobs)
    printed = "" if lab.is_full else " (the paper: 2,000 servers for a day)"
    return (
        f"{sum(day.servers):,} servers drawn from table 1 for {day.seconds:,} s{printed}; a synthetic workload in "
        f"place of Google's trace: {len(day.jobs):,} jobs of {tasks:,} tasks, {OFFERED_LOAD:g} times the cpu that "
        f"there is, seed {SEED}. {describe_workload(day)} Best-Fit is relative to a task's dominant resource; equation "
        "(9) as printed takes the cpu. No reservations, and no exact answers say where tasks go. Slots: a task takes "
        "as many whole slots as cover it, users are equal in slots, and the first server by name takes it; the largest "
        "server has as many as use most of cpu and memory together, see table 2."
    )


def find_best_count(lab: Lab) -> int:
    """Return into how many slots the largest server is divided best: the most use of cpu and memory together."""
    means = _compute_means(lab)
    return max(means, key=lambda count: sum(means[count]))


def get_runs(lab: Lab) -> Mapping[str, Sequence[TaskRow]]:
    """Return the day's run under each policy, of slots that of the best size."""
    best = find_best_count(lab)
    return {policy: get_rows(lab, policy, best) if policy == SLOTS else get_rows(lab, policy) for policy in POLICIES}


def _compute_means(lab: Lab) -> dict[int, tuple[float, float]]:
    day = make_day(lab)
    return {count: compute_mean_use(day, get_rows(lab, SLOTS, count)) for count in COUNTS}


def _tell_edge(best: int) -> str:
    return " (no more were tried)" if best == max(COUNTS) else ""


def compute_mean_use(day: Day, rows: Sequence[TaskRow]) -> tuple[float, float]:
    """Return the mean parts of all cpu and memory that are in use over the day."""
    cpu, memory = compute_use(day, rows, make_times(day, 1_000)).mean(axis=0).tolist()
    return cpu, memory


def make_times(day: Day, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return so many steps of the day, from its begin to its end; seconds."""
    return np.linspace(0.0, day.seconds, count + 1)


def reproduce_table_2(lab: Lab) -> Outcome:
    """How many slots a server is best divided into."""
    means, best = _compute_means(lab), find_best_count(lab)
    return Outcome(
        "drfh-table-2",
        "Utilisation of the slots scheduler by the size of a slot",
        describe(lab),
        ("slots", "cpu_utilisation", "memory_utilisation"),
        [(count, *use) for count, use in means.items()],
        [
            Panel(
                "lines",
                "Slots per maximum server",
                "Utilisation",
                [
                    Series("cpu", list(means), [use[0] for use in means.values()]),
                    Series("memory", list(means), [use[1] for use in means.values()]),
                    Series("cpu, paper", list(TABLE_2), [use[0] / 100 for use in TABLE_2.values()]),
                    Series("memory, paper", list(TABLE_2), [use[1] / 100 for use in TABLE_2.values()]),
                ],
            )
        ],
        [
            Comparison(
                "14 slots are best: 43.9 % of the cpu, 28.0 % of the memory",
                f"{best} are best{_tell_edge(best)}: {means[best][0]:.1%} and {means[best][1]:.1%}; "
                f"14: {means[14][0]:.1%} and {means[14][1]:.1%}",
                f"{WORKLOAD}; the best slot is near a typical request, and whether a large task takes several slots "
                "is not printed",
            )
        ],
    )
