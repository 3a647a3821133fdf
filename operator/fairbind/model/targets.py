"""Targets: what an exact mechanism would give, for policies that follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

DIGITS = 6
"""Decimal digits of shares by which two answers are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What each tenant would hold if all tasks could be divided and moved, at the time of the last solve.

    Targets order tenants, or say on which class of servers a tenant's next task belongs. No task is moved to meet one,
    no tenant is held back when it has met its own, and they may be somewhat older than the snapshot.

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

    def compute_digest(self) -> str:
        """Return a few letters that two answers have in common if they give each tenant nearly the same.

        >>> one, same = (Targets("drfh", ("cpu",), {"a": (share,)}) for share in (0.5, 0.5 + 1e-12))
        >>> one.compute_digest() == same.compute_digest(), Targets("tsf", ("cpu",), {}).compute_digest()
        (True, 'c13ecb8e3699')
        """
        digest = sha256(repr((self.mechanism, self.resources, self.class_names, sorted(self.shares))).encode())
        for shares in (self.shares, self.shares_by_class):
            rows = [shares[name] for name in sorted(shares)]
            digest.update(np.round(np.array([part for row in rows for part in row]), DIGITS).tobytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True, slots=True, eq=False)
class TargetClasses:
    """The classes of some targets as a snapshot has them, and a last one of servers that have come since.

    targets: whose. class_k: of each server of the snapshot, shape (K,). capacity_pr: what those of each class have
    together that count or take tasks, base units.
    """

    targets: Targets
    class_k: NDArray[np.int32]
    capacity_pr: tuple[tuple[int, ...], ...]
