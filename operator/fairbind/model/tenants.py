"""Tenants: who shares the cluster, with which weight, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant at the time of the snapshot.

    weight: its part in relation to others, above zero; exact, so that ties are exact.
    resource_weights: further weights inside the maximum (weighted DRF, NSDI 2011, section 4.3); absent is 1.
    allocated_r: what its tasks count in shares now, whoever placed them, length R, base units.
    """

    name: str
    weight: Fraction = ONE
    resource_weights: Mapping[str, Fraction] = field(default_factory=dict)
    allocated_r: tuple[int, ...] = ()
