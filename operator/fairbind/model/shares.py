"""Shares: exact where they order tenants, float64 where people read them.

A share orders tenants, and a tie must be a tie whatever the weights' common factor: rounding errors would flip the
order and then the whole trace. So the order uses integers: the first `KEY_BITS` binary digits of the exact quotient.
Two different quotients whose denominators are below 2**(KEY_BITS / 2) differ within these digits, and equal quotients
agree in all of them, however they were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

KEY_BITS = 256
TOLERANCE = 1e-9
"""The one tolerance for comparing float64 shares."""


def compute_share_key(allocated_r: Sequence[int], denominator_r: Sequence[Fraction | None]) -> int:
    """Return an integer that orders tenants as max over r of allocated_r / denominator_r does, exactly.

    denominator_r: C_r times the weight (of the tenant, and of the resource in it); None where r does not count.
    Source: Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, sections 4.2 and 4.3.

    >>> third, also_third = compute_share_key([1], [Fraction(3)]), compute_share_key([7], [Fraction(21)])
    >>> third == also_third, third < compute_share_key([2], [Fraction(3)])
    (True, True)
    """
    largest = 0
    for amount, denominator in zip(allocated_r, denominator_r, strict=True):
        if amount > 0 and denominator is not None:
            key = ((amount * denominator.denominator) << KEY_BITS) // denominator.numerator
            largest = max(largest, key)
    return largest


def compute_dominant_share(
    allocated_r: Sequence[int], total_r: Sequence[int], counts_r: Sequence[bool]
) -> tuple[float, int | None]:
    """Return the largest share of a total and the index of its resource (the first of equals; None when all are 0).

    total_r: C_r, base units. counts_r: which resources count for shares. Resources with a total of 0 are left out.

    >>> compute_dominant_share([3, 4], [9, 18], [True, True])
    (0.3333333333333333, 0)
    """
    best, resource = 0.0, None
    for r, (amount, total, counts) in enumerate(zip(allocated_r, total_r, counts_r, strict=True)):
        if counts and total > 0 and amount / total > best:
            best, resource = amount / total, r
    return best, resource


def compute_weighted_share(allocated_r: Sequence[int], denominator_r: Sequence[Fraction | None]) -> float:
    """Return max over r of allocated_r / denominator_r as float64; arguments as in `compute_share_key`."""
    return max(
        (
            amount * denominator.denominator / denominator.numerator
            for amount, denominator in zip(allocated_r, denominator_r, strict=True)
            if denominator is not None
        ),
        default=0.0,
    )
