"""The clocks that the parts of the operator read, in one value, so that they can all be replaced together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fairbind.kube.operator.elector import read_steady_clock

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Clocks:
    """All in seconds. steady: goes on in a suspended machine, for the lease. wall: since the epoch."""

    monotonic: Clock = time.monotonic
    steady: Clock = read_steady_clock
    wall: Clock = time.time
