"""The evaluation of the DRFH paper: figures 5 to 9. `drfh_runs` says what is run, `drfh_slots` with which slots."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np

from fairbind.fairness import compute_allocation, make_problem
from fairbind.fairness.problems.problem import FloatArray
from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.reproduction.drfh_runs import (
    SEED,
    SERVERS,
    Day,
    Job,
    compute_completion,
    compute_use,
    draw_servers,
    find_job,
    get_rows,
    make_day,
    run,
    write_amounts,
    write_cluster,
)
from fairbind.simulator.reproduction.drfh_slots import (
    SLOTS,
    WORKLOAD,
    compute_mean_use,
    describe,
    get_runs,
    make_times,
)
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series
from fairbind.simulator.results import TaskRow
from fairbind.simulator.workload import draw_workload
from fairbind.what_if.reading import NANOSECONDS

BEST = "best-fit-drfh"
PRINTED_TOTALS: Final = (52.75, 51.32)
USERS: Final = {"user-1": (0.2, 0.3), "user-2": (0.5, 0.1), "user-3": (0.1, 0.3)}
"""Figure 5: what a task asks for of cpu and memory, in parts of the largest server."""
JOINS: Final = {"user-1": 0, "user-2": 200, "user-3": 500}
WORK: Final = {"user-1": 69_600, "user-2": 48_900, "user-3": 78_000}
"""Task seconds. User 1's is what the printed shares let it do in the printed 1080 s; the others' are ours."""
PHASES: Final = ((100, 200), (350, 500), (800, 1000))
SMALL: Final = 20
"""Section 6.1's claim is tried with tasks of one part in so many, too."""
PRECISE: Final = 0.99
SIZES: Final = ((1, 1), (2, 5), (6, 20), (21, 100), (101, 1_000_000))
"""Classes of jobs by their tasks. The paper has five, too; its text does not print their bounds."""


class _SharesAt(NamedTuple):
    """What a user holds at a time, in seconds."""

    time: float
    user: str
    cpu_share: float
    memory_share: float
    dominant_share: float


def reproduce_figure_5(lab: Lab) -> Outcome:
    """Shares of three users who come and go on 100 servers."""
    servers = _find_small_cluster()
    length = 20 if lab.is_full else 120
    rows = _run_figure_5(servers, length)
    total_r = [sum(count * kind[place] for count, kind in zip(servers, SERVERS, strict=True)) for place in (1, 2)]
    last = max(row.end or 0 for row in rows) / NANOSECONDS
    times = np.arange(0.0, math.ceil(last / 10) * 10 + 1, 10.0)
    table = _list_shares(rows, times, total_r)
    exact = _compute_exact(servers)
    names = ("cpu_share", "memory_share", "dominant_share")
    return Outcome(
        "drfh-figure-5",
        "Shares of three users who join and leave",
        f"100 servers drawn from table 1: of 20,000 draws the one nearest to the printed totals, {total_r[0]:g} cpu "
        f"and {total_r[1]:g} memory (printed: 52.75 and 51.32). Users join at 0, 200 and 500 s with the printed "
        f"requests. Ours: tasks run {length / 2:g} to {length * 1.5:g} s, and how much work each user has.",
        ("time", "user", *names),
        table,
        [
            Panel(
                "steps",
                "Time (s)",
                name.replace("_", " "),
                [
                    Series(user, times.tolist(), [getattr(row, name) for row in table if row.user == user])
                    for user in USERS
                ],
            )
            for name in names
        ],
        [
            *_compare_figure_5(table, max(row.end or 0 for row in rows if row.tenant == "user-1"), exact),
            _compare_claim(servers, total_r, exact),
        ],
    )


def _list_shares(rows: Sequence[TaskRow], times: FloatArray, total_r: Sequence[float]) -> list[_SharesAt]:
    """Return what each user holds at these times."""
    table: list[_SharesAt] = []
    for user, demand_r in USERS.items():
        own = [row for row in rows if row.tenant == user]
        starts = np.sort([(row.start or 0) / NANOSECONDS for row in own])
        ends = np.sort([(row.end or 0) / NANOSECONDS for row in own])
        running = np.searchsorted(starts, times, side="right") - np.searchsorted(ends, times, side="right")
        for time, count in zip(times.tolist(), running.tolist(), strict=True):
            cpu, memory = (count * demand / total for demand, total in zip(demand_r, total_r, strict=True))
            table.append(_SharesAt(time, user, cpu, memory, max(cpu, memory)))
    return sorted(table)


def _find_small_cluster() -> list[int]:
    drawn_nk = draw_servers(np.random.default_rng(SEED), 100, 20_000)
    kinds_kr = np.array([kind[1:] for kind in SERVERS])
    distance_n = np.abs(drawn_nk @ kinds_kr - PRINTED_TOTALS).max(axis=1)
    found: list[int] = drawn_nk[int(distance_n.argmin())].tolist()
    return found


def _run_figure_5(servers: Sequence[int], length: int) -> tuple[TaskRow, ...]:
    workload = [
        {
            "tenant": user,
            "name": user,
            "tasks": WORK[user] // length,
            "arrival": {"at": JOINS[user]},
            "duration": {"uniform": [length / 2, length * 1.5]},
            "pod": {"requests": write_amounts(*demand)},
        }
        for user, demand in USERS.items()
    ]
    return _run(servers, workload)


def _run(servers: Sequence[int], workload: Sequence[Mapping[str, object]], **more: float) -> tuple[TaskRow, ...]:
    """Return what becomes of the tasks under Best-Fit DRFH as the paper has it."""
    scenario = parse_scenario(
        {
            "name": "drfh-figure-5",
            "reservations": {"mode": "Off"},  # the paper has none
            "guided": False,  # nor exact answers
            "seed": SEED,
            "measureEvery": 100_000,
            "cluster": write_cluster(servers),
            "tenants": [{"name": user} for user in USERS],
            "workload": workload,
            **more,
        }
    )
    return simulate(scenario, draw_workload(scenario), BEST).tasks


def _fill(servers: Sequence[int], total_r: Sequence[float], users: int, parts: int) -> float:
    """Return the least dominant share when these users fill the empty cluster at once.

    parts: a task asks for one in so many of the printed request.
    """
    workload, share_of = [], {}
    for user, demand in list(USERS.items())[:users]:
        asked = [amount / parts for amount in demand]
        share_of[user] = max(amount / total for amount, total in zip(asked, total_r, strict=True))
        tasks = math.ceil(1 / share_of[user])
        pod = {"requests": write_amounts(*asked)}
        workload.append({"tenant": user, "name": user, "tasks": tasks, "duration": "forever", "pod": pod})
    held = Counter(row.tenant for row in _run(servers, workload, horizon=1) if row.start is not None)
    return min(held[user] * share for user, share in share_of.items())


def _compute_exact(servers: Sequence[int]) -> list[float]:
    """Return the least dominant share of the users that are there under exact DRFH, in each of the three phases."""
    kinds = [kind[1:] for kind in SERVERS]
    demands = list(USERS.values())
    present = [(kind, count) for kind, count in zip(kinds, servers, strict=True) if count]
    return [
        float(
            compute_allocation(
                make_problem([kind for kind, _ in present], demands[:users], count_k=[count for _, count in present]),
                "drfh",
            ).dominant_shares_i.min()
        )
        for users in (1, 2, 3)
    ]


def _compare_figure_5(table: Sequence[_SharesAt], last_of_first: int, exact: Sequence[float]) -> list[Comparison]:
    def find(user: str, phase: int) -> list[_SharesAt]:
        first, last = PHASES[phase]
        return [row for row in table if row.user == user and first <= row.time <= last]

    dominant = [
        [fmean(row.dominant_share for row in find(user, phase)) for user in list(USERS)[: phase + 1]]
        for phase in range(3)
    ]
    alone = find("user-1", 0)
    tasks = (
        "other servers of nearly the same totals. Exact DRFH is of divisible tasks, and no whole task of 0.3 memory "
        "uses the other 0.2 of a server of 0.5; the printed shares seem to be those of whole tasks, too"
    )
    return [
        Comparison(
            "user 1 alone: 40 % of the cpu, 62 % of the memory",
            f"{fmean(row.cpu_share for row in alone):.1%} and {fmean(row.memory_share for row in alone):.1%}",
            "follows from how many servers of each kind there are; of the printed draw only the totals are known",
        ),
        Comparison("users 1 and 2: 44 % each", f"{_list(dominant[1])}; exact DRFH here: {exact[1]:.1%}", tasks),
        Comparison("all three: 26 % each", f"{_list(dominant[2])}; exact DRFH here: {exact[2]:.1%}", tasks),
        Comparison(
            "user 1 leaves at 1080 s",
            f"{last_of_first / NANOSECONDS:.0f} s",
            "its work is what the printed shares let it do by then; the last tasks run longer than the mean",
        ),
    ]


def _compare_claim(servers: Sequence[int], total_r: Sequence[float], exact: Sequence[float]) -> Comparison:
    """Compare the least share of each phase with exact DRFH, for the printed tasks and for small ones."""
    printed, divided = (
        [_fill(servers, total_r, users, parts) / share for users, share in enumerate(exact, start=1)]
        for parts in (1, SMALL)
    )
    return Comparison(
        "Best-Fit DRFH precisely achieves the DRFH allocation at all times (section 6.1)",
        f"one, two and three users who fill the empty cluster, the least share in parts of exact DRFH: "
        f"{_list(printed)}; with tasks a {SMALL}th of the printed ones: {_list(divided)}",
        "the printed tasks are as large as servers, so no whole tasks reach the optimum of divisible ones",
        "agrees" if min(printed) > PRECISE else "contradicts",
    )


def _list(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:.1%}" for share in shares)


def reproduce_figure_6(lab: Lab) -> Outcome:
    """Utilisation over the day."""
    day = make_day(lab)
    times = make_times(day, 288 if lab.is_full else 60)
    runs = get_runs(lab)
    uses = {policy: compute_use(day, rows, times) for policy, rows in runs.items()}
    means = {policy: compute_mean_use(day, rows) for policy, rows in runs.items()}
    said = "; ".join(f"{policy} {cpu:.1%} and {memory:.1%}" for policy, (cpu, memory) in means.items())
    best, first = (uses[policy] for policy in ("best-fit-drfh", "first-fit-drfh"))
    return Outcome(
        "drfh-figure-6",
        "Time series of cpu and memory utilisation",
        describe(lab),
        ("policy", "time", "cpu_utilisation", "memory_utilisation"),
        [
            (policy, time, cpu, memory)
            for policy, use in uses.items()
            for time, (cpu, memory) in zip(times.tolist(), use.tolist(), strict=True)
        ],
        [
            Panel(
                "steps",
                "Time (min)",
                name,
                [Series(policy, (times / 60).tolist(), use[:, place].tolist()) for policy, use in uses.items()],
            )
            for place, name in enumerate(("CPU utilisation", "Memory utilisation"))
        ],
        [
            Comparison(
                "both forms of DRFH use much more than slots",
                f"means of cpu and memory: {said}",
                WORKLOAD,
            ),
            Comparison(
                "Best-Fit uses more than First-Fit at all times",
                f"it uses at least as much cpu at {np.mean(best[:, 0] >= first[:, 0]):.0%} of the times and memory at "
                f"{np.mean(best[:, 1] >= first[:, 1]):.0%}",
                "once tasks wait, which of the two is ahead at an instant depends on which tasks happen to run",
            ),
        ],
    )


def _compute_completion_times(day: Day, rows: Sequence[TaskRow]) -> dict[int, float]:
    """Return how long jobs of which all tasks ended took, by their number; seconds."""
    last: dict[int, float] = {}
    open_jobs = set[int]()
    for row in rows:
        number = find_job(row)
        if row.end is None:
            open_jobs.add(number)
        else:
            last[number] = max(last.get(number, 0.0), row.end / NANOSECONDS)
    return {number: end - day.jobs[number].arrival for number, end in last.items() if number not in open_jobs}


def reproduce_figure_7(lab: Lab) -> Outcome:
    """Completion times of jobs, by their size."""
    day = make_day(lab)
    taken = {policy: _compute_completion_times(day, rows) for policy, rows in get_runs(lab).items()}
    common = sorted(set.intersection(*(set(times) for times in taken.values())))
    groups: dict[str, list[int]] = defaultdict(list)
    for number in common:
        low, high = next(size for size in SIZES if size[0] <= day.jobs[number].tasks <= size[1])
        groups[str(low) if low == high else f"{low}-{high}" if high < SIZES[-1][1] else f">{low - 1}"].append(number)
    names = [name for name in ("1", "2-5", "6-20", "21-100", ">100") if name in groups]
    reduction = {name: 1 - _mean(taken[BEST], groups[name]) / _mean(taken[SLOTS], groups[name]) for name in names}
    parts = [(place + 1) / len(common) for place in range(len(common))]
    return Outcome(
        "drfh-figure-7",
        "Job completion times",
        f"{describe(lab)} Jobs of which all tasks ended under every policy: {len(common):,}.",
        ("policy", "job_size", "completion_seconds"),
        [(policy, day.jobs[number].tasks, times[number]) for policy, times in taken.items() for number in common],
        [
            Panel(
                "steps",
                "Job completion time (s)",
                "CDF",
                [Series(policy, sorted(times[number] for number in common), parts) for policy, times in taken.items()],
                "(a)",
                has_log_x=True,
            ),
            Panel(
                "bars",
                "Job size (tasks)",
                "Completion time reduction",
                [Series("Best-Fit over slots", names, [reduction[name] for name in names])],
                "(b)",
            ),
        ],
        [
            Comparison(
                "no improvement over slots for small jobs; the larger the job, the larger the improvement",
                "mean time is shorter by "
                + ", ".join(f"{reduction[name]:.0%} ({name} tasks, {len(groups[name])} jobs)" for name in names),
                f"{WORKLOAD}; with more work than the cluster can do, small jobs wait under slots, too",
            )
        ],
    )


def _mean(taken: Mapping[int, float], numbers: Sequence[int]) -> float:
    return fmean(taken[number] for number in numbers)


def reproduce_figure_8(lab: Lab) -> Outcome:
    """Parts of their tasks that users complete."""
    found = {policy: compute_completion(rows) for policy, rows in get_runs(lab).items()}
    users = sorted(found[BEST], key=lambda user: int(user.split("-")[1]))
    ratio = {policy: {user: ended / of for user, (ended, of) in each.items()} for policy, each in found.items()}
    better = fmean(ratio[BEST][user] >= ratio[SLOTS][user] for user in users)
    only = fmean(ratio[BEST][user] == 1 > ratio[SLOTS][user] for user in users)
    return Outcome(
        "drfh-figure-8",
        "Task completion ratio of users",
        describe(lab),
        ("policy", "user", "completion_ratio"),
        [(policy, user, each[user]) for policy, each in ratio.items() for user in users],
        [
            Panel(
                "circles",
                "Task completion ratio with slots",
                "with Best-Fit DRFH",
                [
                    Series(
                        "users",
                        [ratio[SLOTS][user] for user in users],
                        [ratio[BEST][user] for user in users],
                        [math.log(1 + found[BEST][user][1]) for user in users],
                    )
                ],
            )
        ],
        [
            Comparison(
                "almost all users complete more with Best-Fit",
                f"{better:.0%} of {len(users)} users complete at least as much",
                WORKLOAD,
            ),
            Comparison(
                "about 20 % of users complete all tasks with Best-Fit and not with slots", f"{only:.0%}", WORKLOAD
            ),
        ],
    )


def reproduce_figure_9(lab: Lab) -> Outcome:
    """DRFH against clusters of users' own."""
    day = make_day(lab)
    shared = compute_completion(get_rows(lab, BEST))
    users = sorted(shared, key=lambda user: int(user.split("-")[1]))
    alone = {user: _get_alone(lab, day, user, place, len(users)) for place, user in enumerate(users)}
    rows = [(user, shared[user][1], shared[user][0] / shared[user][1], alone[user]) for user in users]
    worse = fmean(row[2] < row[3] for row in rows)
    loss = max(row[3] - row[2] for row in rows)
    return Outcome(
        "drfh-figure-9",
        "Task completion ratio with DRFH and in dedicated clouds",
        f"{describe(lab)} A dedicated cloud: as many of the servers, drawn at random, as every user's equal part of "
        "their number is, rounded up, with Best-Fit.",
        ("user", "tasks", "drfh_completion_ratio", "dedicated_completion_ratio"),
        rows,
        [
            Panel(
                "circles",
                "Task completion ratio in a dedicated cloud",
                "with DRFH",
                [
                    Series(
                        "users",
                        [row[3] for row in rows],
                        [row[2] for row in rows],
                        [math.log(1 + row[1]) for row in rows],
                    )
                ],
            )
        ],
        [
            Comparison(
                "2 % of users complete fewer tasks with DRFH, and only slightly fewer",
                f"{worse:.0%} of {len(rows)} users, at most {max(loss, 0.0):.1%} of their tasks fewer",
                f"{WORKLOAD}; of a user with few tasks, one is a large part",
            )
        ],
    )


def _get_alone(lab: Lab, day: Day, user: str, place: int, users: int) -> float:
    return lab.remember(("alone", user), lambda: _run_alone(day, user, place, users))


def _run_alone(day: Day, user: str, place: int, users: int) -> float:
    own: dict[int, Job] = {number: job for number, job in enumerate(day.jobs) if job.user == user}
    generator = np.random.default_rng((SEED, place))
    kinds = np.repeat(np.arange(len(SERVERS)), day.servers)
    chosen = generator.choice(kinds, math.ceil(len(kinds) / users), replace=False)
    servers = np.bincount(chosen, minlength=len(SERVERS)).tolist()
    ended, submitted = compute_completion(run(Day(servers, day.seconds, day.jobs), BEST, jobs=own))[user]
    return ended / submitted
