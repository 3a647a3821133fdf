"""Carries out decisions about pods that wait behind our gate: one PATCH of each, which opens the gate and narrows it.

All that holds for bindings (`binder`) holds here: slots, the fence in the moment in which the bytes are handed over,
repetition after a lost answer, and no guess at what became of a pod. A gate that is open already counts as opened. When
the pod has changed since we saw it (409), it is looked at, and opened as it is now if ours is still its only gate.

When the watch shows the gate open (`note_opened`), it is open, whatever becomes of the answer: the opening has ended,
and nothing more is sent. So lost answers and an overloaded server put no tenant back whose gates do open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Protocol

import msgspec

from fairbind.cluster.cache.queries import GateOpening
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.cluster.other_schedulers.opening import make_opening
from fairbind.kube.bind_carrier import BindCarrier
from fairbind.kube.client.api import STRATEGIC
from fairbind.kube.client.errors import ApiError
from fairbind.kube.writers.binder import Binder, Binding, Pod, Unresolved

_SENT_AT_ONCE = 2
"""So often a gate is asked to open before the slot is left to others, while the pod changes."""

OnStall = Callable[[bool], None]


class Openings(Protocol):
    """The cache, as far as rationed pods are concerned."""

    def find_opening(self, uid: str, node: str) -> GateOpening | None:
        """Return what is to be done for a pod that waits behind our gate; None when it does not."""

    def find_hosts(self, nodes: Sequence[str]) -> list[str] | None:
        """Return the host names of the first nodes, by which a pod is narrowed; None: they do not tell nodes apart."""


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A pod whose gate is to be opened. version: its resourceVersion as we saw it last."""

    namespace: str
    name: str
    uid: str
    version: str


class Opener:
    """See the module. It is asked in the place of the carrier that it uses for other pods.

    on_wide: called with namespace and UID of a pod that should be narrowed and cannot be, because labels do not tell
    its nodes apart.
    """

    def __init__(
        self,
        binder: Binder,
        others: BindCarrier,
        openings: Openings,
        *,
        on_wide: Callable[[str, str], None] = lambda _namespace, _uid: None,
    ) -> None:
        self._binder = binder
        self._others = others
        self._openings = openings
        self._on_wide = on_wide
        self._under_way: dict[str, Opening] = {}

    def note_opened(self, uid: str) -> None:
        """Note that the watch has shown a gate open."""
        if (opening := self._under_way.get(uid)) is not None:
            opening.note_opened()

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, on_stall: OnStall = lambda _failed: None
    ) -> BindResult:
        """Open the gate of a pod that has one, or bind it, and say what became of it. Raises only CancelledError."""
        opening = self._openings.find_opening(uid, node)
        if opening is None:
            return await self._others.bind(namespace, name, uid, node, on_stall)
        named = opening.nodes if opening.nodes is not None else opening.closed or None
        hosts = None if named is None else self._openings.find_hosts(named)
        if named is not None and hosts is None:
            self._on_wide(namespace, uid)
        pod = GatedPod(namespace, name, uid, opening.resource_version)
        must_look = hosts is not None and opening.has_affinity
        avoids = opening.nodes is None
        made = Opening(self._binder, pod, node, on_stall, hosts=hosts, avoids=avoids, must_look=must_look)
        return await self._carry(made)

    async def open_undecided(self, pod: GatedPod) -> BindResult:
        """Open the gate of a pod that is never decided, because it belongs to no tenant."""
        return await self._carry(Opening(self._binder, pod, "", lambda _failed: None))

    async def _carry(self, opening: Opening) -> BindResult:
        self._under_way[opening.uid] = opening
        try:
            return await self._binder.carry(opening)
        finally:
            self._under_way.pop(opening.uid, None)


class Opening(Binding):
    """One gate on its way to being open.

    hosts: to which the pod is narrowed; None: it is not. avoids: whether they are those where it may not go. must_look:
    whether the pod's own affinity must be read first.
    node: where it holds capacity meanwhile; empty when it holds none.
    """

    right: ClassVar[str] = "patch on pods in gate mode"

    def __init__(
        self,
        binder: Binder,
        pod: GatedPod,
        node: str,
        on_stall: OnStall,
        *,
        hosts: Sequence[str] | None = None,
        avoids: bool = False,
        must_look: bool = False,
    ) -> None:
        super().__init__(binder, pod.namespace, pod.name, pod.uid, node, on_stall)
        self._version = pod.version
        self._hosts = hosts
        self._avoids = avoids
        self._affinity: dict[str, Any] | None = None
        self._must_look = must_look
        self._is_seen_open = asyncio.Event()

    @property
    def deed(self) -> str:
        """What is to be done, for people."""
        return "opening its gate"

    def note_opened(self) -> None:
        """Note that the watch has shown the gate open."""
        self._is_seen_open.set()

    async def carry_out(self) -> BindResult:
        """Open the gate, or find out why not, or see that it is open."""
        loop = asyncio.get_running_loop()
        sending, seeing = loop.create_task(super().carry_out()), loop.create_task(self._is_seen_open.wait())
        try:
            await asyncio.wait({sending, seeing}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            sending.cancel()
            raise
        finally:
            seeing.cancel()
        if not self._is_seen_open.is_set():
            return sending.result()
        self._binder.let_end(sending)  # an answer that comes keeps its connection
        return BindResult.BOUND

    async def _send(self) -> BindResult | Unresolved | None:
        if self._is_seen_open.is_set():
            return BindResult.BOUND
        for _ in range(_SENT_AT_ONCE):
            if self._must_look and (found := await self._look()) is not None:
                return found
            self._must_look = False
            outcome = await super()._send()
            if not self._must_look:
                return outcome
        return None

    async def _request(self) -> None:
        await self._api.request(
            "PATCH",
            self._pod_path,
            query=self._binder.query,
            body=msgspec.json.encode(self._make_patch()),
            content_type=STRATEGIC,
            timeout_seconds=self._binder.timeout_seconds,
            guard=self._binder.is_open,
        )

    def _make_patch(self) -> dict[str, Any]:
        return make_opening(self.uid, self._version, self._affinity, self._hosts, avoids=self._avoids)

    def _judge(self, error: ApiError) -> BindResult | Unresolved | None:
        if error.status == HTTPStatus.CONFLICT:
            self._binder.note_allowed()
            self._must_look = True
            return None
        return super()._judge(error)

    def _compare(self, pod: Pod) -> BindResult | None:
        if pod.metadata.uid != self.uid:
            return BindResult.GONE
        if pod.metadata.deletionTimestamp is not None:
            return BindResult.CONFLICT
        gates = [gate.name for gate in pod.spec.schedulingGates or ()]
        if not gates:
            return BindResult.BOUND
        self._version, self._affinity = pod.metadata.resourceVersion, pod.spec.affinity
        return None if gates == [FAIRBIND_GATE] else BindResult.CONFLICT
