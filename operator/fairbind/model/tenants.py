"""Tenants: who shares the cluster, with which weight, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from fairbind.model.tasks import Placement

ONE = Fraction(1)


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """Tasks of one kind that a tenant holds: equal demand, equal constraints.

    demand_r, share_demand_r: of one task, as in `TaskClass`, length R, base units. count: how many of them.
    placement: where such a task might run; None when that is not known any more.
    """

    demand_r: tuple[int, ...]
    share_demand_r: tuple[int, ...]
    count: int
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant at the time of the snapshot.

    weight: its part in relation to others, above zero; exact, so that ties are exact.
    resource_weights: further weights inside the maximum (weighted DRF, NSDI 2011, section 4.3); absent is 1.
    allocated_r: what its tasks count in shares now, placed by any scheduler, length R, base units.
    holdings: the same task by task, for who must know them apart (task shares, the exact mechanisms). What is in
    allocated_r and not in holdings counts as one task.
    allocated_by_server: the same by the server's name, for policies that follow targets; what is left out counts as
    held nowhere in particular.
    allocated_by_class: the same by the class of the snapshot's `target_classes`; empty: not known.
    since: when the tenant came, seconds since the epoch; only the order counts, and only where a mechanism asks for it.
    """

    name: str
    weight: Fraction = ONE
    resource_weights: Mapping[str, Fraction] = field(default_factory=dict)
    allocated_r: tuple[int, ...] = ()
    holdings: tuple[Holding, ...] = ()
    allocated_by_server: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    allocated_by_class: tuple[tuple[int, ...], ...] = ()
    since: float = 0.0
