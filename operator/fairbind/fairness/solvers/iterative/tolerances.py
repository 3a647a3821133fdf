"""Tolerances of the iterative solvers, by what they bound."""

from __future__ import annotations

# PS-MFA.
DESCENT_RESIDUAL = 1e-4  # relative: at which to stop
FULL = 1e-12  # of a capacity: what is free and counts as nothing
LANDED = 1e-9  # relative: steps that differ by less end at the same point
FIRST_STEP = 1e-2  # times the gradient
SHORTEST_STEP = 1e-30  # of the gradient: a shorter one is not tried

# The distributed form.
AGREED_RESIDUAL = 1e-3  # relative: at which to stop
SMALLEST_EPSILON = 1e-4
SMALLEST_AMOUNT = 1e-9  # of a server: what no tenant's total falls below
