"""Removes negligible tasks from an answer: those that are negligible both to the tenant and to the server.

A solver with a tolerance of 1e-10 leaves a billionth of a task where there should be none, and the answer then lists
servers that the tenant does not use. Both conditions are needed: tasks that are few for the tenant can fill a small
server, and tasks that take little of the server can be all that a small tenant gets.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray

NEGLIGIBLE = 1e-9  # of the group's tasks, and of what the class could run


def drop_negligible(instance: Instance, tasks_ik: FloatArray) -> FloatArray:
    """Return the tasks without the negligible ones; the same array object if there are none.

    >>> from fairbind.fairness.problems.instance import reduce_problem
    >>> from fairbind.fairness.problems.problem import make_problem
    >>> drop_negligible(reduce_problem(make_problem([[1], [9]], [[1]])), np.array([[1e-12, 9]])).tolist()
    [[0.0, 9.0]]
    """
    least_ik = NEGLIGIBLE * np.minimum(tasks_ik.sum(axis=1)[:, None], instance.gamma_ik)
    is_negligible_ik = (tasks_ik > 0) & (tasks_ik < least_ik)
    return np.where(is_negligible_ik, 0.0, tasks_ik) if is_negligible_ik.any() else tasks_ik
