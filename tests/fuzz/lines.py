"""Counts the lines of Python that a call runs: a cost that does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class _Lines:
    """Counts the lines that run."""

    count: int = 0

    def trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        """Count one more. Takes what `sys.settrace` gives."""
        del frame, argument
        self.count += event == "line"
        return self.trace


def count_lines(call: Callable[[], object]) -> int:
    """Return how many lines a call runs, with all that it calls."""
    lines, before = _Lines(), sys.gettrace()
    sys.settrace(lines.trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines.count
