"""The example of the DRF paper, sections 4 and 5: figures 3 and 4 by the exact library, table 1 by one cycle.

Everything is printed. The paper's measurements are not done again: those of sections 2 and 7 stand on a trace of
Facebook's that was not published. `drf_properties` has section 6.1.

Source: Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica, "Dominant Resource Fairness: Fair Allocation of Multiple
Resource Types", NSDI 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairbind.fairness.problems.problem import FloatArray
from fairbind.model import Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant
from fairbind.scheduling.cycle.traced import trace_decisions
from fairbind.simulator.reproduction.drf_divisions import (
    Division,
    divide,
    list_columns,
    write_numbers,
)
from fairbind.simulator.reproduction.judging import AGREE, DIFFER, judge
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series, Value

POOL: Final = (9, 18)
DEMANDS: Final = ((1, 4), (3, 1))
"""Section 4.1: cores and GB of the pool, and of a task of A and of B."""
RESOURCES: Final = ("cpu", "memory")
USERS: Final = ("A", "B")
MECHANISMS: Final = {"drf": "DRF", "asset-fairness": "Asset fairness", "ceei": "CEEI"}
TASKS_WAITING: Final = 9
"""Of each user for table 1, more than fit."""

PRINTED_TASKS: Final = {"drf": (3.0, 2.0), "asset-fairness": (2.52, 2.16), "ceei": (45 / 11, 18 / 11)}
PRINTED_HELD: Final = {
    "drf": ((3.0, 12.0), (6.0, 2.0)),
    "asset-fairness": ((2.5, 10.1), (6.5, 2.2)),
    "ceei": ((4.1, 16.4), (4.9, 1.6)),
}
"""Sections 4.1, 5.1 and 5.2, of A and of B; cores and GB to one digit."""
ONE_DIGIT: Final = 0.05
PRINTED_TRACE: Final = "BAABA"
PRINTED_USE: Final = ((3, 1), (4, 5), (5, 9), (8, 10), (9, 14))
"""Table 1: who is next, and cores and GB in use then."""
_EXAMPLE: Final = (
    "9 CPUs and 18 GB; a task of A needs 1 CPU and 4 GB, one of B 3 CPUs and 1 GB; equal weights, more tasks than fit."
)
_COLUMNS: Final = (*list_columns(RESOURCES), "paper_tasks", "paper_cpu", "paper_memory")


def divide_example(mechanism: str) -> Division:
    """Return the example of section 4.1 by a mechanism."""
    return divide(mechanism, POOL, DEMANDS, resources=RESOURCES, users=USERS)


def _list_rows(mechanism: str, found: Division) -> list[tuple[Value, ...]]:
    return [
        (*row, tasks, *held)
        for row, tasks, held in zip(found.list_rows(), PRINTED_TASKS[mechanism], PRINTED_HELD[mechanism], strict=True)
    ]


def reproduce_figure_3(_: Lab) -> Outcome:
    """The example by DRF."""
    found = divide_example("drf")
    dominant_i, used_r = found.part_ir.max(axis=1), found.part_ir.sum(axis=0)
    return Outcome(
        "drf-figure-3",
        "Allocation of the example by DRF",
        f"Section 4.1 as printed: {_EXAMPLE} Divisible tasks.",
        _COLUMNS,
        _list_rows("drf", found),
        [found.draw()],
        [
            Comparison(
                "A has 3 tasks with (3, 12), B has 2 with (6, 2)",
                f"{write_numbers(found.tasks_i)} tasks with {write_numbers(found.held_ir)}",
                judge(PRINTED_HELD["drf"], found.held_ir),
            ),
            Comparison(
                "A has 2/3 of the memory, B has 2/3 of the cpu",
                f"dominant shares {write_numbers(dominant_i)}",
                judge((2 / 3, 2 / 3), dominant_i),
            ),
            Comparison(
                "in use: all of the cpu, 14/18 of the memory", write_numbers(used_r), judge((1, 14 / 18), used_r)
            ),
        ],
    )


def reproduce_figure_4(_: Lab) -> Outcome:
    """The example by DRF, asset fairness and CEEI."""
    found = {mechanism: divide_example(mechanism) for mechanism in MECHANISMS}
    said = {
        "drf": "DRF: x = 3, y = 2; (3, 12), (6, 2)",
        "asset-fairness": "asset fairness (5.1): x = 2.52, y = 2.16; (2.5, 10.1), (6.5, 2.2)",
        "ceei": "CEEI (5.2): x = 45/11, y = 18/11; (4.1, 16.4), (4.9, 1.6)",
    }
    comparisons = []
    for mechanism, each in found.items():
        x, y = each.tasks_i
        near = (
            judge(PRINTED_TASKS[mechanism], each.tasks_i),
            judge(PRINTED_HELD[mechanism], each.held_ir, by=ONE_DIGIT),
        )
        ours = f"{write_numbers(each.tasks_i)}, that is x = {x:.4g}, y = {y:.4g}; {write_numbers(each.held_ir)}"
        comparisons.append(Comparison(said[mechanism], ours, DIFFER if DIFFER in near else AGREE))
    return Outcome(
        "drf-figure-4",
        "Allocations of the example by DRF, asset fairness and CEEI",
        f"Sections 4.1, 5.1 and 5.2 as printed: {_EXAMPLE} Divisible tasks; the paper rounds amounts to one digit.",
        ("mechanism", *_COLUMNS),
        [(mechanism, *row) for mechanism, each in found.items() for row in _list_rows(mechanism, each)],
        [each.draw(MECHANISMS[mechanism]) for mechanism, each in found.items()],
        comparisons,
    )


def trace(first: str) -> list[str]:
    """Return who is next in each decision about whole tasks, until none fits. first: of A and B, at equal shares.

    Names order equal shares, so the tenants are named in that order.
    """
    capacity_kr = np.array([POOL], dtype=np.int64)
    is_open_k = np.ones(1, dtype=np.bool_)
    servers = ServerTable(("pool",), capacity_kr, capacity_kr.copy(), is_open_k, np.zeros(1, dtype=np.int32), ("pool",))
    tenants = {f"{int(user != first)}-{user}": demand for user, demand in zip(USERS, DEMANDS, strict=True)}
    snapshot = Snapshot(
        RESOURCES,
        (True, True),
        POOL,
        servers,
        tuple(map(Tenant, sorted(tenants))),
        tuple(
            TaskClass(name, demand, demand, Placement(is_open_k.copy()), _make_tasks(name))
            for name, demand in tenants.items()
        ),
    )
    decisions = trace_decisions(snapshot, PolicySettings("first-fit-drfh"), 2 * TASKS_WAITING)
    return [decision.bind.tenant[-1] for decision in decisions]


def _make_tasks(name: str) -> tuple[Task, ...]:
    return tuple(Task(f"{name}-{place}", f"{name}-{place}", 0, 0.0) for place in range(TASKS_WAITING))


def _follow(users: Sequence[str]) -> list[FloatArray]:
    """Return A's and B's parts of the resources before the first decision and after each, of shape (2, R)."""
    demand_ir = np.array(DEMANDS, dtype=np.float64)
    held_ir: FloatArray = np.zeros(demand_ir.shape)
    course = [held_ir]
    for user in users:
        held_ir = held_ir.copy()
        held_ir[USERS.index(user)] += demand_ir[USERS.index(user)]
        course.append(held_ir)
    return [each / POOL for each in course]


def reproduce_table_1(_: Lab) -> Outcome:
    """The decisions about whole tasks of the example."""
    traces = {first: trace(first) for first in reversed(USERS)}
    courses = {first: _follow(users) for first, users in traces.items()}
    printed = [(cpu / POOL[0], memory / POOL[1]) for cpu, memory in PRINTED_USE]
    rows: list[tuple[Value, ...]] = []
    for first, users in traces.items():
        for place, (user, part_ir) in enumerate(zip(users, courses[first][1:], strict=True)):
            parts = [value for each in part_ir.tolist() for value in (*each, max(each))]
            is_paper = first == PRINTED_TRACE[0] and place < len(PRINTED_TRACE)
            paper = (PRINTED_TRACE[place], *printed[place]) if is_paper else ("", "", "")
            rows.append((first, place + 1, user, *parts, *part_ir.sum(axis=0).tolist(), *paper))
    ours = traces[PRINTED_TRACE[0]]
    used = [part_ir.sum(axis=0) for part_ir in courses[PRINTED_TRACE[0]][1:]]
    is_same = ours == list(PRINTED_TRACE)
    by_name = traces[USERS[0]]
    return Outcome(
        "drf-table-1",
        "Decisions about whole tasks of the example",
        f"Section 4.2 as printed: {_EXAMPLE} Decided by policy first-fit-drfh on one server. Before the first decision "
        "shares are equal: there the paper takes B first, and fairbind the first name, so both are shown.",
        (
            "first", "decision", "user", "a_cpu", "a_memory", "a_dominant", "b_cpu", "b_memory", "b_dominant",
            "cpu", "memory", "paper_user", "paper_cpu", "paper_memory",
        ),
        rows,
        [_draw_course(first, course) for first, course in courses.items()],
        [
            Comparison(" ".join(PRINTED_TRACE), " ".join(ours), AGREE if is_same else DIFFER),
            Comparison(
                "in use after each: 3/9, 4/9, 5/9, 8/9, 1 of the cpu; 1/18, 5/18, 9/18, 10/18, 14/18 of the memory",
                write_numbers(np.transpose(used)),
                judge(printed, used) if is_same else DIFFER,
            ),
            Comparison(
                "3 tasks of A and 2 of B at the end",
                f"{ours.count('A')} and {ours.count('B')}; with A first {' '.join(by_name)}",
                AGREE if sorted(ours) == sorted(by_name) == sorted(PRINTED_TRACE) else DIFFER,
            ),
        ],
    )  # fmt: skip


def _draw_course(first: str, course: Sequence[FloatArray]) -> Panel:
    series = [
        Series(user, list(range(len(course))), [float(part_ir[place].max()) for part_ir in course])
        for place, user in enumerate(USERS)
    ]
    return Panel("lines", "Decision", "Dominant share", series, f"{first} first at equal shares")
