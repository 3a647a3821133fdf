from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.objects.quantity import QuantityError, format_quantity, parse_quantity, to_base_units
from fairbind.model import MAX_AMOUNT


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        ("1", Fraction(1)),
        ("+3", Fraction(3)),
        ("-1.5", Fraction(-3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("100m", Fraction(1, 10)),
        ("1u", Fraction(1, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("2k", Fraction(2000)),
        ("1M", Fraction(10**6)),
        ("1G", Fraction(10**9)),
        ("1T", Fraction(10**12)),
        ("1P", Fraction(10**15)),
        ("1E", Fraction(10**18)),
        ("1Ki", Fraction(1024)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("1Ei", Fraction(2**60)),
        ("12e6", Fraction(12 * 10**6)),
        ("12E6", Fraction(12 * 10**6)),
        ("1e-3", Fraction(1, 1000)),
        ("0.000000000001Ki", Fraction(1024, 10**12)),
        ("100000000000000000000000", Fraction(10**23)),
    ],
)
def test_quantities_are_read_exactly(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 ", "m", ".", "1K", "1ki", "1mi", "Gi", "1.2.3", "0x10", "1e", "1e+", "e3", "--1", "1Kim"),
        *("\N{ARABIC-INDIC DIGIT ONE}", "\N{INFINITY}", "NaN", "1e9999999999", "9" * 1000, "1_000", "1,5"),
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "0.0001", 1),
        ("cpu", "1500m", 1500),
        ("cpu", "1n", 1),
        ("memory", "1m", 1),
        ("memory", "1.5Ki", 1536),
        ("nvidia.com/gpu", "2", 2),
        ("cpu", "1E", MAX_AMOUNT),
        ("memory", "1Ei", MAX_AMOUNT),
        ("memory", "1e300", MAX_AMOUNT),
        ("memory", "-1e300", -MAX_AMOUNT),
        ("memory", "1e-300", 1),
    ],
)
def test_base_units_round_up_and_saturate(resource: str, text: str, amount: int) -> None:
    assert to_base_units(resource, text) == amount


@given(st.integers(0, MAX_AMOUNT), st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "hugepages-2Mi"]))
def test_what_is_formatted_reads_as_the_same_amount(amount: int, resource: str) -> None:
    assert to_base_units(resource, format_quantity(resource, amount)) == amount


@given(st.decimals(-(10**9), 10**9, places=6), st.sampled_from(["", "m", "k", "Mi"]))
def test_base_units_are_the_ceiling_of_the_exact_value(number: object, suffix: str) -> None:
    factor = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000), "Mi": Fraction(2**20)}[suffix]
    assert to_base_units("memory", f"{number}{suffix}") == math.ceil(Fraction(str(number)) * factor)
