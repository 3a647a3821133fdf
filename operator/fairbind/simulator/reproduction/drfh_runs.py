"""The clusters, the workload and the runs behind the evaluation of the DRFH paper (section 6).

Printed in the paper: the servers (table 1), 2,000 of them for a day, over 900 users. Its workload is Google's of 2011,
which fairbind does not ship; the one here is drawn from a seed, heavy-tailed as the trace is said to be. None of
its numbers was chosen by what came out: jobs of 1 to 1,000 tasks (Pareto, exponent 1), users by Zipf's law, a job's
requests lognormal about its user's, run times lognormal about the job's, of which the median is an eighth of the day
(so that nine runs end in hours), and work for 1.2 times the cluster's cpu.

Source: Wang, Liang, Li, "Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems", TPDS 2015.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.reproduction.outcome import Lab
from fairbind.simulator.results import TaskRow
from fairbind.simulator.slots import DEFAULT_SLOTS
from fairbind.simulator.workload import draw_workload
from fairbind.what_if.reading import NANOSECONDS

SEED: Final = 2015
SERVERS: Final = (
    (6732, 0.50, 0.50), (3863, 0.50, 0.25), (1001, 0.50, 0.75), (795, 1.00, 1.00), (126, 0.25, 0.25),
    (52, 0.50, 0.12), (5, 0.50, 0.03), (5, 0.50, 0.97), (3, 1.00, 0.50), (1, 0.50, 0.06),
)  # fmt: skip
"""Table 1: number, cpu and memory in parts of the largest server."""
UNIT: Final = 10_000
"""Of the largest server's cpu, in thousandths of a core, and of its memory, in MiB."""
POLICIES: Final = ("best-fit-drfh", "first-fit-drfh", "two-choices-drfh", "slots")
OFFERED_LOAD: Final = 1.2
REQUESTS: Final = (0.005, 0.25)
"""The least and the most that a task asks for, in parts of the largest server."""
TYPICAL_REQUEST: Final = 0.04
USER_SPREAD: Final = 0.6
JOB_SPREAD: Final = 0.5
TASK_SPREAD: Final = 0.3
"""Standard deviations of logarithms: of users' requests, of jobs' about these, of tasks' run times about the job's."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Job:
    """Equal tasks of one user that arrive together. cpu, memory: of one, in parts of the largest server. Seconds."""

    user: str
    tasks: int
    arrival: float
    cpu: float
    memory: float
    lengths: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Day:
    """What is run for figures 6 to 9. servers: how many of each kind of table 1. seconds: when it ends."""

    servers: Sequence[int]
    seconds: int
    jobs: Sequence[Job]


def draw_servers(generator: np.random.Generator, count: int, draws: int = 1) -> Counts:
    """Return how many servers of each kind of table 1 there are in each draw, shape (draws, kinds)."""
    number_k = np.array([number for number, _, _ in SERVERS], dtype=np.float64)
    drawn: Counts = generator.multinomial(count, number_k / number_k.sum(), size=draws)
    return drawn


def write_cluster(servers: Sequence[int]) -> list[dict[str, Any]]:
    """Return the scenario's cluster of so many servers of each kind."""
    return [
        {"shape": f"kind-{place + 1}", "count": count, "capacity": write_amounts(cpu, memory)}
        for place, ((_, cpu, memory), count) in enumerate(zip(SERVERS, servers, strict=True))
        if count
    ]


def write_amounts(cpu: float, memory: float) -> dict[str, str]:
    """Return parts of the largest server as Kubernetes writes amounts."""
    return {"cpu": f"{round(cpu * UNIT)}m", "memory": f"{round(memory * UNIT)}Mi"}


def make_day(lab: Lab) -> Day:
    """Return the day of 2,000 servers, or the hour of 8 of the small scale."""
    return lab.remember("day", lambda: _draw_day(2_000, 900, 86_400) if lab.is_full else _draw_day(8, 6, 3_600))


def describe_workload(day: Day) -> str:
    """Return how the jobs are drawn."""
    low, high = REQUESTS
    return (
        f"Jobs have 1 to {_count_most_tasks(sum(day.servers)):,} tasks (Pareto, exponent 1), arrive evenly over time "
        f"and are of users by Zipf's law. A user's requests are lognormal about {TYPICAL_REQUEST:g} of the largest "
        f"server (sigma {USER_SPREAD:g}), a job's about its user's (sigma {JOB_SPREAD:g}), from {low:g} to {high:g}. A "
        f"job's run time is lognormal about an eighth of the time ({day.seconds / 8:,.0f} s, sigma 1), a task's about "
        f"its job's (sigma {TASK_SPREAD:g})."
    )


def _count_most_tasks(servers: int) -> int:
    return min(1_000, servers)


def _draw_day(servers: int, users: int, seconds: int) -> Day:
    generator = np.random.default_rng(SEED)
    drawn = draw_servers(generator, servers)[0].tolist()
    profile_ur = np.exp(np.log(TYPICAL_REQUEST) + USER_SPREAD * generator.standard_normal((users, 2)))
    popularity_u = 1.0 / np.arange(1, users + 1)
    popularity_u /= popularity_u.sum()
    median_length = seconds / 8
    wanted = OFFERED_LOAD * seconds * sum(count * cpu for count, (_, cpu, _) in zip(drawn, SERVERS, strict=True))
    most_tasks = _count_most_tasks(servers)
    jobs: list[Job] = []
    while wanted > 0:
        user = int(generator.choice(users, p=popularity_u))
        tasks = int(min(most_tasks, 1 / (1 - generator.random())))
        cpu, memory = np.clip(profile_ur[user] * np.exp(JOB_SPREAD * generator.standard_normal(2)), *REQUESTS).tolist()
        typical = median_length * math.exp(generator.standard_normal())
        lengths = np.clip(typical * np.exp(TASK_SPREAD * generator.standard_normal(tasks)), 1.0, seconds)
        arrival = float(generator.uniform(0, seconds))
        jobs.append(Job(f"user-{user + 1}", tasks, round(arrival, 3), cpu, memory, tuple(lengths.round(3).tolist())))
        wanted -= cpu * float(lengths.sum())
    return Day(drawn, seconds, jobs)


def run(
    day: Day, policy: str, slots: int = DEFAULT_SLOTS, jobs: Mapping[int, Job] | None = None
) -> tuple[TaskRow, ...]:
    """Return what the simulator did: a row for each task. jobs: by number, in place of all; tasks are JOB-INDEX."""
    chosen = dict(enumerate(day.jobs)) if jobs is None else jobs
    scenario = parse_scenario(
        {
            "name": "drfh",
            "reservations": {"mode": "Off"},  # the paper has none
            "guided": False,  # nor exact answers
            "seed": SEED,
            "horizon": day.seconds,
            "measureEvery": day.seconds,
            "slots": slots,
            "cluster": write_cluster(day.servers),
            "tenants": [{"name": user} for user in sorted({job.user for job in chosen.values()})],
            "workload": [
                {
                    "tenant": job.user,
                    "name": f"job-{number}",
                    "arrival": {"times": [job.arrival] * job.tasks},
                    "duration": {"each": list(job.lengths)},
                    "pod": {"requests": write_amounts(job.cpu, job.memory)},
                }
                for number, job in chosen.items()
            ],
        }
    )
    return simulate(scenario, draw_workload(scenario), policy).tasks


def get_rows(lab: Lab, policy: str, slots: int = DEFAULT_SLOTS) -> tuple[TaskRow, ...]:
    """Return the day's run under a policy; it is made once."""
    return lab.remember(("run", policy, slots), lambda: run(make_day(lab), policy, slots))


def find_job(row: TaskRow) -> int:
    """Return the number of a task's job."""
    return int(row.task.split("-")[1])


def compute_use(day: Day, rows: Sequence[TaskRow], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the parts of all cpu and memory that are in use at times in seconds, shape (times, 2)."""
    return np.column_stack(
        [
            _sum_steps(day, rows, times, [job.cpu for job in day.jobs], place=1),
            _sum_steps(day, rows, times, [job.memory for job in day.jobs], place=2),
        ]
    )


def _sum_steps(
    day: Day, rows: Sequence[TaskRow], times: NDArray[np.float64], amounts: Sequence[float], place: int
) -> NDArray[np.float64]:
    total = sum(count * kind[place] for count, kind in zip(day.servers, SERVERS, strict=True))
    moments: list[float] = []
    changes: list[float] = []
    for row in rows:
        if row.start is not None:
            amount = amounts[find_job(row)]
            moments.append(row.start / NANOSECONDS)
            changes.append(amount)
            if row.end is not None:
                moments.append(row.end / NANOSECONDS)
                changes.append(-amount)
    order = np.argsort(moments, kind="stable")
    level = np.concatenate([[0.0], np.cumsum(np.array(changes)[order])])
    used: NDArray[np.float64] = level[np.searchsorted(np.array(moments)[order], times, side="right")] / total
    return used


def compute_completion(rows: Sequence[TaskRow]) -> dict[str, tuple[int, int]]:
    """Return how many tasks of each user ended, of how many."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        ended, submitted = found.get(row.tenant, (0, 0))
        found[row.tenant] = ended + (row.end is not None), submitted + 1
    return found
