"""Which policy fits a cluster: exact fair shares under each, who loses by totals, and a recommendation.

Policies that compare shares of the cluster's totals do not count which nodes a tenant can use. How much a tenant loses
by that is seen beside PS-DSF, which compares what tenants hold of each class of nodes: the part by which its fair share
under DRFH is smaller. Nodes that differ are no reason by themselves: often the two shares are equal there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.model import FairbindError
from fairbind.scheduling import POLICIES
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly
from fairbind.what_if.listed_objects import ListedObjects, build_cache

BY_TOTALS: Final = "best-fit-drfh"
BY_CLASSES: Final = "ps-dsf"
NOTICEABLE_LOSS: Final = 0.2
SLOW: Final = frozenset({"alpha-pf-vds"})
MOST_SLOW_CELLS: Final = 100
"""A mechanism that solves slowly is asked up to so many pairs of a demand and a class of nodes."""

Answer = tuple[Mapping[str, float], Mapping[str, float]]
"""Fair shares and pods of each tenant under a policy."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A tenant that loses by totals. part: of its fair share by classes, from 0 to 1. pods_...: of divisible pods."""

    tenant: str
    by_totals: float
    by_classes: float
    part: float
    pods_by_totals: float
    pods_by_classes: float

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "tenant": self.tenant,
            "by_totals": self.by_totals,
            "by_classes": self.by_classes,
            "part_lost": self.part,
            "pods_by_totals": self.pods_by_totals,
            "pods_by_classes": self.pods_by_classes,
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """See the module.

    policy: the one of now. weights: by tenant. fair_shares: dominant shares by policy and tenant, one policy for each
    mechanism. left_out: why there are none, by policy. losses: of a fifth or more, the largest first. recommended,
    reason: a policy, and why.
    """

    policy: str
    weights: Mapping[str, float]
    fair_shares: Mapping[str, Mapping[str, float]]
    left_out: Mapping[str, str]
    losses: tuple[Loss, ...]
    recommended: str
    reason: str

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "policy": self.policy,
            "fair_shares": {policy: dict(shares) for policy, shares in self.fair_shares.items()},
            "left_out": dict(self.left_out),
            "losers": [loss.describe() for loss in self.losses],
            "recommendation": {"policy": self.recommended, "reason": self.reason},
        }


def advise(listed: ListedObjects) -> Advice:
    """Return the advice for a cluster."""
    cache = build_cache(listed)
    fair_shares: dict[str, Mapping[str, float]] = {}
    pods: dict[str, Mapping[str, float]] = {}
    left_out: dict[str, str] = {}
    for policy in find_representatives():
        try:
            fair_shares[policy], pods[policy] = _solve(cache, policy)
        except FairbindError as error:
            left_out[policy] = str(error)
    losses: tuple[Loss, ...] = ()
    if BY_TOTALS in pods and BY_CLASSES in pods:
        losses = find_losses(*((fair_shares[policy], pods[policy]) for policy in (BY_TOTALS, BY_CLASSES)))
    recommended, reason = _recommend(losses, fair_shares, left_out)
    weights = {tenant.name: float(tenant.weight) for tenant in cache.build_snapshot().tenants}
    return Advice(cache.settings.policy, weights, fair_shares, left_out, losses, recommended, reason)


def find_representatives() -> list[str]:
    """Return one policy for each exact mechanism, the first."""
    first: dict[str, str] = {}
    for policy in POLICIES.values():
        if policy.mechanism is not None:
            first.setdefault(policy.mechanism, policy.id)
    return list(first.values())


def _solve(cache: ClusterCache, policy: str) -> Answer:
    snapshot = cache.build_detailed_snapshot()
    problem = make_exact_problem(snapshot, replace(cache.settings, policy=policy))
    if problem is None:
        nothing = {tenant.name: 0.0 for tenant in snapshot.tenants}
        return nothing, nothing
    cells = problem.problem.eligible_ik.size
    if policy in SLOW and cells > MOST_SLOW_CELLS:
        raise FairbindError(f"its mechanism would solve too long for {cells} pairs of a demand and a class of nodes")
    exact = solve_exactly(problem)
    if problem.flattened is None and exact.flattened is not None:
        raise FairbindError(f"its mechanism did not end in the tree of tenants: {exact.flattened}")
    return exact.fair_shares, exact.tasks


def find_losses(by_totals: Answer, by_classes: Answer) -> tuple[Loss, ...]:
    """Return who loses a fifth or more by totals, the largest loss first.

    >>> find_losses(({"a": 0.3, "b": 0.6}, {"a": 9, "b": 6}), ({"a": 0.4, "b": 0.5}, {"a": 12, "b": 5}))
    (Loss(tenant='a', by_totals=0.3, by_classes=0.4, part=0.25, pods_by_totals=9, pods_by_classes=12),)
    """
    losses = []
    for tenant, share in by_classes[0].items():
        if share > 0:
            part = 1 - by_totals[0][tenant] / share
            if part >= NOTICEABLE_LOSS:
                pods = by_totals[1][tenant], by_classes[1][tenant]
                losses.append(Loss(tenant, by_totals[0][tenant], share, round(part, 9), *pods))
    return tuple(sorted(losses, key=lambda loss: (-loss.part, loss.tenant)))


def _recommend(
    losses: tuple[Loss, ...], fair_shares: Mapping[str, Mapping[str, float]], left_out: Mapping[str, str]
) -> tuple[str, str]:
    if losses:
        worst = losses[0]
        others = f" and {len(losses) - 1} more" if len(losses) > 1 else ""
        return BY_CLASSES, (
            f"shares of totals hurt {worst.tenant}{others}: {worst.pods_by_totals:.1f} pods in place of "
            f"{worst.pods_by_classes:.1f}, {worst.part:.0%} less, as they do not count which nodes it can use"
        )
    missing = [policy for policy in (BY_TOTALS, BY_CLASSES) if policy in left_out]
    if missing:
        return BY_TOTALS, f"the default; {missing[0]} could not be compared: {left_out[missing[0]]}"
    if sum(share > 0 for share in fair_shares[BY_CLASSES].values()) <= 1:
        return BY_TOTALS, "the default; no more than one tenant wants anything that fits, so all policies share equally"
    return BY_TOTALS, "shares of totals hurt no tenant by a fifth or more, and it packs well"
