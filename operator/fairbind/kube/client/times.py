"""Times as Kubernetes writes them in objects: `Time` in whole seconds, `MicroTime` in millionths."""

from __future__ import annotations

import datetime as dt
import time


def format_time(seconds: float | None = None) -> str:
    """Return a moment as a `Time`. seconds: since the epoch; None: now.

    >>> format_time(0.9)
    '1970-01-01T00:00:00Z'
    """
    return f"{_make_moment(seconds):%Y-%m-%dT%H:%M:%SZ}"


def format_micro_time(seconds: float | None = None) -> str:
    """Return a moment as a `MicroTime`. seconds: since the epoch; None: now.

    >>> format_micro_time(0.5)
    '1970-01-01T00:00:00.500000Z'
    """
    return f"{_make_moment(seconds):%Y-%m-%dT%H:%M:%S.%fZ}"


def _make_moment(seconds: float | None) -> dt.datetime:
    return dt.datetime.fromtimestamp(time.time() if seconds is None else seconds, dt.UTC)
