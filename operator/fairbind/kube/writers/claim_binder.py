"""Carries out decisions about pods with unbound claims: first the claims get their volumes, then the pod its node.

A pod with unbound claims of the mode `WaitForFirstConsumer` holds its capacity on a node from the decision on. What its
plan says is written behind the fence: a volume that is there is given to its claim by `claimRef`, and for a claim that
needs a new volume the node is named in the annotation that provisioners look for. The controllers do the rest. Only
when all claims are bound is the pod bound, by the `Binder`.

A provisioner that fails takes the annotation away, and the pod is decided again, as it is when its claims are not bound
after `CLAIM_SECONDS`; the claim rests before that (`claim_rests`). While claims are awaited, all else on which the
decision depends is looked at again and again. When the pod goes, or may not use its node any more, it gives its place
up, and what was written and had no effect yet is taken back. Every write names the version of the object that it was
decided on, so what others changed is never overwritten. A replica that does not lead any more writes nothing; the next
one finds the annotation and the `claimRef` and goes on from there. An annotation that names a node that is gone, it
takes away.

A pod that waits for its claims leaves its place to others (`on_wait`), and `volume_plans` bounds how many may. Of a
plan of several pods the claims of all are bound before the first pod is (`PlanCarrier`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from fairbind.cluster.loop.claim_rests import ClaimRests
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.cluster.objects.volume_facts import SELECTED_NODE, ClaimFacts, name_claim
from fairbind.cluster.state.volume_plans import VolumePlan
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.writers.binder import LOOK_TIMEOUT_SECONDS, MOST_ATTEMPTS, Binder, name_binding

CLAIM_SECONDS = 600.0
"""A pod whose claims are not bound by then gives its capacity back, as with kube-scheduler."""
LOOK_SECONDS = 0.25
SLOW_LOOK_SECONDS = 1.0
"""Between two looks at the claims of a pod, and between later ones, after `QUICK_SECONDS`; they are in memory."""
QUICK_SECONDS = 20.0
KEEP_SECONDS = 1.0
"""Between two looks for claims whose rest is over, and for those of nodes that are gone."""
MOST_FREED = 10
"""So many of the latter are freed at a look."""

_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_FREE = frozenset({"Available", "Pending"})
"""Phases in which a volume has nothing of another claim in it. A released one has the files of a claim that is gone."""
_MERGE = "application/merge-patch+json"
_FINAL = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""Answers that the next attempt would get, too."""

Json = dict[str, Any]
Compute = Callable[[Json], Json | None]
Trouble = tuple[tuple[str, ...], str]
"""The claims that will not be bound, and why."""


class _ImpossibleError(Exception):
    """The claim cannot be bound as the plan says."""


class Claims(Protocol):
    """The claims, as the watch shows them."""

    def find_plan(self, uid: str) -> VolumePlan | None:
        """Return the plan of a pod; None when it has none, or not any more."""

    def find_claim(self, key: str) -> ClaimFacts | None:
        """Return a claim by `namespace/name`."""

    def has_volume(self, name: str) -> bool:
        """Whether a volume is there."""

    def may_await(self, uid: str, node: str) -> bool:
        """Whether a pod may go to its node still once its claims are bound."""

    def find_claims_to_free(self) -> dict[str, str]:
        """Return nodes that are gone by the claims for which volumes were to be made there for our pods."""


class RestClaim(Protocol):
    """Takes note that a claim rests, or not any more."""

    def __call__(self, claim: str, *, rests: bool) -> None: ...  # noqa: D102


class ClaimBinder:
    """See the module. It is asked in the place of the `Binder` that it uses.

    on_wait: called with the UID of a pod when it begins to wait for its claims (True), and when that is over.
    """

    def __init__(
        self,
        binder: Binder,
        claims: Claims,
        rest_claim: RestClaim,
        *,
        on_refused: Callable[[str, str, str, str], None] = lambda _namespace, _uid, _deed, _answer: None,
        on_result: Callable[[str], None] = lambda _result: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """on_refused: as the binder's. on_result: counts what ends before the binder has it."""
        self._binder = binder
        self._claims = claims
        self._rest_claim = rest_claim
        self._rests = ClaimRests()
        self.on_wait: Callable[[str, bool], None] = lambda _uid, _awaits: None
        self._on_refused = on_refused
        self._on_result = on_result
        self._clock = clock
        self._sleep = sleep
        self._abandoned: set[str] = set()

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        on_stall: Callable[[bool], None] = lambda _failed: None,
    ) -> BindResult:
        """Bind the claims of a pod, then the pod, and say what became of it. Raises nothing but CancelledError."""
        if self.must_prepare(uid):
            self.on_wait(uid, True)
            try:
                result = await self.prepare(namespace, uid, node)
            finally:
                self.on_wait(uid, False)
            if result is not None:
                return result
        return await self._binder.bind(namespace, name, uid, node, on_stall)

    def find_obstacle(self, uid: str, node: str) -> BindResult | None:
        """Return how the binding of a pod without unbound claims would end unsent; None: it would be sent now."""
        return self._binder.find_obstacle(uid, node)

    def must_prepare(self, uid: str) -> bool:
        """Tell whether claims of a pod must be bound before it is."""
        return self._claims.find_plan(uid) is not None

    async def prepare(self, namespace: str, uid: str, node: str) -> BindResult | None:
        """Bind the claims of a pod; None when all of them are bound."""
        plan = self._claims.find_plan(uid)
        answer: list[str] = []
        try:
            result = None if plan is None else await self._bind_claims(plan, answer)
        finally:
            is_abandoned = uid in self._abandoned
            self._abandoned.discard(uid)
        if result is not None:
            has_failed = result is BindResult.FAILED or (result is BindResult.DEFERRED and not is_abandoned)
            self._on_result(BindResult.FAILED if has_failed else result)
            if has_failed and answer:
                self._on_refused(namespace, uid, name_binding(node), answer[-1])
        return result

    def abandon(self, uid: str) -> None:
        """End `prepare` of a pod: what is not bound yet stays unbound, because others of its plan cannot be bound."""
        self._abandoned.add(uid)

    async def _bind_claims(self, plan: VolumePlan, answer: list[str]) -> BindResult | None:
        """Have the claims bound; None when all of them are. answer: gets why not, in words."""
        for key, volume in plan.volumes:
            claim = self._claims.find_claim(key)
            if (lost := await self._give_up_lost(plan)) is not None:
                return lost
            assert claim is not None  # else the plan is lost
            if volume:
                result = await self._write(_path_volume(volume), partial(_name_claim, claim=claim), answer)
            else:
                result = await self._write(_path_claim(claim), partial(_select_node, node=plan.node), answer)
            if result is BindResult.DEFERRED:
                return self._fail(answer, ((key,), answer[-1]))
            if result is not None:
                return result
        return await self._wait(plan, answer)

    async def _wait(self, plan: VolumePlan, answer: list[str]) -> BindResult | None:
        """Wait until all claims of a plan are bound, or will not be."""
        began = self._clock()
        seen: set[str] = set()
        while True:
            if not self._binder.is_open():
                return BindResult.FENCED
            claims = {key: self._claims.find_claim(key) for key, _ in plan.volumes}
            unbound = tuple(key for key, claim in claims.items() if claim is None or not claim.is_bound)
            if not unbound:
                for key in claims:
                    self._rests.succeed(key)
                return None
            if (lost := await self._give_up_lost(plan)) is not None:
                return lost
            trouble, waited = self._find_trouble(plan, claims, seen), self._clock() - began
            if trouble is None and waited >= CLAIM_SECONDS:
                trouble = unbound, f"its persistentvolumeclaims were not bound within {CLAIM_SECONDS:.0f} s"
            if trouble is not None:
                return self._fail(answer, trouble)
            await self._sleep(LOOK_SECONDS if waited < QUICK_SECONDS else SLOW_LOOK_SECONDS)

    async def _give_up_lost(self, plan: VolumePlan) -> BindResult | None:
        """Take back what was written for a pod that is gone, abandoned, or may not use its node any more; else None."""
        if self._claims.find_plan(plan.uid) is not plan:
            result = BindResult.GONE
        elif plan.uid in self._abandoned:
            result = BindResult.DEFERRED
        elif not self._claims.may_await(plan.uid, plan.node):
            result = BindResult.STALE
        else:
            return None
        await self._take_back(plan)
        return result

    def _find_trouble(self, plan: VolumePlan, claims: dict[str, ClaimFacts | None], seen: set[str]) -> Trouble | None:
        """Return why claims will not be bound. seen: those of which the watch has shown that a node is named."""
        for key, volume in plan.volumes:
            claim = claims[key]
            if volume and not self._claims.has_volume(volume):
                return (key,), f"the persistentvolume {volume} is gone"
            if volume or claim is None or claim.request is None:
                continue
            if claim.request.selected_node == plan.node:
                seen.add(key)
            elif key in seen:
                return (key,), f"no volume could be made for the persistentvolumeclaim {key} on this node"
        return None

    async def _take_back(self, plan: VolumePlan) -> None:
        """Undo for claims that are not bound what was written for a pod, as far as it still can be."""
        for key, volume in plan.volumes:
            claim = self._claims.find_claim(key)
            if claim is not None and claim.is_bound:
                continue
            if volume:
                await self._write(_path_volume(volume), partial(_unname_claim, key=key), [])
            elif claim is not None:
                await self._write(_path_claim(claim), partial(_unselect_node, node=plan.node), [])

    def _fail(self, answer: list[str], trouble: Trouble) -> BindResult:
        """Let claims rest; their pods wait on as before, and others of their namespace do not wait for them."""
        keys, words = trouble
        for key in keys:
            if self._claims.find_claim(key) is not None:
                self._rests.fail(key, self._clock())
                self._rest_claim(key, rests=True)
        answer.append(words)
        return BindResult.DEFERRED

    async def run(self, may_decide: Callable[[], bool]) -> None:
        """End the rests of claims, and free those of nodes that are gone, until cancelled.

        Those of a node are freed when two looks in a row find it gone.
        """
        seen: dict[str, str] = {}
        while True:
            await self._sleep(KEEP_SECONDS)
            for key in self._rests.take_due(self._clock()):
                self._rest_claim(key, rests=False)
            before, seen = seen, self._claims.find_claims_to_free() if may_decide() else {}
            gone = [(key, node) for key, node in sorted(seen.items()) if before.get(key) == node]
            for key, node in gone[:MOST_FREED]:
                if (claim := self._claims.find_claim(key)) is not None:
                    await self._write(_path_claim(claim), partial(_unselect_node, node=node), [])

    async def _write(self, path: str, compute: Compute, answer: list[str]) -> BindResult | None:
        """Change one object behind the fence; None when it is done, or was done before.

        compute: returns the change for the object as it is now, or None; after an _ImpossibleError the answer is
        DEFERRED.
        """
        binder = self._binder
        for attempt in range(MOST_ATTEMPTS):
            await binder.wait_for_pace()
            if not binder.is_open():
                return BindResult.FENCED
            try:
                async with binder.take_slot(lambda: None):
                    await self._change(path, compute)
            except NotAllowedError:
                return BindResult.FENCED
            except _ImpossibleError as error:
                answer.append(str(error))
                return BindResult.DEFERRED
            except ApiError as error:
                answer.append(str(error))
                if error.status == HTTPStatus.TOO_MANY_REQUESTS:
                    binder.hold_back(error)
                elif error.status in _FINAL:
                    binder.complain(f"claims {error.status}", f"{path} cannot be changed: {error}", reason=str(error))
                    return BindResult.FAILED
            except (TransientClusterError, msgspec.MsgspecError) as error:
                answer.append(str(error))
                binder.complain("claims", f"{path} could not be changed, trying again: {error}", reason=str(error))
            else:
                return None
            await binder.back_off(attempt)
        return BindResult.FAILED

    async def _change(self, path: str, compute: Compute) -> None:
        api, binder = self._binder.api, self._binder
        found = msgspec.json.decode(await api.request("GET", path, timeout_seconds=LOOK_TIMEOUT_SECONDS))
        patch = compute(found)
        if patch is None:
            return
        patch["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        await api.request(
            "PATCH",
            path,
            query=binder.query,
            body=msgspec.json.encode(patch),
            content_type=_MERGE,
            timeout_seconds=binder.timeout_seconds,
            guard=binder.is_open,
        )


def _name_claim(found: Json, claim: ClaimFacts) -> Json | None:
    """Return what gives a volume to a claim; None when the claim has it. Raises _ImpossibleError unless it is free."""
    named = found["spec"].get("claimRef")
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
    }
    is_free = _find_phase(found) in _FREE
    if named is None and is_free:
        return {"metadata": {"annotations": {_BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": reference}}
    named = named or {}
    is_named = (named.get("namespace"), named.get("name")) == (claim.namespace, claim.name)
    if named and (not is_named or named.get("uid", "") not in {"", claim.uid}):
        raise _ImpossibleError("the persistentvolume was given to another claim")
    if named.get("uid"):
        return None
    if not is_free:
        raise _ImpossibleError(f"the persistentvolume is not free: its phase is {_find_phase(found) or 'not known'}")
    return {"metadata": {}, "spec": {"claimRef": reference}}  # a person named it


def _unname_claim(found: Json, key: str) -> Json | None:
    """Return what takes a volume back from a claim; None when we did not give it, or the claim may have used it."""
    named = found["spec"].get("claimRef") or {}
    is_ours = (found["metadata"].get("annotations") or {}).get(_BOUND_BY_CONTROLLER) == "yes"
    is_free = _find_phase(found) in _FREE
    if not is_ours or not is_free or name_claim(named.get("namespace", ""), named.get("name", "")) != key:
        return None
    return {"metadata": {"annotations": {_BOUND_BY_CONTROLLER: None}}, "spec": {"claimRef": None}}


def _find_phase(found: Json) -> str:
    return str(found.get("status", {}).get("phase") or "")


def _select_node(found: Json, node: str) -> Json | None:
    """Return what has a volume made for a claim and a node; None when that is so already."""
    selected = (found["metadata"].get("annotations") or {}).get(SELECTED_NODE)
    if found["spec"].get("volumeName") or selected == node:
        return None
    if selected is not None:
        raise _ImpossibleError(f"a volume is being made for the persistentvolumeclaim on {selected}")
    return {"metadata": {"annotations": {SELECTED_NODE: node}}}


def _unselect_node(found: Json, node: str) -> Json | None:
    """Return what takes that back; None when a volume was made, or another node is selected."""
    selected = (found["metadata"].get("annotations") or {}).get(SELECTED_NODE)
    if found["spec"].get("volumeName") or selected != node:
        return None
    return {"metadata": {"annotations": {SELECTED_NODE: None}}}


def _path_volume(name: str) -> str:
    return f"/api/v1/persistentvolumes/{quote(name)}"


def _path_claim(claim: ClaimFacts) -> str:
    return f"/api/v1/namespaces/{quote(claim.namespace)}/persistentvolumeclaims/{quote(claim.name)}"
