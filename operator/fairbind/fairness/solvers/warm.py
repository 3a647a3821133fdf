"""The state that a solver keeps between two similar problems, to answer the second one sooner.

An answer found from a warm start passes the same certificate as any other. Where the certificate leaves a choice (how
tasks are spread over servers), the answer may differ from the one of a cold start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairbind.fairness.problems.instance import Instance, IntArray
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.solvers.effort import Effort

_NOTHING: IntArray = np.zeros(0, dtype=np.intp)


@dataclass(slots=True, eq=False)
class WarmStart:
    """Pass the same object to `compute_allocation` for each version of a problem. Mutable; not for two threads at once.

    state: the solver's state; None at first and whenever it is of no use (another mechanism, other resources).
    group_before_i: the number that each group had in the stored instance, by its first tenant's name, -1 for new
    groups, shape (I,). class_before_k: the same for classes, shape (K,). effort: for problems with a tree, in events of
    the filling times units times inner vertices; None: there is no end to it.
    """

    state: Any = None
    group_before_i: IntArray = field(default_factory=lambda: _NOTHING)
    class_before_k: IntArray = field(default_factory=lambda: _NOTHING)
    effort: Effort | None = None
    _mechanism: str = ""
    _problem: Problem | None = None
    _instance: Instance | None = None

    def begin(self, mechanism_id: str, problem: Problem, instance: Instance) -> None:
        """Find out how the new instance relates to the remembered one, or forget that one."""
        before, instance_before = self._problem, self._instance
        is_same = before is not None and mechanism_id == self._mechanism and before.resources == problem.resources
        if is_same and before is not None and instance_before is not None:
            self.group_before_i = _match(
                before.tenant_names,
                instance_before.group_of_tenant,
                problem.tenant_names,
                instance.group_of_tenant,
                instance.weight_i.size,
            )
            self.class_before_k = _match(
                before.server_names,
                instance_before.class_of_server,
                problem.server_names,
                instance.class_of_server,
                instance.capacity_kr.shape[0],
            )
        else:
            self.state = None
        self._mechanism, self._problem, self._instance = mechanism_id, problem, instance


def _match(
    names_before: tuple[str, ...], number_before: IntArray, names: tuple[str, ...], number: IntArray, size: int
) -> IntArray:
    """Return the former number of each numbered thing: that of the first name that it has now."""
    if names is names_before or names == names_before:
        former = number_before
    else:
        place = dict(zip(names_before, number_before.tolist(), strict=True))
        former = np.array([place.get(name, -1) for name in names], dtype=np.intp)
    matched = np.full(size, -1, dtype=np.intp)
    has_number = np.flatnonzero(number >= 0)[::-1]
    matched[number[has_number]] = former[has_number]
    return matched
