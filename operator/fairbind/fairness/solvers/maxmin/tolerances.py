"""Tolerances of the linear programs of max-min levels, by what they bound. Amounts are parts of a class's resource."""

from __future__ import annotations

# HiGHS: its least values, so its answer is as good as it can give.
PRIMAL_FEASIBILITY = 1e-10
DUAL_FEASIBILITY = 1e-10
SMALLEST_COEFFICIENT = 1e-12  # it drops smaller entries of the matrix

ACCEPTED_INFEASIBILITY = 1e-6  # primal, of an answer whose status is unknown: refinement takes it out
REDUCED_COST = 1e-10  # a pair improves when it is cheaper by this part of what its group pays for a level
KEPT_LEVEL_LOSS = 1e-11  # of a kept level, so that a program's own rounding cannot make it infeasible

# The rounds.
POSITIVE_DUAL = 1e-13  # of the largest worth: a group with a smaller one is still free in the next round
EQUAL_LEVELS = 1e-12  # relative: how near a level and a limit, or use and capacity, count as the same

# The refinement.
RESIDUAL = 1e-15  # of a priced row: no step would do better
COMPLEMENTARITY = 1e-6  # slack of a priced row that is taken for used up
EXCESS = 1e-13  # so much too much is no rounding
LARGEST_CORRECTION = 0.5  # of a pair's tasks: beyond it, something else is wrong, and the certificate will say so
RANK_DEFICIENCY = 1e-14  # singular values, relative; what all pay is what everything is worth, so rows depend

# The certificate.
OPTIMALITY_GAP = 1e-7  # relative to a group's own level: how much more it could get before the answer is refused
SUMMATION_ERROR = 1e-13  # of the worth of everything: what sums over all groups may lose
