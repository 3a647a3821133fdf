"""Tolerances of the mechanisms, by what they bound."""

from __future__ import annotations

# The certificates.
OPTIMALITY_GAP = 1e-7  # of a tenant's own tasks, or of a level: how much more it could get before the answer is refused
DIVISION_OPTIMALITY_GAP = 1e-6  # the same in a division of servers
PLACE_MISMATCH = 1e-6  # relative: between what a tenant's place on a server costs and what it is worth
BUDGET_ERROR = 1e-8  # of a tenant's budget, or of all budgets: what may be spent wrongly
LEVEL_MISMATCH = 1e-9  # of a tenant's tasks: how far they may be from what the levels say
BOUND_MISMATCH = 1e-7  # of a queue's own part: how far a row that has a price may be from its bound
PRICE_MISMATCH = 1e-9  # of the terms of a column: how far prices may be from the objective
SUMMATION_ERROR = 1e-13  # of a total, or of all terms of a row: what adding them up may lose
SUMMATION_ERROR_PER_STEP = 1e-16  # the same, more for each arrival that was added before

# The search for a division of servers.
ACCEPTED_GAP = 1e-8  # of a tenant's own tasks: from where on only few more divisions are tried
SUFFICIENT_GAP = DIVISION_OPTIMALITY_GAP / 10  # with which a certificate holds: good enough once the search stalls
STALLED = 0.5  # of the gap one round before: above it, another round hardly helps
CONVERGED_GAP = 1e-10  # the same, when to stop looking for a better one

# The sweeps of a tree.
CONVERGED_MOVE = 1e-12  # of a class: what a sweep still moves when it ends

# The market in virtual dominant shares.
SUFFICIENT_MISMATCH = PLACE_MISMATCH / 10  # with which a certificate holds: no further responses once they stall

# The queues of bottlenecks.
EQUAL_SHARES = 1e-12  # of the larger: shares that differ by less are equal, and both resources dominant
POSITIVE_PRICE = 1e-9  # of the largest price: a row with a smaller one is free
