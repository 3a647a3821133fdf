"""Hypothesis: the same examples for the same code, so that a red run is the change's fault and not the dice's.

`HYPOTHESIS_PROFILE=deep` looks at many more and different worlds each time: for whoever changes how the cycle decides.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, max_examples=60, deadline=None)
settings.register_profile(
    "deep", max_examples=5_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
