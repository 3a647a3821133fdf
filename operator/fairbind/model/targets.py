"""Targets: what an exact mechanism would give, for policies that follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What each tenant would hold if all tasks could be divided and moved, at the time of the last solve.

    Targets order tenants and nothing else. No task is moved to meet one, no tenant is held back when it has met its
    own, and they may be somewhat older than the snapshot.

    mechanism: its id in `fairbind.fairness.mechanisms.registry`.
    resources: the names of those that counted. shares: what the tenant holds of each, as a part of the total, by the
    tenant's name. Who is not in it has come since; all zeros mean that it gets nothing.
    class_names: the server classes that the mechanism told apart; empty for one that sees a single pool.
    class_of: the index in class_names of each server, by its name; a server that is not in it has come since.
    shares_by_class: what the tenant holds on each of the classes, as a dominant share of the whole cluster.
    """

    mechanism: str
    resources: tuple[str, ...]
    shares: Mapping[str, tuple[float, ...]]
    class_names: tuple[str, ...] = ()
    class_of: Mapping[str, int] = field(default_factory=dict)
    shares_by_class: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TargetClasses:
    """The classes of some targets as a snapshot has them, and a last one of servers that have come since.

    targets: whose. class_k: of each server of the snapshot, shape (K,). capacity_pr: what those of each class have
    together that count or take tasks, base units.
    """

    targets: Targets
    class_k: NDArray[np.int32]
    capacity_pr: tuple[tuple[int, ...], ...]
