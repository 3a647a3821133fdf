"""Whole tasks, one after another: who is next, and which server takes the task.

`run_cycle` is the only entry that decides. Everything here is pure: no clock, no randomness, no I/O, and the same input
gives the same report, byte for byte.
"""

from __future__ import annotations

from fairbind.scheduling.cycle.cycle import run_cycle
from fairbind.scheduling.cycle.state import CycleState
from fairbind.scheduling.cycle.waits.unschedulable_cache import MANY_CLASSES, UnschedulableCache
from fairbind.scheduling.policies.levels import compute_virtual_dominant_shares
from fairbind.scheduling.policies.registry import POLICIES, Policy, find_decided_classes, reads_targets
from fairbind.scheduling.policies.server_classes import compute_server_classes

__all__ = [
    "MANY_CLASSES",
    "POLICIES",
    "CycleState",
    "Policy",
    "UnschedulableCache",
    "compute_server_classes",
    "compute_virtual_dominant_shares",
    "find_decided_classes",
    "reads_targets",
    "run_cycle",
]
