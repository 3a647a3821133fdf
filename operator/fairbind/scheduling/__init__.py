"""Whole tasks, one after another: who is next, and which server takes the task.

`run_cycle` is the only entry that decides. Everything here is pure: no clock, no randomness, no I/O, and the same input
gives the same report, byte for byte.
"""

from __future__ import annotations

from fairbind.scheduling.classes import compute_server_classes
from fairbind.scheduling.cycle import run_cycle
from fairbind.scheduling.levels import compute_virtual_dominant_shares
from fairbind.scheduling.memory import MANY_CLASSES, Memory
from fairbind.scheduling.policies import POLICIES, Policy
from fairbind.scheduling.state import CycleState

__all__ = [
    "MANY_CLASSES",
    "POLICIES",
    "CycleState",
    "Memory",
    "Policy",
    "compute_server_classes",
    "compute_virtual_dominant_shares",
    "run_cycle",
]
