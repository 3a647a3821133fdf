"""Algorithm 1 of the note on dynamic DRF beside fairbind's, and its example of section 4 against a ratio of sums.

Source: Li, Liu, Zhang, Zhang, "A note on dynamic fair division of multiple resources", 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from fairbind.fairness import compute_allocation, make_problem
from fairbind.fairness.mechanisms.dynamic_drf import compute_arrivals
from fairbind.fairness.problems.problem import FloatArray
from fairbind.simulator.reproduction.dynamic_drf import (
    EPSILON,
    RESOURCES,
    SEED,
    compute_growth,
    draw_demands,
    draw_times,
    make_instance,
)
from fairbind.simulator.reproduction.judging import AGREE, DIFFER
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series

TIMINGS: Final = 9
"""The least of so many is told."""
CLOSE: Final = 1e-9


def solve_by_bisection(demand_ir: FloatArray, *, line_6_as_printed: bool = False) -> list[FloatArray]:
    """Return the dominant shares after each step, by Algorithm 1 of the note line by line; shape (n,) each.

    demand_ir: positive, the largest of each agent 1; agents arrive in this order. line_6_as_printed: test there whether
    all shares so far fit, which they always do, in place of whether all agents can be raised to the first one's share.
    Agents are counted from 1, as there.
    """
    n = len(demand_ir)
    d = np.vstack([np.zeros(demand_ir.shape[1]), demand_ir])
    x = np.zeros(n + 1)
    x[1] = 1 / n
    answers = [x[1:].copy()]
    for k in range(2, n + 1):
        raised = x[1 : k + 1] if line_6_as_printed else x[1]
        if ((d[1 : k + 1] * np.reshape(raised, (-1, 1))).sum(axis=0) <= k / n).all():
            alpha, beta = np.zeros(d.shape[1]), d[1 : k + 1].sum(axis=0)
        else:
            low, high = 1, k
            tau = -(-(low + high) // 2)
            alpha, beta = (d[1:tau] * x[1:tau, None]).sum(axis=0), d[tau : k + 1].sum(axis=0)
            while high - low > 1:
                if (alpha + beta * x[tau] <= k / n).all():
                    high, tau = tau, -(-(low + tau) // 2)
                    alpha -= (d[tau:high] * x[tau:high, None]).sum(axis=0)
                    beta += d[tau:high].sum(axis=0)
                else:
                    low, tau = tau, -(-(tau + high) // 2)
                    alpha += (d[low:tau] * x[low:tau, None]).sum(axis=0)
                    beta -= d[low:tau].sum(axis=0)
        x[1 : k + 1] = np.maximum(x[1 : k + 1], ((k / n - alpha) / beta).min())
        answers.append(x[1:].copy())
    return answers


def _compute_excess(demand_ir: FloatArray, answers: list[FloatArray]) -> float:
    """Return the largest part that is in use above k / n after a step, over all steps and resources."""
    entitled_k = np.arange(1, len(answers) + 1) / len(answers)
    return float((np.array(answers) @ demand_ir / entitled_k[:, None]).max()) - 1


def _time(lab: Lab, run: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(TIMINGS):
        began = lab.clock()
        run()
        least = min(least, lab.clock() - began)
    return least


def _measure(lab: Lab, agents: int) -> tuple[int, float, float, float, float, float]:
    """Return (agents, seconds of fairbind's, seconds of Algorithm 1, their difference, excess, excess as printed)."""
    demand_ir = draw_demands(agents)
    instance = make_instance(demand_ir)
    answers = solve_by_bisection(demand_ir)
    arrivals = compute_arrivals(instance)
    return (
        agents,
        _time(lab, partial(compute_arrivals, instance)),
        _time(lab, partial(solve_by_bisection, demand_ir)),
        max(float(np.abs(arrivals.compute_tasks(k) - each).max()) for k, each in enumerate(answers)),
        _compute_excess(demand_ir, answers),
        _compute_excess(demand_ir, solve_by_bisection(demand_ir, line_6_as_printed=True)),
    )


def reproduce_algorithm_1(lab: Lab) -> Outcome:
    """Algorithm 1 and fairbind's: the same shares after each step, and their times."""
    rows = [_measure(lab, agents) for agents in ((100, 200, 400, 800, 1_600) if lab.is_full else (10, 20, 40, 80))]
    apart, excess = (max(row[place] for row in rows) for place in (3, 4))
    worse = [row[5] for row in rows if row[5] > CLOSE]
    (first, *_), (last, ours, theirs, *_) = rows[0], rows[-1]
    growth = [compute_growth(rows, place) for place in (1, 2)]
    return Outcome(
        "dynamic-drf-algorithm-1",
        "Time of all steps by Algorithm 1 and by fairbind's",
        f"Agents with demands of {RESOURCES} resources drawn uniformly from 0.05 to 1 and divided by the largest, seed "
        f"{SEED}. Algorithm 1 line by line in numpy; the least of {TIMINGS} times of one machine. The figure is ours.",
        ("agents", "fairbind_seconds", "bisection_seconds", "largest_difference", "excess", "excess_as_printed"),
        rows,
        [draw_times(("fairbind", "Algorithm 1, by bisection"), rows)],
        [
            Comparison(
                "Algorithm 1 finds a dynamic DRF solution",
                f"after each step the same shares as by fairbind, which differ by at most {apart:.1g}",
                AGREE if apart < CLOSE else DIFFER,
            ),
            Comparison(
                "a step takes time linear in the agents that are there",
                f"{last} agents: {theirs:.2g} s for all steps, fairbind {ours:.2g} s; from {first} agents on the time "
                f"grows with the power {growth[1]:.1f} of their number, and {growth[0]:.1f}",
                "n steps of linear time grow with the power 2 at most; fairbind keeps agents of equal level in blocks, "
                "so a step takes constant time in the mean",
            ),
            Comparison(
                "line 6 asks whether the sum of d_ir x_i after step k - 1 is at most k / n",
                f"so done, up to {max(worse, default=0.0):.0%} more than k / n is in use after a step, in {len(worse)} "
                f"of {len(rows)} cases; at most {max(excess, 0.0):.1g} more with x_1 in place of x_i, as all else here",
                "a misprint: the sum is at most (k - 1) / n, so it always holds. What must be asked is whether all "
                "can be raised to the first one's share",
            ),
        ],
    )


def _list_sums(resources: int) -> tuple[int, float, float, float, float, float, float, float, float]:
    demand_ir = np.full((resources + 1, resources), EPSILON)
    demand_ir[np.arange(resources), np.arange(resources)] = demand_ir[resources] = 1.0
    share_i = compute_arrivals(make_instance(demand_ir)).compute_tasks(resources)
    drf_i = compute_allocation(make_problem([np.ones(resources)], demand_ir), "drf").dominant_shares_i
    return (
        resources,
        float(share_i[0]),
        float(share_i[resources]),
        float(drf_i[0]),
        float(share_i.sum()),
        float(drf_i.sum()),
        (resources**2 + 1) / (resources + 1),
        (resources + 1) / 2,
        float(share_i.sum() / drf_i.sum()),
    )


def reproduce_sums(lab: Lab) -> Outcome:
    """Section 4's example, on which the sum of dominant shares is larger than DRF's."""
    rows = [_list_sums(resources) for resources in range(2, 21 if lab.is_full else 9)]
    names, first, last, drf, sums, drf_sums, limits, drf_limits, ratios = map(list, zip(*rows, strict=True))
    larger = sum(ratio > 1 for ratio in ratios)
    return Outcome(
        "dynamic-drf-section-4",
        "Sum of dominant shares of dynamic DRF and DRF",
        f"The example of section 4: of n = m + 1 agents the first m need one resource each and {EPSILON:g} of the "
        "others, the last needs all; after step n. The figure is ours.",
        (
            "resources",
            "first_share",
            "last_share",
            "drf_share",
            "sum",
            "drf_sum",
            "limit_of_sum",
            "limit_of_drf_sum",
            "ratio",
        ),
        rows,
        [
            Panel(
                "lines",
                "Resources m",
                "Sum of dominant shares",
                [
                    Series("dynamic DRF", names, sums),
                    Series("DRF", names, drf_sums),
                    Series("(m² + 1) / (m + 1)", names, limits),
                    Series("(m + 1) / 2", names, drf_limits),
                ],
            )
        ],
        [
            _compare("x_1 to x_m tend to m / (m + 1)", names, first, [m / (m + 1) for m in names]),
            _compare("this is m times x_n, which tends to 1 / (m + 1)", names, last, [1 / (m + 1) for m in names]),
            _compare("DRF's shares tend to 1/2", names, drf, [0.5] * len(names)),
            _compare("the sum tends to (m² + 1) / (m + 1)", names, sums, limits),
            _compare("DRF's sum tends to (m + 1) / 2", names, drf_sums, drf_limits),
            Comparison(
                "the sum is larger than DRF's from m = 2 on, so the ratio of sums CR1 is unreasonable",
                f"for {larger} of {len(names)} m; {ratios[0]:.3f} times as large for m = {names[0]}, {ratios[-1]:.3f} "
                f"times for m = {names[-1]}",
                AGREE if larger == len(rows) else DIFFER,
            ),
        ],
    )


def _compare(says: str, sizes: Sequence[int], ours: Sequence[float], limits: Sequence[float]) -> Comparison:
    """Return how far ours are from the limits: sums of m shares may be as far as m * m vanishing demands."""
    gaps = [abs(each - limit) for each, limit in zip(ours, limits, strict=True)]
    is_near = all(gap <= m * m * EPSILON for m, gap in zip(sizes, gaps, strict=True))
    return Comparison(
        says,
        f"{ours[0]:.4f} for m = {sizes[0]}, {ours[-1]:.4f} for m = {sizes[-1]}; at most {max(gaps):.1g} away",
        f"{AGREE}; the rest is the demand of {EPSILON:g}, which vanishes in the note" if is_near else DIFFER,
    )
