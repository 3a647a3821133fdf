"""Whether numbers are those of a paper, in the words of the page."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

CLOSE: Final = 1e-6
AGREE, DIFFER = "they agree", "they differ"


def judge(printed: npt.ArrayLike, ours: npt.ArrayLike, *, by: float = CLOSE) -> str:
    """Return whether all numbers are so near, in the words of the page."""
    return AGREE if np.allclose(printed, ours, rtol=0.0, atol=by) else DIFFER
