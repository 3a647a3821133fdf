"""Checks the arrays of a problem before a mechanism gets them.

`parse` checks a problem file field by field. A `Problem` made from arrays has no such reader, and a NaN or a negative
demand would make solvers loop or return a meaningless proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairbind.model.errors import InvalidProblemError

if TYPE_CHECKING:
    from fairbind.fairness.problems.problem import BoolArray, FloatArray, Problem

_AMOUNT = "a finite number from 0 on"
_POSITIVE = "a finite number above 0"


def check_values(problem: Problem) -> None:
    """Raise InvalidProblemError for the first invalid value or name. Complexity: one pass over the arrays.

    >>> from fairbind.fairness.problems.problem import make_problem
    >>> make_problem([[9, 18]], [[1, -4]], tenant_names=["ada"])
    Traceback (most recent call last):
        ...
    fairbind.model.errors.InvalidProblemError: tenants[0].demand.r1 of ada: must be a finite number from 0 on, not -4.0
    """
    servers, tenants = problem.server_names, problem.tenant_names
    for what, names in (("resources", problem.resources), ("servers", servers), ("tenants", tenants)):
        _check_names(what, names)
    _check(_is_amount(problem.capacity_kr), problem.capacity_kr, "servers", "capacity", _AMOUNT, servers, problem)
    _check(_is_positive(problem.count_k), problem.count_k, "servers", "count", _POSITIVE, servers, problem)
    _check(_is_amount(problem.demand_ir), problem.demand_ir, "tenants", "demand", _AMOUNT, tenants, problem)
    for i in np.flatnonzero(~(problem.demand_ir > 0).any(axis=1))[:1]:
        raise InvalidProblemError(f"tenants[{i}].demand of {tenants[i]}: must ask for something")
    _check(_is_positive(problem.weight_i), problem.weight_i, "tenants", "weight", _POSITIVE, tenants, problem)
    _check(problem.tasks_i >= 0, problem.tasks_i, "tenants", "tasks", "a number from 0 on", tenants, problem)
    weights_ir = problem.resource_weight_ir
    _check(_is_positive(weights_ir), weights_ir, "tenants", "resourceWeights", _POSITIVE, tenants, problem)


def _is_amount(values: FloatArray) -> BoolArray:
    return np.isfinite(values) & (values >= 0)


def _is_positive(values: FloatArray) -> BoolArray:
    return np.isfinite(values) & (values > 0)


def _check_names(what: str, names: Sequence[str]) -> None:
    if len(set(names)) == len(names):
        return
    again = next(index for index, name in enumerate(names) if name in names[:index])
    raise InvalidProblemError(
        f"{what}[{again}].name: {names[again]!r} is the name of {what}[{names.index(names[again])}]"
    )


def _check(
    is_right: BoolArray, values: FloatArray, what: str, field: str, right: str, names: Sequence[str], problem: Problem
) -> None:
    if is_right.all():
        return
    row, *column = np.argwhere(~is_right)[0].tolist()
    resource = f".{problem.resources[column[0]]}" if column else ""
    value = float(values[(row, *column)])
    raise InvalidProblemError(f"{what}[{row}].{field}{resource} of {names[row]}: must be {right}, not {value!r}")
