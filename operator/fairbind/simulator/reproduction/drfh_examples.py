"""The examples of the DRFH paper: figures 3 and 4, and proposition 4. Divisible tasks, by the exact library.

Source: Wang, Liang, Li, "Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems", TPDS 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fairbind.fairness import compute_allocation, make_problem
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.properties import PROPERTIES
from fairbind.fairness.properties.shares import compute_slice
from fairbind.fairness.solve import compute_dominant_shares
from fairbind.simulator.reproduction.judging import AGREE, DIFFER, judge
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series, Value

RESOURCES: Final = ("cpu", "memory")
USERS: Final = ("user 1", "user 2")
SERVERS: Final = ("server 1", "server 2")

FIGURE_2: Final = make_problem(
    [[2, 12], [12, 2]], [[0.2, 1], [1, 0.2]], resources=RESOURCES, server_names=SERVERS, tenant_names=USERS
)
"""A server with much memory and one with many CPUs, and a user for each."""
PROPOSITION_4: Final = make_problem(
    [[1, 2], [4, 3]], [[1, 1], [3, 2]], resources=RESOURCES, server_names=SERVERS, tenant_names=USERS
)

_SETTING = (
    "All of it is printed: server 1 has 2 CPUs and 12 GB, server 2 has 12 CPUs and 2 GB; a task of user 1 needs 0.2 "
    "CPU and 1 GB, one of user 2 needs 1 CPU and 0.2 GB. Divisible tasks, equal weights, as many tasks as fit."
)


def reproduce_figure_3(_: Lab) -> Outcome:
    """DRF on each server by itself."""
    return _reproduce_example(
        3,
        "DRF on each server by itself",
        "per-server-drf",
        [[5, 1], [1, 5]],
        "5 tasks of user 1 on server 1 and 1 on server 2; 1 and 5 of user 2; 6 each",
    )


def reproduce_figure_4(_: Lab) -> Outcome:
    """DRFH on the same servers."""
    outcome = _reproduce_example(
        4,
        "DRFH on the servers of figure 3",
        "drfh",
        [[10, 0], [0, 10]],
        "server 1 is user 1's and server 2 is user 2's, 10 tasks each",
    )
    shares = compute_allocation(FIGURE_2, "drfh").dominant_shares_i.tolist()
    share = Comparison("both have the global dominant share 5/7", _list(shares), judge([5 / 7, 5 / 7], shares))
    return replace(outcome, comparisons=[*outcome.comparisons, share])


def _reproduce_example(
    number: int, title: str, mechanism: str, printed_ik: Sequence[Sequence[float]], says: str
) -> Outcome:
    allocation = compute_allocation(FIGURE_2, mechanism)
    tasks_ik = allocation.tasks_ik
    rows: list[tuple[Value, ...]] = [
        (user, server, float(tasks_ik[i, k]), *(tasks_ik[i, k] * FIGURE_2.demand_ir[i]).tolist())
        for i, user in enumerate(USERS)
        for k, server in enumerate(SERVERS)
    ]
    ours = "; ".join(
        f"{user} {_list(tasks_ik[i].tolist())}, {tasks_ik[i].sum():.6g} in all" for i, user in enumerate(USERS)
    )
    return Outcome(
        f"drfh-figure-{number}",
        title,
        _SETTING,
        ("user", "server", "tasks", "cpu", "memory"),
        rows,
        [_draw_server(allocation, k) for k in range(len(SERVERS))],
        [Comparison(says, ours, judge(printed_ik, tasks_ik))],
    )


def _draw_server(allocation: Allocation, k: int) -> Panel:
    """Draw which part of each resource of a server each user has."""
    problem = allocation.problem
    part_ir = allocation.tasks_ik[:, [k]] * problem.demand_ir / problem.capacity_kr[k]
    return Panel(
        "bars",
        SERVERS[k],
        "Part in use",
        [Series(user, ["CPU", "memory"], part_ir[i].tolist()) for i, user in enumerate(USERS)],
    )


def reproduce_proposition_4(_: Lab) -> Outcome:
    """Show that DRFH can give a user less than its part of every server, though not than of every equal partition."""
    problem = PROPOSITION_4
    allocation = compute_allocation(problem, "drfh")
    slice_i = compute_slice(problem)
    share_i = compute_dominant_shares(problem, slice_i)
    strong, weak = (
        PROPERTIES[name].find(problem, "drfh", allocation) for name in ("sharing-incentive", "weak-sharing-incentive")
    )
    shares = allocation.dominant_shares_i.tolist()
    return Outcome(
        "drfh-proposition-4",
        "DRFH beside a half of every server",
        "All of it is printed: server 1 has 1 CPU and 2 GB, server 2 has 4 CPUs and 3 GB; a task of user 1 needs 1 CPU "
        "and 1 GB, one of user 2 needs 3 CPUs and 2 GB. Divisible tasks, equal weights, as many tasks as fit.",
        ("user", "allocation", "tasks", "dominant_share"),
        [
            (user, name, float(tasks_i[i]), float(shares_i[i]))
            for i, user in enumerate(USERS)
            for name, tasks_i, shares_i in (
                ("DRFH", allocation.totals_i, allocation.dominant_shares_i),
                ("half of every server", slice_i, share_i),
            )
        ],
        [
            Panel(
                "bars",
                "",
                "Global dominant share",
                [Series("DRFH", USERS, shares), Series("half of every server", USERS, share_i.tolist())],
            )
        ],
        [
            Comparison(
                "under DRFH both users have the global dominant share 12/25",
                _list(shares),
                judge([12 / 25, 12 / 25], shares),
            ),
            Comparison(
                "with a half of every server user 2 has 1/2, which is more",
                _list(share_i[1:].tolist()),
                judge([0.5], share_i[1:]),
            ),
            Comparison(
                "so DRFH has no sharing incentive in the strong sense (proposition 4)",
                "no witness" if strong is None else strong.text,
                AGREE if strong is not None else DIFFER,
            ),
            Comparison(
                "it has it in the weak sense: some equal partition is better for no user (proposition 5)",
                "such a partition is found" if weak is None else weak.text,
                AGREE if weak is None else DIFFER,
            ),
        ],
    )


def _list(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)
