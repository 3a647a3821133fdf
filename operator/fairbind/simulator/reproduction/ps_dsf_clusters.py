"""The clusters and the workloads behind the evaluation of the PS-DSF paper (section 6).

Printed: the servers of figures 4 and 5, who may use which, and how long jobs are (figure 8). The paper takes demands
from Bitbrains' and Google's traces, which fairbind does not ship; here they are drawn from a seed, or, in the data
centre, cpu and memory from a trace that the user has. How many of the 120
servers of figure 4 are of which class, and which location has which network, stands only in the pictures.

Source: Khamse-Ashari, Lambadaris, Kesidis, Urgaonkar, Zhao, "An Efficient and Fair Multi-Resource Allocation Mechanism
for Heterogeneous Servers".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fairbind.fairness import Allocation, compute_allocation, make_problem
from fairbind.fairness.problems.problem import BoolArray, FloatArray, Problem
from fairbind.simulator.reproduction.outcome import Lab

SEED: Final = 2004
RESOURCES: Final = ("cpu", "memory", "storage", "send", "receive")
TYPES: Final = ((25, 4.0, 12.0), (100 / 3, 8.0, 8.0), (25, 16.0, 4.0))
"""Servers of a type at a location, a third of the printed 75, 100 and 75; GHz and GB of one."""
LOCATIONS: Final = ((32.0, 100.0, 1000.0), (100.0, 1000.0, 2000.0), (32.0, 100.0, 1000.0))
"""Storage in MB/s, sending and receiving in Mb/s, for each type of server at a location."""
MEDIANS: Final = (2.6, 2.0, 1.0, 2.0, 2.0)
SIGMAS: Final = (0.6, 0.9, 1.0, 1.2, 1.2)
"""Of a virtual machine's demands, which are lognormal; ours."""

CLASSES: Final = ("A", "B", "C", "D")
CLASS_COUNT: Final = (8, 65, 37, 10)
"""Of 120 servers, by the numbers of these machines in Google's cluster; ours."""
CLASS_CAPACITY: Final = ((1.0, 1.0), (0.5, 0.5), (0.5, 0.25), (0.5, 0.75))
PERIOD: Final = 300.0
OFFERED_LOAD: Final = 1.2
SENSITIVE: Final = 0.5
"""Which part of the jobs is sensitive to latency; ours."""
MOST_QUANTA: Final = 1e5
QUANTA_MU, QUANTA_SIGMA = 1.971, 4.401
"""Of the logarithm: 53 % of jobs need fewer than 10 quanta and 5 % more than 10,000, as printed."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A mechanism by the name that pictures show."""

    name: str
    mechanism: str
    alpha: float | None = None


ALPHAS: Final = (
    Variant("alpha = 1", "alpha-pf-vds", 1.0),
    Variant("alpha = 3", "alpha-pf-vds", 3.0),
    Variant("PS-DSF", "ps-dsf"),
)
RIVALS: Final = (Variant("PS-DSF", "ps-dsf"), Variant("DRFH", "drfh"), Variant("TSF", "tsf"))


def solve(problem: Problem, variant: Variant) -> Allocation:
    """Return a variant's allocation."""
    return compute_allocation(problem, variant.mechanism, alpha=variant.alpha)


def compute_use(allocation: Allocation) -> FloatArray:
    """Return which part of each resource of each entry is in use, shape (K, R); NaN where there is none."""
    problem = allocation.problem
    capacity_kr = problem.capacity_kr * problem.count_k[:, None]
    use_kr = np.full(capacity_kr.shape, np.nan)
    np.divide(allocation.tasks_ik.T @ problem.demand_ir, capacity_kr, out=use_kr, where=capacity_kr > 0)
    return use_kr


def make_data_centre(run: int, users: int, machines: Sequence[tuple[float, float]] = ()) -> Problem:
    """Return the problem of some active users of the data centre of figure 5.

    machines: GHz and GB of those that users are drawn from, as far as these go; empty: all demands are synthetic.
    """
    generator = np.random.default_rng((SEED, 5, run))
    capacity = [(count * cpu, count * memory, *location) for location in LOCATIONS for count, cpu, memory in TYPES]
    demand_ir = np.exp(np.log(MEDIANS) + np.array(SIGMAS) * generator.standard_normal((users, len(MEDIANS))))
    if machines:
        demand_ir[:, :2] = np.array(machines)[generator.integers(len(machines), size=users)]
    at_i = generator.integers(len(LOCATIONS), size=users)
    at_k = np.repeat(np.arange(len(LOCATIONS)), len(TYPES))
    return make_problem(capacity, demand_ir, eligible_ik=np.abs(at_i[:, None] - at_k) <= 1, resources=RESOURCES)


@dataclass(frozen=True, slots=True)
class Setting:
    """What of the cluster of figure 4 is ours. counts: of servers by class. memory: how much jobs ask for beside cpu.

    Both have a mean of 1 where memory is 1.
    """

    counts: tuple[int, ...] = CLASS_COUNT
    memory: float = 1.0


GOOGLE: Final = Setting()


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs by their arrival. arrival_n: seconds, at the begin of a period. quanta_n: blocks of resources for a second.

    demand_nr: of a quantum, the largest is 1, shape (N, 2). is_sensitive_n: to latency, so it may use all classes.
    """

    arrival_n: FloatArray
    quanta_n: FloatArray
    demand_nr: FloatArray
    is_sensitive_n: BoolArray


def draw_jobs(seconds: float, setting: Setting = GOOGLE) -> Jobs:
    """Return the jobs that arrive before a time: as much work as the load says, in the mean."""
    generator = np.random.default_rng((SEED, 4))
    sample = np.minimum(np.exp(QUANTA_MU + QUANTA_SIGMA * generator.standard_normal(100_000)), MOST_QUANTA)
    cpu = sum(count * capacity[0] for count, capacity in zip(setting.counts, CLASS_CAPACITY, strict=True))
    jobs = round(OFFERED_LOAD * cpu * seconds / float(sample.mean()))
    demand_nr = np.exp(0.6 * generator.standard_normal((jobs, 2))) * (1.0, setting.memory)
    return Jobs(
        arrival_n=np.sort(np.floor(generator.uniform(0, seconds, jobs) / PERIOD) * PERIOD),
        quanta_n=sample[:jobs],
        demand_nr=demand_nr / demand_nr.max(axis=1, keepdims=True),
        is_sensitive_n=generator.random(jobs) < SENSITIVE,
    )


@dataclass(frozen=True, slots=True)
class Spell:
    """A time between two reallocations. allocation: of the jobs that are there; None: there are none."""

    begin: float
    end: float
    allocation: Allocation | None


@dataclass(frozen=True, slots=True)
class History:
    """What a variant does with jobs. end_n: when each ended, NaN if it did not."""

    spells: Sequence[Spell]
    end_n: FloatArray


def live(jobs: Jobs, variant: Variant, seconds: float, counts: Sequence[int] = CLASS_COUNT) -> History:
    """Return the history of the cluster of figure 4: it reallocates when a period begins and when a job ends."""
    left_n = jobs.quanta_n.copy()
    end_n = np.full(left_n.size, np.nan)
    spells: list[Spell] = []
    now = 0.0
    while now < seconds:
        until = min((np.floor(now / PERIOD + 1e-9) + 1) * PERIOD, seconds)
        active = np.flatnonzero((jobs.arrival_n <= now) & np.isnan(end_n))
        if not active.size:
            spells.append(Spell(now, until, None))
            now = until
            continue
        allocation = solve(_make_cluster(jobs, active, counts), variant)
        rate = allocation.totals_i
        with np.errstate(divide="ignore"):
            needed = np.where(rate > 0, left_n[active] / rate, np.inf)
        step = min(float(needed.min()), until - now)
        left_n[active] -= rate * step
        ended = active[needed <= step * (1 + 1e-9)]
        end_n[ended] = now + step
        spells.append(Spell(now, now + step, allocation))
        now = until if step >= until - now else now + step
    return History(spells, end_n)


def _make_cluster(jobs: Jobs, active: np.ndarray[tuple[int], np.dtype[np.intp]], counts: Sequence[int]) -> Problem:
    is_public = np.array([name in {"A", "B"} for name in CLASSES])
    return make_problem(
        CLASS_CAPACITY,
        jobs.demand_nr[active],
        count_k=counts,
        eligible_ik=jobs.is_sensitive_n[active][:, None] | is_public,
        resources=("cpu", "memory"),
        server_names=CLASSES,
    )


def get_history(lab: Lab, variant: Variant, seconds: float, setting: Setting = GOOGLE) -> History:
    """Return a history, which is made once."""
    return lab.remember(
        ("history", variant, seconds, setting),
        lambda: live(draw_jobs(seconds, setting), variant, seconds, setting.counts),
    )
