"""Tolerances of market equilibria, by what they bound. A mismatch is how far any condition fails, relatively."""

from __future__ import annotations

# The interior-point method.
DUALITY_GAP = 1e-14  # as a part of all budgets: when it stops
SMALLEST_START_PART = 1e-12  # of what a tenant's budget would give it of all servers, at a start near a known one
START_COMPLEMENTARITY = 3e-2  # of a pair's part of the budgets: its product at a start near a known one
START_IMBALANCE = 1.5  # of all budgets: if more is unbalanced there, the start is no good
SHORTEST_STEP = 1e-8  # of the whole step towards the solution: a shorter one is not tried
UNEVEN_PRODUCT = 50  # times the mean product: the largest, before it is worth a step of its own

# The active-set method.
CONVERGED_MISMATCH = 1e-13  # at which to stop improving a guess
ACCEPTED_MISMATCH = 1e-9  # at which to stop looking for another guess
LIMIT_REACHED = 1e-9  # relative: from where on a tenant has all its tasks; no looser than certificates are
PRIMAL_FEASIBILITY = 1e-10  # relative: by how much loads and totals may differ from capacities and limits
REDUCED_COST = 1e-10  # relative: a pair enters when a task there is cheaper by more
LIMIT_EXCESS = 1e-13  # relative: a tenant that has more than its limit by more is held to it
NEGLIGIBLE_PRICE = 1e-13  # of a server's highest price
NEGLIGIBLE_TOTAL = 1e-9  # of a tenant's budget: tasks of no account
SMALLEST_TOTAL = 1e-13  # of a tenant's budget: what a pair that enters is scaled by at least
ENTERING_PART = 1e-4  # of a tenant's tasks, and of the highest prices: how freely a pair or a price enters
REGULARISATION = 1e-10  # how strongly parts and prices that could be anything stay what they are

# Best responses.
CONVERGED_CHANGE = 1e-13  # of a tenant's total: changes and lacks that are rounding
ACCEPTED_RESPONSE_MISMATCH = 1e-6  # of one server's answer: a worse one is none
NEGLIGIBLE_PART = 1e-9  # of a tenant's total
