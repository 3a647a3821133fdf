"""Writes what the scheduler sees into the status of Tenants and SchedulingPolicies.

Only the leader writes, at most once every two seconds for each object and only what changed; while many bindings are in
flight the pace is slower, because a share is not read more often than every few seconds and the API server has better
things to do. What is written is compared with what the API has, so a new leader repeats nothing, and another's edit
of a status is put right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.messages import shorten
from fairbind.cluster.objects.quantity import format_amounts
from fairbind.cluster.tenancy.administration import Administration
from fairbind.cluster.tenancy.object_table import KubeObject
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX, TenantState
from fairbind.kube.client.api import Api, NotAllowedError
from fairbind.kube.client.custom_objects import GROUP, POLICIES, TENANTS, VERSION
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.times import format_time
from fairbind.kube.fair_shares.fair_shares import NOT_SOLVED_YET
from fairbind.kube.observer import SilentObserver
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.complaints import Complaints
from fairbind.model.overview import ClusterOverview, TenantOverview

AT_ONCE = 64
"""So many are compared before others have their turn: a thousand take a tenth of a second."""
INTERVAL_SECONDS = 2.0
BUSY_INTERVAL_SECONDS = 10.0
BUSY_BINDINGS = 8
"""From this many bindings in flight on, the slower pace holds."""
WRITE_TIMEOUT_SECONDS = 5.0
PAUSE_SECONDS = 5.0
"""After a refusal or a lost answer no status of that kind is written for so long, or as long as the server asks for."""
LATE_SECONDS = 60.0
"""How long our own write may take to come back."""
COMPLAINT_SECONDS = 60.0
FIRST_ANSWER_SECONDS = 10.0
"""A new leader waits so long at most for the first fair shares before it writes."""
MAX_UNCLAIMED = 20
"""So many namespaces that no Tenant claims are told one by one."""
MAX_NAMES = 10
"""A message names at most so many things; the rest is counted."""

_log = logging.getLogger(__name__)

Conditions = list[dict[str, Any]]


class StatusWriter:
    """Compares what should be in each status with what is, and writes the difference."""

    def __init__(
        self,
        api: Api,
        administration: Administration,
        *,
        find_overview: Callable[[], ClusterOverview | None],
        find_states: Callable[[], Mapping[str, TenantState]],
        find_unknown_resources: Callable[[], Sequence[str]],
        describe_fair_shares: Callable[[], tuple[str, str, str]],
        may_write: Callable[[], bool],
        count_bindings: Callable[[], int],
        find_unplaced: Callable[[], Mapping[str, str]] | None = None,
        failures: PartFailures | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find_unplaced = find_unplaced
        self._api = api
        self._administration = administration
        self._find_overview = find_overview
        self._find_states = find_states
        self._find_unknown_resources = find_unknown_resources
        self._describe_fair_shares = describe_fair_shares
        self._may_write = may_write
        self._count_bindings = count_bindings
        self._failures = failures or PartFailures(SilentObserver())
        self._clock = clock
        self._written: dict[tuple[str, str], tuple[dict[str, Any], float]] = {}
        self._not_before: dict[str, float] = {}
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)
        self._began: float | None = None

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS / 4)
            with self._failures.contain("status"):
                await self.write_changes()

    async def write_changes(self) -> None:
        """Compare every status once and write what is due."""
        overview = self._find_overview()
        if overview is None or not self._may_write() or self._is_waiting_for_fair_shares(overview):
            return
        states, unknown = self._find_states(), self._find_unknown_resources()
        tenants = {tenant.name: tenant for tenant in (*overview.tenants, *overview.shown)}
        invalid = self._administration.invalid_tenants
        unplaced = None if self._find_unplaced is None else self._find_unplaced()
        wanted: dict[tuple[str, str], tuple[KubeObject, dict[str, Any]]] = {}
        for number, (name, item) in enumerate(list(self._administration.tenants.objects.items())):
            await _give_way(number)
            with self._failures.contain("status"):  # of this object; others can still be written
                status = compute_tenant_status(item, tenants.get(name), states.get(name), invalid.get(name))
                if unplaced is not None:
                    placed = _make_placed_condition(unplaced.get(name), status["observedGeneration"])
                    status["conditions"].append(placed)
                wanted[TENANTS, name] = (item, status)
        for name, item in self._administration.policies.objects.items():
            with self._failures.contain("status"):
                problem = self._administration.invalid_policies.get(name)
                status = compute_policy_status(item, problem, unknown, self._describe_fair_shares(), overview)
                wanted[POLICIES, name] = (item, status)
        self._written = {key: entry for key, entry in self._written.items() if key in wanted}
        for number, ((kind, name), (item, status)) in enumerate(wanted.items()):
            await _give_way(number)
            if self._may_write():
                with self._failures.contain("status"):
                    await self._write_if_changed(kind, name, item, status)

    def _is_waiting_for_fair_shares(self, overview: ClusterOverview) -> bool:
        """Whether the first answer is still to come: a new leader would take fair shares out and put them in again."""
        if self._began is None:
            self._began = self._clock()
        is_known, reason, _ = self._describe_fair_shares()
        is_shown = any(tenant.fair_share is not None for tenant in overview.tenants)
        is_coming = reason == NOT_SOLVED_YET or (is_known == "True" and bool(overview.tenants) and not is_shown)
        return is_coming and self._clock() - self._began < FIRST_ANSWER_SECONDS

    async def _write_if_changed(self, kind: str, name: str, item: KubeObject, status: dict[str, Any]) -> None:
        now = self._clock()
        if now < self._not_before.get(kind, now):
            return
        written, written_at = self._written.get((kind, name), (None, -BUSY_INTERVAL_SECONDS))
        interval = INTERVAL_SECONDS if self._count_bindings() < BUSY_BINDINGS else BUSY_INTERVAL_SECONDS
        if now - written_at < interval:
            return
        present = item.get("status") or {}
        is_recent = now - written_at < LATE_SECONDS  # later, the cluster may have been restored from a backup
        if written is not None and is_recent and _is_older(item, written):
            present = written["status"]  # our own write has not come back yet
        complete = keep_transition_times(status, present, format_time())
        patch = compute_merge_patch(present, complete)
        if not patch:
            return
        path = f"/apis/{GROUP}/{VERSION}/{kind}/{quote(name)}/status"
        body = msgspec.json.encode({"metadata": {"uid": item["metadata"]["uid"]}, "status": patch})
        try:
            answer = await self._api.request(
                "PATCH",
                path,
                body=body,
                content_type="application/merge-patch+json",
                timeout_seconds=WRITE_TIMEOUT_SECONDS,
                guard=self._may_write,
            )
        except NotAllowedError:
            return
        except (ApiError, TransientClusterError) as error:
            self._judge(kind, name, error)
            self._written[kind, name] = ({"metadata": {}, "status": present}, now)
            return
        self._written[kind, name] = (msgspec.json.decode(answer), now)

    def _judge(self, kind: str, name: str, error: ApiError | TransientClusterError) -> None:
        """Pause after a write that failed, and log it: rarely as a warning, and never because the object is gone."""
        level, now, hint = logging.DEBUG, self._clock(), ""
        if not isinstance(error, ApiError) or error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            asked = error.retry_after or 0.0 if isinstance(error, ApiError) else 0.0
            self._not_before[kind] = now + max(asked, PAUSE_SECONDS)
            level = self._complaints.choose_level()
        if isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN:
            hint = f"; the chart's ClusterRole grants patch on {kind}/status"
        fields = {"reason": str(error)} | ({"tenant": name} if kind == "tenants" else {})
        _log.log(level, "the status of %s %s could not be written: %s%s", kind, name, error, hint, extra=fields)


def _is_older(item: KubeObject, written: Mapping[str, Any]) -> bool:
    version = written["metadata"].get("resourceVersion", "0")
    return bool(int(item["metadata"]["resourceVersion"]) < int(version))


async def _give_way(number: int) -> None:
    """Let others have their turn after each group. number: of the object that is looked at next, from 0."""
    if number % AT_ONCE == AT_ONCE - 1:
        await asyncio.sleep(0)


def compute_tenant_status(
    tenant_object: KubeObject, overview: TenantOverview | None, state: TenantState | None, problem: str | None
) -> dict[str, Any]:
    """Return the whole status of a Tenant, its conditions without times.

    overview: None when the tenant counts as if it did not exist; of all below it where there are others. problem: what
    is wrong with its spec, or None.
    The observed generation is that of the spec from which the numbers come; the object may be newer than they are.
    """
    if problem is not None:  # so it is as of this very object
        generation, overview, state = tenant_object["metadata"].get("generation", 0), None, None
    else:
        generation = 0 if state is None else state.generation
    conditions = _make_tenant_conditions(state, problem, generation)
    conditions += _make_tree_conditions(state, generation)
    if overview is None:
        return {
            "observedGeneration": generation,
            "dominantShare": format_share(0.0),
            "dominantResource": "",
            "weightedShare": format_share(0.0),
            "allocated": {},
            "guaranteed": {},
            "keptBack": {},
            "reserved": {},
            "reservedNodes": 0,
            "pods": {"running": 0, "pending": 0},
            "virtualDominantShares": [],
            "conditions": conditions,
        }
    return {
        "observedGeneration": generation,
        "path": "" if state is None else state.path,
        "dominantShare": format_share(overview.dominant_share),
        "dominantResource": overview.dominant_resource or "",
        "weightedShare": format_share(overview.weighted_share),
        **({} if overview.fair_share is None else {"fairShare": format_share(overview.fair_share)}),
        "allocated": format_amounts(overview.allocated),
        "guaranteed": format_amounts(overview.guaranteed),
        "keptBack": format_amounts(overview.kept_back),
        "reserved": format_amounts(overview.reserved),
        "reservedNodes": overview.reserved_nodes,
        "pods": {"running": overview.running, "pending": sum(overview.pending.values())},
        "virtualDominantShares": [
            {"serverClass": name, "share": format_share(share)}
            for name, share in sorted(overview.virtual_dominant_shares.items())
        ],
        "conditions": conditions,
    }


def compute_policy_status(
    policy_object: KubeObject,
    problem: str | None,
    unknown_resources: Sequence[str] = (),
    fair_shares: tuple[str, str, str] = ("False", NOT_SOLVED_YET, "There is no answer yet."),
    overview: ClusterOverview | None = None,
) -> dict[str, Any]:
    """Return the whole status of a SchedulingPolicy, its conditions without times.

    problem: what is wrong with its spec, or None. unknown_resources: fairness resources that no node has. fair_shares:
    status, reason and message of the condition about them. overview: who holds what, also in namespaces that no Tenant
    claims; None: unknown.
    """
    generation = policy_object["metadata"].get("generation", 0)
    if problem is not None:
        shortcoming = "InvalidSpec", f"The defaults apply, because this object is invalid: {problem}"
    elif unknown_resources:
        shortcoming = "UnknownResource", f"No node has these fairness resources: {_join(unknown_resources)}."
    else:
        shortcoming = None
    ready = (
        _make_condition("Ready", "True", "Applied", "Applies to every cycle.", generation)
        if shortcoming is None
        else _make_condition("Ready", "False", *shortcoming, generation)
    )
    known = _make_condition("FairSharesKnown", *fair_shares, generation)
    unclaimed = {} if overview is None else {"unclaimed": compute_unclaimed(overview)}
    return {"observedGeneration": generation, **unclaimed, "conditions": [known, ready]}


def compute_unclaimed(overview: ClusterOverview) -> dict[str, Any]:
    """Return what namespaces that no Tenant claims hold and want: all together, and the largest one by one."""
    tenants = [tenant for tenant in overview.tenants if tenant.name.startswith(IMPLICIT_PREFIX)]
    held = Counter[str]()
    for tenant in tenants:
        held.update(tenant.allocated)
    shares = {r: held[r] / capacity for r, capacity in overview.capacity.items() if r in overview.counting and held[r]}
    dominant = max(sorted(shares), key=shares.__getitem__, default="")
    largest = nsmallest(MAX_UNCLAIMED, tenants, key=lambda t: (-t.dominant_share, -sum(t.pending.values()), t.name))
    return {
        "namespaces": len(tenants),
        "dominantShare": format_share(shares.get(dominant, 0.0)),
        "dominantResource": dominant,
        "running": sum(tenant.running for tenant in tenants),
        "pending": sum(sum(tenant.pending.values()) for tenant in tenants),
        "largest": [
            {
                "namespace": tenant.name.removeprefix(IMPLICIT_PREFIX),
                "dominantShare": format_share(tenant.dominant_share),
                "dominantResource": tenant.dominant_resource or "",
                "running": tenant.running,
                "pending": sum(tenant.pending.values()),
            }
            for tenant in largest
        ],
    }


def _make_tenant_conditions(state: TenantState | None, problem: str | None, generation: int) -> Conditions:
    conflicts = state.conflicts if state is not None else {}
    if conflicts:
        named = _join([f"{namespace} (Tenant {owner})" for namespace, owner in sorted(conflicts.items())])
        message = f"An older Tenant claims and keeps: {named}."
        conflict = _make_condition("NamespacesConflict", "True", "ClaimedByOlderTenant", message, generation)
    else:
        message = "No older Tenant claims a namespace of this one."
        conflict = _make_condition("NamespacesConflict", "False", "NoConflict", message, generation)
    reason, message = _find_shortcoming(state, problem)
    status = "True" if reason == "AsWritten" else "False"
    return [conflict, _make_condition("Ready", status, reason, message, generation)]


def _make_tree_conditions(state: TenantState | None, generation: int) -> Conditions:
    """Return what there is to say of the parent that a Tenant names, and of its guarantee."""
    conditions: Conditions = []
    if state is None:
        return conditions
    if state.overcommitted:
        message = shorten(f"Guarantees of siblings are scaled by weight: {'; '.join(state.overcommitted)}.")
        found = _make_condition("GuaranteeOvercommitted", "True", "MoreThanNodesHave", message, generation)
        conditions.append(found)
    elif state.overcommitted is not None:
        message = "The nodes have what is guaranteed to the tenant and its siblings."
        conditions.append(_make_condition("GuaranteeOvercommitted", "False", "NodesHaveEnough", message, generation))
    if state.parent_trouble is not None:
        reason, message = state.parent_trouble
        message = shorten(f"{message[:1].upper()}{message[1:]}.")
        conditions.append(_make_condition("ParentValid", "False", reason, message, generation))
    elif state.parent is not None:
        message = f"The path of the tenant is {state.path}."
        conditions.append(_make_condition("ParentValid", "True", "ParentCounts", message, generation))
    return conditions


def _make_placed_condition(unplaced: str | None, generation: int) -> dict[str, Any]:
    """Return the condition about pods whose gate is open. unplaced: about those without a node in time, or None."""
    if unplaced is None:
        message = "Every pod with an open gate was placed in time, or is on its way."
        return _make_condition("PodsPlaced", "True", "InTime", message, generation)
    return _make_condition("PodsPlaced", "False", "NotPlacedInTime", shorten(unplaced), generation)


def _find_shortcoming(state: TenantState | None, problem: str | None) -> tuple[str, str]:
    """Return reason and message: what of the Tenant has no effect, the gravest first."""
    if problem is not None:
        return "InvalidSpec", f"The Tenant counts as if it did not exist: {problem}"
    if state is None:
        return "NotSeenYet", "The scheduler has not taken the Tenant into account yet."
    lost = sorted(state.conflicts)
    shortcomings = (
        (
            state.claims_nothing,
            "ClaimsNothing",
            "No namespace belongs to the Tenant: it has neither spec.namespaces nor spec.namespaceSelector.",
        ),
        (
            bool(state.missing),
            "NamespaceNotFound",
            f"These claimed namespaces do not exist: {_join(state.missing)}. They count once they do.",
        ),
        (state.parent_trouble is not None, "ParentNotValid", _say_of_the_parent(state)),
        (bool(lost), "NamespacesConflict", f"Older Tenants keep some of the claimed namespaces: {_join(lost)}."),
        (
            bool(state.unknown_resources),
            "UnknownResource",
            f"spec.resourceWeights names what does not count for shares: {_join(state.unknown_resources)}.",
        ),
        (
            bool(state.overcommitted),
            "GuaranteeOvercommitted",
            "spec.guarantee counts in part: the condition GuaranteeOvercommitted has the amounts.",
        ),
    )
    for is_there, reason, message in shortcomings:
        if is_there:
            return reason, message
    return "AsWritten", "Every field of the Tenant takes effect."


def _say_of_the_parent(state: TenantState) -> str:
    return f"spec.parent {state.parent} does not count: the condition ParentValid says why."


def format_share(share: float) -> str:
    """Return a share for people: three digits, and no floating-point number in the API. Metrics have all digits."""
    return f"{share:.3f}"


def _join(names: Sequence[str]) -> str:
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _make_condition(kind: str, status: str, reason: str, message: str, generation: int) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation}


def keep_transition_times(status: dict[str, Any], present: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return the status with times in its conditions: the present ones' where nothing turned, else `now`."""
    known = {condition.get("type"): condition for condition in present.get("conditions") or []}
    timed = []
    for condition in status["conditions"]:
        before = known.get(condition["type"], {})
        since = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
        timed.append({**condition, "lastTransitionTime": since or now})
    return {**status, "conditions": timed}


def compute_merge_patch(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RFC 7386 patch that makes `wanted` of `present`; empty when they are equal.

    >>> compute_merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}})
    {'b': {'d': None, 'c': 4}}
    """
    patch: dict[str, Any] = {key: None for key in present if key not in wanted}
    for key, value in wanted.items():
        if key not in present:
            patch[key] = value
        elif isinstance(value, Mapping) and isinstance(present[key], Mapping):
            if inner := compute_merge_patch(present[key], value):
                patch[key] = inner
        elif value != present[key]:
            patch[key] = value
    return patch
