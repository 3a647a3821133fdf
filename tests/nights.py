"""Cases of which some run on each change and the others at night."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def leave_to_nights(cases: Iterable[Any], *, but: Collection[Any]) -> list[Any]:
    """Return parameters for pytest, all marked nightly but these."""
    return [pytest.param(case, marks=() if case in but else pytest.mark.nightly) for case in cases]
