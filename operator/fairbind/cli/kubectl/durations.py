"""Times that pass, as kubectl writes ages."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_TWO_UNITS_BELOW: Final = 10


def format_duration(seconds: float) -> str:
    """Return seconds in one unit, or in two where the first says little.

    >>> [format_duration(seconds) for seconds in (0, 59, 90, 1200, 3 * 3600 + 720, 40 * 3600, 9 * 86400)]
    ['0s', '59s', '1m30s', '20m', '3h12m', '40h', '9d']
    """
    left = max(0, round(seconds))
    for place, (unit, size) in enumerate(_UNITS):
        count = left // size
        if unit == "d" and count == 1:
            continue  # 40h says more than 1d16h
        if count or unit == "s":
            rest = left % size
            if place + 1 < len(_UNITS) and count < _TWO_UNITS_BELOW:
                smaller, smaller_size = _UNITS[place + 1]
                more = f"{rest // smaller_size}{smaller}" if rest >= smaller_size else ""
                return f"{count}{unit}{more}"
            return f"{count}{unit}"
    raise AssertionError
