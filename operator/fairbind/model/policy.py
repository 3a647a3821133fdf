"""The settings that choose how a cycle decides."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_POLICY = "best-fit-drfh"
DEFAULT_SERVER_CLASS_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What an administrator chose.

    policy: the id of an online policy (`fairbind.scheduling.POLICIES`).
    fairness_resources: the resources that count for shares; None means the default of whoever builds the snapshot.
    server_class_tolerance: relative difference up to which two capacities count as equal, from 0 to 0.5.
    server_selector: label pairs that a server must carry for its capacity to count and for tasks to go there.
    """

    policy: str = DEFAULT_POLICY
    fairness_resources: tuple[str, ...] | None = None
    server_class_tolerance: float = DEFAULT_SERVER_CLASS_TOLERANCE
    server_selector: tuple[tuple[str, str], ...] = ()
