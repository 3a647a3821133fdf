"""Nodes whose kubelet refuses pods of a kind again and again, and how long such pods do not go there.

A device plugin that is broken, a node whose disk is full or a runtime that has lost a feature: the kubelet refuses each
pod within a second, the node looks free again, and the best fit for the next pod is the same node. So after
`MOST_REFUSALS` refusals in a row the node **rests** for pods of that tenant with equal requests. It rests for
`FIRST_REST_SECONDS`, and after each further refusal twice as long, up to `MAX_REST_SECONDS`. A pod of that kind that
runs there ends it. Of other tenants each finds out for itself, so that pods that every kubelet refuses close no node to
others. All users of a tenant find out together: a pod says which user's it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import Rejection, RejectionKind

REFUSED = Rejection(RejectionKind.REFUSED)

MOST_REFUSALS = 5
FIRST_REST_SECONDS = 10.0
MAX_REST_SECONDS = 600.0
FORGET_SECONDS = 3_600.0
"""Refusals that are no more than a few, or whose rest is over, are forgotten after this time."""
MOST_KNOWN = 1_024
"""So many nodes and demands of a tenant are known at most."""

TenantRequests = tuple[str, Amounts]
"""Pods of a tenant with equal requests, whatever they hold through claims besides."""


def find_kind(leaf: str, requests: Amounts) -> TenantRequests:
    """Return of which kind a leaf's pods are.

    >>> find_kind("va@research", (("cpu", 1),))
    ('research', (('cpu', 1),))
    """
    return find_tenant_of_leaf(leaf), requests


@dataclass(slots=True)
class _Refusals:
    """Those of one node and kind. until: when its rest ends, or it is forgotten; infinite: `advance` will say it."""

    count: int = 0
    rest_seconds: float = 0.0
    rests: bool = False
    until: float = inf


@dataclass(frozen=True, slots=True)
class Rest:
    """A rest that has begun: of a node, for pods of a tenant, for so many seconds."""

    node: str
    tenant: str
    seconds: float


class KubeletRefusals:
    """See the module. Times are those of the clock of who calls `advance`."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[Amounts, str], _Refusals]] = {}

    def refuse(self, kind: TenantRequests, node: str) -> bool:
        """Note that a kubelet refused a pod; return whether its node rests from now on."""
        tenant, requests = kind
        known = self._known.setdefault(tenant, {})
        if (requests, node) not in known and len(known) >= MOST_KNOWN:
            del known[next(iter(known))]
        found = known.setdefault((requests, node), _Refusals())
        if found.rests:
            return False  # it was decided before
        found.count += 1
        found.rests, found.until = found.count >= MOST_REFUSALS, inf
        if found.rests:
            found.rest_seconds = min(2 * found.rest_seconds or FIRST_REST_SECONDS, MAX_REST_SECONDS)
        return found.rests

    def accept(self, kind: TenantRequests, node: str) -> bool:
        """Note that a pod runs; return whether its node rests no more."""
        tenant, requests = kind
        found = self._known.get(tenant, {}).pop((requests, node), None)
        return found is not None and found.rests

    def is_resting(self, kind: TenantRequests, node: str) -> bool:
        """Whether pods of a kind do not go to a node now."""
        found = self._known.get(kind[0], {}).get((kind[1], node))
        return found is not None and found.rests

    def find_resting(self, kind: TenantRequests) -> list[str]:
        """Return the nodes that rest for pods of a kind."""
        tenant, requests = kind
        return [node for (of, node), it in self._known.get(tenant, {}).items() if of == requests and it.rests]

    def list_refusing(self) -> tuple[str, ...]:
        """Return the nodes that have rested and on which no pod of that kind has run since, sorted."""
        known = (item for of_tenant in self._known.values() for item in of_tenant.items())
        return tuple(sorted({node for (_, node), found in known if found.rest_seconds}))

    def advance(self, now: float) -> Iterator[Rest | TenantRequests]:
        """Yield the rests that have begun since the last call, and the kinds of pods for which a node rests no more."""
        for tenant, of_tenant in list(self._known.items()):
            for (requests, node), found in list(of_tenant.items()):
                if found.until == inf:
                    found.until = now + (found.rest_seconds if found.rests else FORGET_SECONDS)
                    if found.rests:
                        yield Rest(node, tenant, found.rest_seconds)
                elif found.until <= now and found.rests:  # one more refusal, and it rests again
                    found.rests, found.count, found.until = False, MOST_REFUSALS - 1, now + FORGET_SECONDS
                    yield tenant, requests
                elif found.until <= now:
                    del of_tenant[requests, node]
            if not of_tenant:
                del self._known[tenant]
