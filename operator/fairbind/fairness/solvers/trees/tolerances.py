"""Tolerances of the filling of trees, by what they bound."""

from __future__ import annotations

TIE = 1e-11  # relative: levels that differ by less are equal
SAME_EVENT = 1e-12  # relative: events so near to the next one are part of it
FULL = 1e-14  # of a row: where no more is left, it is full
USED_UP = 1e-9  # of a resource: where no more is left, nothing of it is free
PLACED = 1e-9  # of the way: an end that servers can hold but for so much is one that they can hold
POSITIVE_PRICE = 1e-13  # of the largest price: a smaller one is rounding

# HiGHS: its least values.
PRIMAL_FEASIBILITY = 1e-10
DUAL_FEASIBILITY = 1e-10
SMALLEST_COEFFICIENT = 1e-12
KEPT_LOSS = 1e-11  # of what is held or kept: less of it is rounding of the program's own
