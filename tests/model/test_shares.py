"""Shares: exact keys, and floats that say the same."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fairbind.model import MAX_AMOUNT, TOLERANCE, compute_dominant_share, compute_share_key, compute_weighted_share

amounts = st.lists(st.integers(0, MAX_AMOUNT), min_size=3, max_size=3)
quantities = st.fractions(Fraction(1, 10**6), Fraction(10**16), max_denominator=10**6)
denominators = st.lists(st.none() | quantities, min_size=3, max_size=3)


def compute_exactly(allocated_r: list[int], denominator_r: list[Fraction | None]) -> Fraction:
    return max((a / d for a, d in zip(allocated_r, denominator_r, strict=True) if d is not None), default=Fraction(0))


@given(first=amounts, second=amounts, of_first=denominators, of_second=denominators)
def test_keys_order_as_the_exact_shares_do(
    first: list[int], second: list[int], of_first: list[Fraction | None], of_second: list[Fraction | None]
) -> None:
    keys = compute_share_key(first, of_first), compute_share_key(second, of_second)
    shares = compute_exactly(first, of_first), compute_exactly(second, of_second)

    assert (keys[0] < keys[1]) == (shares[0] < shares[1])
    assert (keys[0] == keys[1]) == (shares[0] == shares[1])


@given(allocated=amounts, of=denominators, factor=quantities)
def test_a_common_factor_keeps_ties(allocated: list[int], of: list[Fraction | None], factor: Fraction) -> None:
    doubled = [2 * amount for amount in allocated]
    scaled = [None if d is None else d * factor for d in of]
    twice = [None if d is None else 2 * d * factor for d in of]

    assert compute_share_key(allocated, scaled) == compute_share_key(doubled, twice)


@given(allocated=amounts, of=denominators)
def test_the_float_is_the_exact_share_rounded(allocated: list[int], of: list[Fraction | None]) -> None:
    exact = compute_exactly(allocated, of)

    assert abs(Fraction(compute_weighted_share(allocated, of)) - exact) <= Fraction(TOLERANCE) * max(exact, Fraction(1))


def test_the_dominant_resource_is_the_first_of_equals_among_those_that_count() -> None:
    assert compute_dominant_share([3, 6, 9], [9, 18, 9], [True, True, False]) == (1 / 3, 0)
    assert compute_dominant_share([3, 7, 9], [9, 18, 0], [True, True, True]) == (7 / 18, 1)
    assert compute_dominant_share([0, 0], [9, 18], [True, True]) == (0.0, None)


def test_a_resource_that_does_not_count_has_no_part_in_a_share() -> None:
    assert compute_share_key([5, 0], [None, Fraction(1)]) == 0
    assert compute_weighted_share([5, 0], [None, Fraction(1)]) == 0.0
    assert compute_weighted_share([5], [None]) == 0.0
