"""Lexicographic max-min fair levels on servers that differ: linear programs, one a round, with dual certificates.

`lexicographic` is the way in. `level_lp` solves a round by column generation, `warm_basis` carries bases over to a
similar problem and `lp_refinement` takes rounding out.
Depends on `fairbind.fairness.problems` and `solvers.warm`.
"""

from __future__ import annotations
