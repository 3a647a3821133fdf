"""The mechanisms, one module each, and the registry that lists them.

`mechanism` defines an entry of the registry, and `registry` lists all entries. `guarantees` states which properties are
proved or refuted, and `counterexamples` holds the problems that refute them.
Depends on `fairbind.fairness.problems` and `fairbind.fairness.solvers`.
"""

from __future__ import annotations
