"""The settings that choose how a cycle decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fairbind.model.reservations import DEFAULT_RESERVATIONS, ReservationSettings

DEFAULT_POLICY = "best-fit-drfh"
DEFAULT_SERVER_CLASS_TOLERANCE = 0.02
DEFAULT_ALPHA = 2.0
LEAST_ALPHA = 0.01  # below, tasks can be fewer than numbers hold: shares differ as loads do, to the power 1 / alpha


class Unclaimed(StrEnum):
    """What happens to the tasks of namespaces that no declared tenant claims."""

    TENANT = "tenant"
    """Each such namespace is a tenant of its own."""
    TOGETHER = "together"
    """All such namespaces are one tenant."""
    REFUSE = "refuse"
    """Their tasks are not placed."""


class Fit(StrEnum):
    """A comparison of a task's demand with what a server has left, for policies that choose the best fit."""

    DOMINANT_RESOURCE = "dominant-resource"
    """The distance of DRFH, equation 9, relative to the task's dominant resource."""
    FIRST_RESOURCE = "first-resource"
    """The same as it is printed: relative to the first resource by name."""
    COSINE = "cosine"
    """The angle between the two."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What an administrator chose.

    policy: the id of an online policy (`fairbind.scheduling.POLICIES`).
    fairness_resources: the resources that count for shares; None means the default of the snapshot's builder.
    server_class_tolerance: relative difference up to which two capacities count as equal, from 0 to 0.5.
    server_selector: label pairs that a server must carry for its capacity to count and for tasks to go there.
    alpha: the exponent of `alpha-pf-vds`, at least `LEAST_ALPHA`; the larger, the more it counts who has least.
    expected_tenants: how many tenants `dynamic-drf` expects in the end; None or fewer than there are: those there are.
    seed: what the draws of `two-choices-drfh` start from.
    unclaimed: what happens to the tasks of namespaces that no declared tenant claims.
    guided: whether the exact mechanism says to which class of servers a task goes, where the policy has one.
    fit: how well a server suits a task, for policies that choose the best fit.
    reservations: what is kept for tenants that are rightfully next and whose tasks fit nowhere yet.
    """

    policy: str = DEFAULT_POLICY
    fairness_resources: tuple[str, ...] | None = None
    server_class_tolerance: float = DEFAULT_SERVER_CLASS_TOLERANCE
    server_selector: tuple[tuple[str, str], ...] = ()
    alpha: float = DEFAULT_ALPHA
    expected_tenants: int | None = None
    seed: int = 0
    unclaimed: Unclaimed = Unclaimed.TENANT
    guided: bool = True
    fit: Fit = Fit.DOMINANT_RESOURCE
    reservations: ReservationSettings = DEFAULT_RESERVATIONS
