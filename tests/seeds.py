"""Seeds of tests that draw their own histories: the same ones in CI, others each night."""

from __future__ import annotations

import os

SEED_VARIABLE = "FAIRBIND_TEST_SEED"
"""The first seed; `make nightly` sets it."""


def draw_seeds(count: int, *, nightly: int | None = None) -> range:
    """Return so many seeds; each must do, as they are others in every night. nightly: how many then; None: as many."""
    first = int(os.environ.get(SEED_VARIABLE) or 0)
    if SEED_VARIABLE in os.environ and nightly is not None:
        count = nightly
    return range(first, first + count)
