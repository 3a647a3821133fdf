"""The iterative solvers of the paper of alpha-PF-VDS, as published: PS-MFA and its distributed form.

`game` states the complementarity problem (28) and (29) and its merit function (37). They are slower and less exact than
`market`, which answers by default; they are here to be compared with it.
Depends on `fairbind.fairness.problems` and `fairbind.fairness.solvers.market`.
"""

from __future__ import annotations
