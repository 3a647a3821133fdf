"""Fields of a spec that Tenants and SchedulingPolicies have in common: quantities and whole numbers within limits.

A fraction is a number (0.5) or a quantity ("0.5", 500m), as in the requests of a pod. Only the CRDs refuse the number:
an object of the API holds no floating-point number, but scenarios, snapshots and options may.
"""

from __future__ import annotations

from fractions import Fraction

from fairbind.cluster.objects.quantity import QuantityError, parse_quantity
from fairbind.model.errors import InvalidProblemError


def read_quantity(value: object, where: str, limits: tuple[Fraction, Fraction]) -> Fraction:
    """Return the exact value of a number or a quantity; a float is the decimal fraction that it is printed as.

    Raises InvalidProblemError, which names the field and the value and what would be right.

    >>> read_quantity("500m", "spec.weight", (Fraction(0), Fraction(2)))
    Fraction(1, 2)
    >>> read_quantity(0.1, "spec.weight", (Fraction(0), Fraction(2)))
    Fraction(1, 10)
    >>> read_quantity(2.5, "spec.weight", (Fraction(0), Fraction(2)))
    Traceback (most recent call last):
    fairbind.model.errors.InvalidProblemError: spec.weight must be a number or a quantity from 0 to 2, \
such as 0.5 or 500m, not 2.5
    """
    quantity: Fraction | None = None
    try:
        if isinstance(value, float):
            quantity = Fraction(repr(value))
        elif isinstance(value, int | str) and not isinstance(value, bool):
            quantity = parse_quantity(str(value))
    except (QuantityError, ValueError):  # ValueError: NaN, infinity
        quantity = None
    low, high = limits
    if quantity is None or not low <= quantity <= high:
        raise InvalidProblemError(
            f"{where} must be a number or a quantity from {float(low):g} to {float(high):g}, "
            f"such as 0.5 or 500m, not {value!r}"
        )
    return quantity


def read_whole_number(value: object, where: str, limits: tuple[int, int]) -> int:
    """Return the value of an integer field; InvalidProblemError when it is something else or beyond the limits."""
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidProblemError(f"{where} must be a whole number from {low} to {high}, not {value!r}")
    return value
