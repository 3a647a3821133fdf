"""The claims of the note on dynamic DRF: a step takes linear time, and how far it may be from DRF.

The note has no numbers of an experiment. Its linear time (theorem 1) is timed here against its own linear program (1),
solved by HiGHS; the ratio of theorem 2 is computed on its own family of instances. `dynamic_drf_steps` has Algorithm 1
and the example of section 4.

Source: Li, Liu, Zhang, Zhang, "A note on dynamic fair division of multiple resources", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairbind.fairness.mechanisms.dynamic_drf import compute_arrivals
from fairbind.fairness.problems.instance import Instance, reduce_problem
from fairbind.fairness.problems.problem import FloatArray, make_problem
from fairbind.fairness.solvers.highs import make_silent_highs
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series

SEED: Final = 2019
RESOURCES: Final = 3
EPSILON: Final = 1e-6
"""The note's vanishing demand."""


def make_instance(demand_ir: FloatArray) -> Instance:
    """Return agents of one pool that arrive in this order."""
    return reduce_problem(make_problem(np.ones((1, demand_ir.shape[1])), demand_ir), merges_tenants=False)


def draw_demands(agents: int) -> FloatArray:
    """Return demands of which each agent's largest is 1, shape (agents, RESOURCES)."""
    drawn_ir = np.random.default_rng((SEED, agents)).uniform(0.05, 1.0, (agents, RESOURCES))
    demand_ir: FloatArray = drawn_ir / drawn_ir.max(axis=1, keepdims=True)
    return demand_ir


def draw_times(names: Sequence[str], rows: Sequence[Sequence[float]]) -> Panel:
    """Return a picture of times. names: of the columns after the first of the rows, which has the agents."""
    agents = [row[0] for row in rows]
    series = [Series(name, agents, [row[place] for row in rows]) for place, name in enumerate(names, 1)]
    return Panel("lines", "Agents", "Seconds", series, has_log_x=True, has_log_y=True)


def compute_growth(rows: Sequence[Sequence[float]], place: int) -> float:
    """Return with which power of the agents, the first column, another one grows from the first row to the last."""
    first, last = rows[0], rows[-1]
    return float(np.log(last[place] / first[place]) / np.log(last[0] / first[0]))


def reproduce_times(lab: Lab) -> Outcome:
    """Time of all steps, by the linear algorithm and by linear programs."""
    sizes = (25, 50, 100, 200, 400, 800) if lab.is_full else (10, 20, 40, 80)
    rows = []
    worst = 0.0
    solve_by_programs(np.ones((2, RESOURCES)))  # what the first call loads is not timed
    for agents in sizes:
        demand_ir = draw_demands(agents)
        instance = make_instance(demand_ir)
        began = lab.clock()
        linear_i = compute_arrivals(instance).compute_tasks(agents - 1)
        middle = lab.clock()
        program_i = solve_by_programs(demand_ir)
        ended = lab.clock()
        worst = max(worst, float(np.abs(linear_i - program_i).max()))
        rows.append((agents, middle - began, ended - middle))
    (first, *_), (last, quick, slow) = rows[0], rows[-1]
    growth = [compute_growth(rows, place) for place in (1, 2)]
    return Outcome(
        "dynamic-drf-figure-1",
        "Time of all steps until the last agent has arrived",
        f"Agents with demands of {RESOURCES} resources drawn uniformly from 0.05 to 1 and divided by the largest, seed "
        f"{SEED}; each step's program (1) is solved by HiGHS. The note prints no times; the figure is ours.",
        ("agents", "linear_seconds", "lp_seconds"),
        rows,
        [draw_times(("linear algorithm", "linear programs"), rows)],
        [
            Comparison(
                "a step takes time linear in the agents that are there, where program (1) takes much longer",
                f"{last} agents: {quick:.2g} s against {slow:.2g} s for all steps; from {first} agents on the time "
                f"grows with the power {growth[0]:.1f} against {growth[1]:.1f} of their number; the answers differ by "
                f"at most {worst:.1g}",
                "fairbind keeps agents of equal level in blocks, so a step takes constant time in the mean; times are "
                "those of one run on one machine",
            )
        ],
    )


def solve_by_programs(demand_ir: FloatArray) -> FloatArray:
    """Return the dominant shares after the last of n steps, by program (1) and lemma 1 of the note; shape (n,).

    demand_ir: positive, the largest of each agent 1; agents arrive in this order.
    """
    agents, resources = demand_ir.shape
    share_i: FloatArray = np.zeros(agents)
    for present in range(1, agents + 1):
        solver = make_silent_highs()
        level = solver.addVariable(lb=0.0, obj=-1.0)
        taken = [solver.addVariable(lb=float(share)) for share in share_i[:present]]
        for share in taken:
            solver.addConstr(share >= level)
        for resource in range(resources):
            used = solver.qsum(
                [share * float(demand) for share, demand in zip(taken, demand_ir[:present, resource], strict=True)]
            )
            solver.addConstr(used <= present / agents)
        solver.run()
        share_i[:present] = np.maximum(share_i[:present], solver.getSolution().col_value[0])
    return share_i


def reproduce_ratio(lab: Lab) -> Outcome:
    """The competitive ratio of theorem 2, over the number of resources."""
    rows = []
    for resources in range(2, 21 if lab.is_full else 9):
        agents = resources * resources + 1
        demand_ir = np.full((agents, resources), EPSILON)
        demand_ir[np.arange(agents), np.arange(agents) % resources] = 1.0
        arrivals = compute_arrivals(make_instance(demand_ir))
        ratio = 1.0
        for step in range(agents):
            least = float(arrivals.compute_tasks(step)[: step + 1].min())
            drf = (step + 1) / agents / float(demand_ir[: step + 1].sum(axis=0).max())
            ratio = min(ratio, least / drf)
        rows.append((resources, ratio, 1 / resources, (resources + 1) / (resources**2 + 1)))
    names = [row[0] for row in rows]
    gap = max(abs(row[1] - row[3]) for row in rows)
    between = sum(row[2] <= row[1] <= row[3] * (1 + RESOURCES * EPSILON * len(rows)) for row in rows)
    return Outcome(
        "dynamic-drf-figure-2",
        "Competitive ratio of dynamic DRF for the least dominant share",
        f"The instances of theorem 2: m * m + 1 agents, each of which needs one resource and {EPSILON:g} of the "
        "others; the least ratio over all steps. The figure is ours.",
        ("resources", "ratio", "lower_bound", "upper_bound"),
        rows,
        [
            Panel(
                "lines",
                "Resources m",
                "Competitive ratio",
                [
                    Series("dynamic DRF", names, [row[1] for row in rows]),
                    Series("1 / m", names, [row[2] for row in rows]),
                    Series("(m + 1) / (m² + 1)", names, [row[3] for row in rows]),
                ],
            )
        ],
        [
            Comparison(
                "the ratio is at least 1 / m, and on these instances at most (m + 1) / (m² + 1)",
                f"between them for {between} of {len(rows)} m; at most {gap:.1g} from (m + 1) / (m² + 1)",
                f"they agree; the rest is the demand of {EPSILON:g}, which vanishes in the note",
            )
        ],
    )
