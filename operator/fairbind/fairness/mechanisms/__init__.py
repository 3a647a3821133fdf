"""The mechanisms of the papers, one module each, and the registry that lists them.

`mechanism` says what an entry of the registry holds, `registry` lists all of them. `guarantees` says which properties
are proved or refuted, and `counterexamples` has the problems that refute them.
Depends on `fairbind.fairness.problems` and `fairbind.fairness.solvers`.
"""

from __future__ import annotations
