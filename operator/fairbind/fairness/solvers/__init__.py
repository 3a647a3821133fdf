"""The numerical methods behind the mechanisms; they take an `Instance` or a program made of it, and know no mechanism.

`maxmin` finds lexicographic max-min levels by linear programs, `market` finds equilibria, and `psdsf` finds per-server
dominant share fair divisions. `iterative` has the published iterations of alpha-PF-VDS. `highs` makes the solver of
linear programs. `warm` holds the state that a solver keeps from one problem to the next. Depends on
`fairbind.fairness.problems`.
"""

from __future__ import annotations
