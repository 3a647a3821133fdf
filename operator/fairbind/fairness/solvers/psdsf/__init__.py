"""Per-server dominant share fairness (PS-DSF): which server serves which tenant, and the amounts.

`server_filling` fills servers in turn, `psdsf_market_start` finds a start for many servers at once, and
`psdsf_active_set` solves for the exact amounts. Depends on `fairbind.fairness.problems` and `solvers.market`.
"""

from __future__ import annotations
