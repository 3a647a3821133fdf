"""Take negligible tasks out of an answer: those that are nothing to the tenant and nothing to the server.

A solver that may miss by 1e-10 leaves a billionth of a task where there should be none, and an answer then says that a
tenant runs on servers that it does not run on. What is small for the tenant alone can be all that a small server has,
and what is small for the server alone can be all that a small tenant gets: both have to be.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray

NEGLIGIBLE = 1e-9  # of the group's tasks, and of what the class could run


def drop_negligible(instance: Instance, tasks_ik: FloatArray) -> FloatArray:
    """Return the tasks without the negligible ones; the very same array where there are none.

    >>> from fairbind.fairness.problems.instance import reduce_problem
    >>> from fairbind.fairness.problems.problem import make_problem
    >>> drop_negligible(reduce_problem(make_problem([[1], [9]], [[1]])), np.array([[1e-12, 9]])).tolist()
    [[0.0, 9.0]]
    """
    least_ik = NEGLIGIBLE * np.minimum(tasks_ik.sum(axis=1)[:, None], instance.gamma_ik)
    is_negligible_ik = (tasks_ik > 0) & (tasks_ik < least_ik)
    return np.where(is_negligible_ik, 0.0, tasks_ik) if is_negligible_ik.any() else tasks_ik
