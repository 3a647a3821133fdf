"""Waiting on conditions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from e2e import waiting
from e2e.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for(condition: Callable[[], object], what: str, timeout: float = PATIENCE_SECONDS) -> None:
    """Wait as the tests on a control plane do, but look more often: these conditions cost nothing."""
    waiting.wait_for(condition, timeout, what, pause=0.05)


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
