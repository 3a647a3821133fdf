"""The numerical methods behind the mechanisms: each takes an `Instance` or what is made of it, none knows a mechanism.

`maxmin` finds lexicographic max-min levels by linear programs, `market` equilibria, `psdsf` per-server dominant share
fairness. `warm` holds what a solver keeps from one problem to the next. Depends on `fairbind.fairness.problems`.
"""

from __future__ import annotations
