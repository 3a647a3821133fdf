"""How sure a mean over seeds is: a bootstrap interval, by scipy.

The interval is bias-corrected and accelerated (BCa; Efron, "Better bootstrap confidence intervals", JASA 1987). Draws
come from a fixed seed, so the same values give the same interval.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from fairbind.model import InvalidProblemError

RESAMPLES: Final = 2000
_LEAST_VALUES: Final = 2


class Interval(NamedTuple):
    """A mean with its interval; low and high are None where fewer than two values are known. known: their number."""

    mean: float | None
    low: float | None
    high: float | None
    known: int


def check_has_scipy() -> None:
    """Raise InvalidProblemError where scipy is not installed."""
    if importlib.util.find_spec("scipy") is None:
        raise InvalidProblemError("sweep: scipy is not installed: pip install 'fairbind[simulate]'")


def compute_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return the mean of values and its interval. confidence: the part of such intervals that holds the true mean.

    >>> compute_interval([2.0], 0.95), compute_interval([3.0, 3.0], 0.95)
    (Interval(mean=2.0, low=None, high=None, known=1), Interval(mean=3.0, low=3.0, high=3.0, known=2))
    """
    if len(values) < _LEAST_VALUES:
        return Interval(values[0] if values else None, None, None, len(values))
    least, most = min(values), max(values)
    if least == most:
        return Interval(least, least, least, len(values))
    from scipy import stats  # type: ignore[import-untyped]  # noqa: PLC0415 - slow to import, and an extra

    mean = math.fsum(values) / len(values)
    found = stats.bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        vectorized=True,
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    low, high = float(found.low), float(found.high)  # rounded differently from the mean, where values hardly differ
    return Interval(mean, min(max(least, low), mean), max(min(most, high), mean), len(values))
