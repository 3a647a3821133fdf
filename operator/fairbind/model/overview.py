"""Who holds what and who waits, in base units that people read: cores, bytes, counts.

Made by whoever watches the cluster; shown as Prometheus metrics and in the tenants' status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TenantOverview:
    """One tenant now.

    dominant_share: from 0 to 1. dominant_resource: None while the tenant holds nothing. weighted_share: by its weights.
    allocated: by resource, base units. pending: waiting pods by the kind of reason (one of `PENDING_REASONS`).
    virtual_dominant_shares: by server class, only the few that bind (classes where the tenant holds something).
    backlogged: whether it has waiting pods that it may place at all (for the Jain index).
    """

    name: str
    weight: float
    dominant_share: float
    dominant_resource: str | None
    weighted_share: float
    allocated: Mapping[str, float]
    running: int
    pending: Mapping[str, int]
    virtual_dominant_shares: Mapping[str, float] = field(default_factory=dict)
    backlogged: bool = False


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The cluster now. capacity, allocated: by resource, base units; capacity over Ready, not cordoned nodes.

    jain_index: of the weighted shares of backlogged tenants; 1.0 when there are none.
    """

    capacity: Mapping[str, float]
    allocated: Mapping[str, float]
    server_classes: int
    tenants: tuple[TenantOverview, ...]
    jain_index: float


PENDING_REASONS = ("queued", "insufficient", "ineligible", "unsupported", "gated")
"""queued: its turn has not come. insufficient: eligible nodes lack room. ineligible: no node may take it.
unsupported: it asks for something that is not honoured yet. gated: it has scheduling gates."""


def compute_jain_index(values: tuple[float, ...]) -> float:
    """Return (sum x)^2 / (n sum x^2), from 1/n to 1; 1.0 when there is nothing to compare.

    Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.

    >>> compute_jain_index((1.0, 1.0)), compute_jain_index((1.0, 0.0))
    (1.0, 0.5)
    """
    squares = sum(value * value for value in values)
    return 1.0 if squares == 0.0 else sum(values) ** 2 / (len(values) * squares)
