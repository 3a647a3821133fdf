"""Tolerances of PS-DSF divisions, by what they bound."""

from __future__ import annotations

# Filling servers in turn.
FULL = 5e-14  # of a slot: where no more is left, it is full
CONVERGED_CHANGE = 1e-14  # of a tenant's total: a change that is rounding

# The start by a market.
MARKET_GAP = 1e-12  # how exactly a market is balanced, as a part of all budgets
ACCEPTED_MARKET_GAP = 1e-9  # a balance worse than that is tried once more
EQUAL_LOADS = 1e-9  # relative: loads of two slots that are the same
SMALLEST_AMOUNT = 1e-3  # of a server: the least amount that a slot's tenants may be supposed to get

# The active-set method.
SMALLEST_TOTAL = 1e-9  # of a tenant's part of all tasks: what it is supposed to have at least
LIMIT_REACHED_AT_START = 1e-6  # relative: from where on a tenant of a rough division has all its tasks
LIMIT_REACHED = 1e-11  # the same, of a solved one
EQUAL_SHARES = 1e-11  # relative: differences of shares that are rounding
PRIMAL_FEASIBILITY = 1e-6  # of a slot: what it may be overfull by before it is one that must be full
LARGEST_PART = 1e6  # of a server: a larger part says that equations do not belong together
ENTERING_PART = 1e-3  # of a tenant's tasks: how freely a pair enters that was not served
RIDGE = 1e-13  # makes equations solvable that say the same twice
