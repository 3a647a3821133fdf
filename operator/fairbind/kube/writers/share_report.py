"""The content of a ShareReport: what a tenant holds and would get, and which pods of one namespace wait and why.

Shares, pods and amounts are the tenant's, as the Tenant's status has them; waiting pods are those of the namespace
alone. Another tenant's name stands in no report unless the administrator wants it.

When pods start is told while capacity is reserved for them: the cycle then knows when enough of it should be free, by
the run times that it has seen. To estimate it for all who wait, `what-if` plays the cluster's future, which takes
seconds for each of them; that is nothing for the loop that decides.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from fairbind.cluster.cache.tenant_ranking import TenantRanking
from fairbind.cluster.cache.tenant_view import WaitingPods
from fairbind.cluster.messages import compute_condition_reason, format_unschedulable
from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.objects.quantity import format_amounts, format_quantity
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX
from fairbind.kube.writers.status import format_share
from fairbind.model import Wait
from fairbind.model.overview import TenantOverview

MAX_LISTED = 10
"""Kinds of waiting pods that a report lists."""
EARLIEST_PART, LATEST_PART = 0.1, 2.3
"""Of the time that is expected in the mean. Of exponential run times four in five lie between; of fixed ones all do."""
QUEUED = "Queued"
_NO_DECISION = "No decision about these pods was made yet."
_NO_RESERVATION = "No capacity is reserved for these pods, so it is not known when enough comes free."
_OVERDUE = "Capacity is reserved for these pods, and longer than was expected it has not come free."
_NOT_PLACEABLE = "These pods cannot be placed as they are, however long they wait."

Json = dict[str, Any]
ReadPresent = Callable[[], Json | None]


@dataclass(frozen=True, slots=True)
class ReportWords:
    """What messages may say. shows_others: names of other tenants. shows_taints: keys and values of taints."""

    shows_others: bool = False
    shows_taints: bool = False


@dataclass(frozen=True, slots=True)
class ReportScene:
    """What all reports have in common at one look.

    policy: its id. nodes: how many there are. ranking: of all tenants; None where shares do not decide. now: seconds
    since the epoch.
    """

    policy: str
    nodes: int
    ranking: TenantRanking | None
    words: ReportWords
    now: float


def compute_share_report(
    scene: ReportScene, tenant: TenantOverview, waiting: Sequence[WaitingPods], read_present: ReadPresent
) -> Json:
    """Return the status of a namespace's report, without the time at which it changed.

    waiting: the namespace's pods, in the tenant's order. read_present: gives the status that the report has now, or
    None. Where that foresees a start, and what is expected now lies within it, it stays: it would change all the time.
    """
    listed = waiting[:MAX_LISTED]
    following = next((pods for pods in waiting if pods.is_placeable), None)
    return {
        "tenant": tenant.name,
        "claimed": not tenant.name.startswith(IMPLICIT_PREFIX),
        "weight": f"{tenant.weight:g}",
        "policy": scene.policy,
        "held": format_amounts(tenant.allocated),
        "dominantShare": format_share(tenant.dominant_share),
        "weightedShare": format_share(tenant.weighted_share),
        **({} if tenant.fair_share is None else {"fairShare": format_share(tenant.fair_share)}),
        "dominantResource": tenant.dominant_resource or "",
        "running": tenant.running,
        "pending": sum(tenant.pending.values()),
        **_count_before(scene, tenant),
        **({} if following is None else {"startsNext": _describe_pods(following)}),
        "waiting": [_describe_waiting(scene, pods, read_present) for pods in listed],
        "waitingLeftOut": len(waiting) - len(listed),
    }


def _count_before(scene: ReportScene, tenant: TenantOverview) -> Json:
    if scene.ranking is None:
        return {}
    return {"tenantsBefore": scene.ranking.count_before(tenant)}


def _describe_pods(pods: WaitingPods) -> Json:
    return {"pods": pods.pods, "example": pods.name, "requests": _format_requests(pods.requests)}


def _describe_waiting(scene: ReportScene, pods: WaitingPods, read_present: ReadPresent) -> Json:
    wait = pods.wait
    if wait is None:
        reason, message = QUEUED, _NO_DECISION
    else:
        reason = compute_condition_reason(wait)
        message = format_unschedulable(
            wait,
            scene.nodes,
            blocked_detail=pods.detail,
            shows_taints=scene.words.shows_taints,
            shows_others=scene.words.shows_others,
        )
    expected = _foresee(scene.now, pods, wait, read_present)
    return {**_describe_pods(pods), "reason": reason, "message": message, "position": pods.position, **expected}


def _foresee(now: float, pods: WaitingPods, wait: Wait | None, read_present: ReadPresent) -> Json:
    """Return when the first pod is expected to start, or why that is unknown."""
    if not pods.is_placeable:
        return {"expectedStartUnknown": _NOT_PLACEABLE}
    if wait is None or wait.expected is None:
        return {"expectedStartUnknown": _OVERDUE if wait is not None and wait.reserved_on else _NO_RESERVATION}
    if (known := _find_range(read_present(), pods.position, wait.expected)) is not None:
        return {"expectedStart": known}
    left = max(wait.expected - now, 0.0)
    return {
        "expectedStart": {
            "earliestSeconds": floor(left * EARLIEST_PART),
            "latestSeconds": ceil(left * LATEST_PART),
        }
    }


def _find_range(present: Json | None, position: int, expected: float) -> Json | None:
    """Return the range that the present status has for what is first at a position, if the expected moment is in it."""
    if present is None or not present.get("updated"):
        return None
    updated = dt.datetime.fromisoformat(present["updated"]).timestamp()
    for entry in present.get("waiting", []):
        known: Json | None = entry.get("expectedStart")
        if entry["position"] == position and known is not None:
            earliest, latest = updated + known["earliestSeconds"], updated + known["latestSeconds"]
            return known if earliest <= expected <= latest else None
    return None


def _format_requests(amounts: Amounts) -> dict[str, str]:
    return {resource: format_quantity(resource, amount) for resource, amount in amounts}
