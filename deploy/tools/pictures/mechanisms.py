"""What a mechanism gives each tenant beside other mechanisms, as bars against an even part of all servers.

A bar is as long as the tasks that the tenant runs, divided by those of an even part: its weight's part of every server
that it may use. At 100% sharing neither helps nor harms; a bar that ends before breaks the sharing incentive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import FloatArray, Problem
from pictures.svg import BLUE, GREEN, GREY, INK, ORANGE, PALE, WHITE, Picture, Point

COLOURS = (BLUE, ORANGE, GREEN)
LEFT, WIDTH, TOP = 190.0, 430.0, 92.0
BAR, BETWEEN = 20.0, 14.0
FEW_PARTS = 3.0
LABEL = 110.0


def compute_even_tasks(problem: Problem) -> FloatArray:
    """Return how many tasks each tenant runs on its weight's part of every server that it may use, shape (I,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        per_task_ikr = problem.capacity_kr[None] / problem.demand_ir[:, None]
    gamma_ik = np.where(problem.demand_ir[:, None] > 0, per_task_ikr, np.inf).min(axis=2)
    whole_i = (gamma_ik * problem.count_k * problem.eligible_ik).sum(axis=1)
    parts = problem.expected_tenants or problem.weight_i.sum()
    even_i: FloatArray = np.minimum(whole_i * problem.weight_i / parts, problem.tasks_i)
    return even_i


def draw_mechanisms(allocations: Sequence[Allocation]) -> str:
    """Return the picture; the first allocation is that of the page's own mechanism."""
    problem = allocations[0].problem
    even_i = compute_even_tasks(problem)
    longest = max(1.0, *(float((one.totals_i / even_i).max()) for one in allocations)) * 1.05
    group = len(allocations) * BAR + BETWEEN
    height = TOP + len(problem.tenant_names) * group + 30
    names = ", ".join(one.mechanism for one in allocations)
    picture = Picture(
        860, round(height), f"How much better off each tenant is than with servers split by weight: {names}"
    )
    picture.text((24, 30), "Tasks of each tenant, compared with servers split by weight", bold=True, size=15)
    picture.text(
        (24, 50), "100%: what its weight's part of each server that it may use would run. All may have more.", fill=GREY
    )
    _draw_scale(picture, longest, height - 30)
    labels: list[tuple[Point, str]] = []
    for i, tenant in enumerate(problem.tenant_names):
        top = TOP + i * group
        picture.text((24, top + len(allocations) * BAR / 2 + 4), tenant, bold=True)
        for number, one in enumerate(allocations):
            y = top + number * BAR
            tasks = float(one.totals_i[i])
            end = _place(tasks / float(even_i[i]), longest)
            picture.text((LEFT - 8, y + 13), one.mechanism, size=12, fill=GREY, anchor="end")
            picture.rect((LEFT, y + 2), (end - LEFT, BAR - 4), fill=COLOURS[number % len(COLOURS)])
            labels.append(((end + 6, y + 13), f"{tasks / float(even_i[i]):.0%} ({_count(tasks)} tasks)"))
    picture.line([(_place(1.0, longest), TOP - 14), (_place(1.0, longest), height - 30)], stroke=INK, dash="3 3")
    for at, words in labels:
        picture.rect((at[0] - 2, at[1] - 11), (LABEL, 14), fill=WHITE)
        picture.text(at, words, size=12)
    return picture.render()


def _count(tasks: float) -> str:
    """Return a number of tasks for people.

    >>> _count(53.3333), _count(6.0)
    ('53.3', '6')
    """
    return f"{tasks:.1f}".removesuffix(".0")


def _draw_scale(picture: Picture, longest: float, bottom: float) -> None:
    step = 0.5 if longest < FEW_PARTS else 1.0
    for number in range(int(longest / step) + 1):
        mark = number * step
        x = _place(mark, longest)
        picture.line([(x, TOP - 14), (x, bottom)], stroke=PALE)
        picture.text((x, TOP - 18), f"{mark:.0%}", size=11, fill=GREY, anchor="middle")


def _place(ratio: float, longest: float) -> float:
    return LEFT + WIDTH * ratio / longest
