"""What is fair: the mechanisms of the papers on divisible tasks, exact and certified.

A `Problem` goes in, an `Allocation` with its certificate comes out of `solve.compute_allocation`, or an error: never an
answer that was not verified. Each of the four sub-packages uses only those before it: `problems` (what is asked and
answered), `solvers` (numerical methods), `mechanisms` (one module each, listed in `mechanisms.registry`) and, above
`solve`, `properties` (what a mechanism should guarantee, with a search for witnesses against it).

Pure: no clock, no randomness, no input or output. highspy is imported by the functions that need it, because that takes
longer than most answers.

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
