"""Kubernetes quantities ("500m", "1.5Gi", "2e3"), exactly.

A quantity is a decimal number with a suffix: a power of 1000 (n u m k M G T P E), a power of 1024 (Ki to Ei) or a
decimal exponent (e3, E3). Accounting needs integers in base units: CPU counts in milli-CPU, everything else in whole
units, and what is smaller than one unit rounds up, as Kubernetes itself does it. Integers saturate at `MAX_AMOUNT`, so
that no object, however odd, makes an array overflow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from fairbind.model import MAX_AMOUNT, FairbindError

CPU = "cpu"
MILLI = 1000

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_PATTERN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([eE])([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_LONGEST_TEXT = 256
_LARGEST_EXPONENT = 400


class QuantityError(FairbindError, ValueError):
    """The text is not a quantity."""


def parse_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity.

    Raises QuantityError when the text is none; exponents beyond 400 count as nonsense as well.

    >>> parse_quantity("1.5Ki"), parse_quantity("250m"), parse_quantity("2e3")
    (Fraction(1536, 1), Fraction(1, 4), Fraction(2000, 1))
    """
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(f"{text[:40]!r} is not a quantity")
    sign, whole, decimals, _, exponent, suffix = match.groups()
    digits = whole + (decimals or "")
    if not digits:
        raise QuantityError(f"{text!r} is not a quantity: it has no digits")
    power = int(exponent) if exponent else _DECIMAL_SUFFIXES.get(suffix or "", 0)
    if abs(power) > _LARGEST_EXPONENT:
        raise QuantityError(f"{text!r} is not a quantity: its exponent is out of range")
    power -= len(decimals or "")
    number = Fraction(int(digits) << _BINARY_SUFFIXES.get(suffix or "", 0))
    scale = Fraction(10 ** abs(power))
    value = number * scale if power >= 0 else number / scale
    return -value if sign == "-" else value


def to_base_units(resource: str, text: str) -> int:
    """Return a quantity in base units: milli-CPU for `cpu`, whole units otherwise, rounded up, within +-MAX_AMOUNT.

    Raises QuantityError when the text is not a quantity.

    >>> to_base_units("cpu", "0.1"), to_base_units("memory", "1Ki"), to_base_units("memory", "100m")
    (100, 1024, 1)
    """
    return _to_integer(text, MILLI if resource == CPU else 1)


@lru_cache(maxsize=65_536)  # by the text alone: resources' names are as many and as long as pods' authors like
def _to_integer(text: str, scale: int) -> int:
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, math.ceil(parse_quantity(text) * scale)))


def find_unit(resource: str) -> str:
    """Return the unit in which people read amounts of a resource: core, byte or integer, as kube-state-metrics does.

    >>> [find_unit(resource) for resource in ("cpu", "memory", "hugepages-2Mi", "pods", "nvidia.com/gpu")]
    ['core', 'byte', 'byte', 'integer', 'integer']
    """
    if resource == CPU:
        return "core"
    return "byte" if _counts_bytes(resource) else "integer"


def _counts_bytes(resource: str) -> bool:
    return resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")


def format_quantity(resource: str, amount: int) -> str:
    """Return base units as Kubernetes prints them: the largest suffix that loses nothing.

    CPU and plain counts take decimal digits; memory, storage and huge pages powers of 1024.

    >>> format_quantity("cpu", 1500), format_quantity("cpu", 2000), format_quantity("memory", 3 * 2**29)
    ('1500m', '2', '1536Mi')
    """
    if resource == CPU:
        return str(amount // MILLI) if amount % MILLI == 0 else f"{amount}m"
    if amount and _counts_bytes(resource):
        for suffix, bits in reversed(_BINARY_SUFFIXES.items()):
            if amount % (1 << bits) == 0:
                return f"{amount >> bits}{suffix}"
    return str(amount)


def format_amounts(amounts: Mapping[str, float]) -> dict[str, str]:
    """Return cores, bytes and counts as quantities; what is 0 is left out.

    >>> format_amounts({"memory": 2.0**30, "cpu": 0.5, "pods": 0.0})
    {'cpu': '500m', 'memory': '1Gi'}
    """
    return {
        resource: format_quantity(resource, round(amount * (MILLI if resource == CPU else 1)))
        for resource, amount in sorted(amounts.items())
        if amount
    }
