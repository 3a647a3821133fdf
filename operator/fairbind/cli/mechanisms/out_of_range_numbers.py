"""Numbers as they were written, where a float64 cannot hold them.

`1e400` would become infinite and `1e-400` zero, and the one who wrote them would be told about a number that is not in
the file, or not be told at all. A `WrittenNumber` stands for them: as a float it is the outermost one on their side, so
that every range refuses it, and it shows itself as it was written.
"""

from __future__ import annotations

import math
import sys
from typing import Self

_LONGEST_EXACT = 300  # digits of a whole number that are read as they are; longer ones are beyond all floats
_LONGEST_SHOWN = 40
_SMALLEST = math.ulp(0.0)


class WrittenNumber(float):
    """A number beyond float64, beside its text.

    >>> read_float("1e400"), read_float("-1e-400") < 0, read_float("0e5")
    (1e400, True, 0.0)
    """

    _text: str

    def __new__(cls, text: str) -> Self:
        """Return the outermost float64 on the side of the number that the text writes."""
        magnitude = _SMALLEST if float(text) == 0 else sys.float_info.max
        number = super().__new__(cls, -magnitude if text.startswith("-") else magnitude)
        number._text = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        return number

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


def read_float(text: str) -> float:
    """Return the number that JSON writes so, never rounded to zero or to infinity."""
    number = float(text)
    if math.isinf(number) or (number == 0 and any(digit in "123456789" for digit in text.lower().split("e")[0])):
        return WrittenNumber(text)
    return number


def read_whole(text: str) -> float:
    """Return the whole number that the text writes, exactly where that is of use."""
    return int(text) if len(text) <= _LONGEST_EXACT else read_float(text)
