"""Mechanisms of fair division from the literature, for divisible tasks: exact and certified.

`compute_allocation` takes a `Problem` and returns an `Allocation` with its certificate, or raises an error. It never
returns an answer that was not verified. Each of the four sub-packages uses only those before it: `problems` (problems
and allocations), `solvers` (numerical methods), `mechanisms` (one module each, listed in `mechanisms.registry`) and,
above `solve`, `properties` (what a mechanism should guarantee, with a search for counterexamples).

The package is pure: no clock, no randomness, no input or output. The functions that need highspy import it themselves,
because the import takes longer than most answers.

>>> from fairbind.fairness import compute_allocation, make_problem
>>> problem = make_problem([[9, 18]], [[1, 4], [3, 1]], resources=["cpu", "memory"], tenant_names=["ada", "ben"])
>>> allocation = compute_allocation(problem, "drf")
>>> dict(zip(problem.tenant_names, allocation.totals_i.round(6).tolist(), strict=True))
{'ada': 3.0, 'ben': 2.0}
"""

from __future__ import annotations

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import Problem, make_problem
from fairbind.fairness.solve import compute_allocation

__all__ = ["Allocation", "Problem", "compute_allocation", "make_problem", "parse_problem"]
