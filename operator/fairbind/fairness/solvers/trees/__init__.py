"""The division of a tree by levels: `filling` follows it to its end, `placing` says which amounts servers can hold.

`measures` says what a level is. Depends on `fairbind.fairness.problems` and `solvers.highs`.
"""

from __future__ import annotations
