"""Gate mode, as a part of the operator: another scheduler places the pods, in the order in which their gates open.

The loop decides as ever; `gate_limiter` says how many pods may be on their way. Here is what is around it: a new leader
finds the pods that are on their way, those whose time is over are told so, and gates that are never decided are opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.other_schedulers.gate_limiter import MOST_UNGATED, TIMEOUT_SECONDS, GateLimiter
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.kube.bind_carrier import BindCarrier
from fairbind.kube.operator.loop import GateRules
from fairbind.kube.writers.binder import Binder
from fairbind.kube.writers.opener import GatedPod, Opener
from fairbind.kube.writers.recorder import Recorder

STRAY_SECONDS = 5.0
"""Between two looks for gates that are never decided."""
STRAYS_AT_ONCE = 32
WIDE = (
    "The pod is not narrowed to the nodes that the policy decided: "
    "their labels kubernetes.io/hostname do not tell them from others."
)
SCALING_UP = (
    "The pod fits on no node now, and one more node could help. Its gate is open so that cluster autoscalers see it. "
    "Its tenant's share counts it."
)
SILENT = "Its scheduler has said nothing about it."
PASSED_BY = f"{SILENT} It has placed pods whose gates were opened later."

_GATED_MESSAGE = "Scheduling is blocked"
"""How the API server's message about gates begins, which stays until a scheduler has looked at the pod."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """scheduler_name: whose pods are rationed. most, timeout_seconds, most_scale_ups: see `GateLimiter`.

    narrows_to_nodes: see `ClusterCache`.
    """

    scheduler_name: str
    most: int = MOST_UNGATED
    timeout_seconds: float = TIMEOUT_SECONDS
    most_scale_ups: int = 0
    narrows_to_nodes: bool = False


@dataclass(slots=True)
class _Overdue:
    """A tenant's pods whose time is over and that no node has. example: one of them, and why, in words."""

    uids: set[str] = field(default_factory=set)
    example: str = ""


class Gates:
    """See the module. rules: what the loop needs."""

    def __init__(self, settings: GateSettings, cache: ClusterCache, binder: Binder, recorder: Recorder) -> None:
        self._cache = cache
        self._binder = binder
        self._recorder = recorder
        self._most = settings.most
        self._seconds = settings.timeout_seconds
        self._overdue: dict[str, _Overdue] = {}
        self._tenants: dict[str, str] = {}
        self._opener: Opener | None = None
        gate_limiter = GateLimiter(
            most=settings.most, timeout_seconds=settings.timeout_seconds, most_scale_ups=settings.most_scale_ups
        )
        self.rules = GateRules(gate_limiter, cache.queries.is_gated, self._give_back, cache.scale_up)

    def make_carrier(self, others: BindCarrier) -> Opener:
        """Return who carries out decisions. others: who carries out those about pods without our gate."""
        self._opener = Opener(self._binder, others, self._cache.queries, on_wide=self._tell_wide)
        return self._opener

    def recover(self, note: Callable[[str, str, bool], None]) -> None:
        """Find the pods that are on their way, as a new leader.

        note: called with UID and tenant of each, and whether it holds capacity.
        """
        opened = self._cache.recover(self._most, but=self._tenants.keys())
        for uid, tenant, has_capacity in opened:
            note(uid, tenant, has_capacity)
        if opened:
            _log.info("%d pods have an open gate and no node yet", len(opened))

    def note_opened(self, uid: str) -> None:
        """Note that the watch has shown a gate open."""
        if self._opener is not None:
            self._opener.note_opened(uid)
        if self._cache.queries.scales_up(uid):
            self._tell(uid, "ScalingUp", SCALING_UP)

    def note_arrival(self, uid: str) -> None:
        """Note that a pod has come to a node, or is gone."""
        tenant = self._tenants.pop(uid, None)
        if tenant is not None:
            self._overdue[tenant].uids.discard(uid)
            if not self._overdue[tenant].uids:
                del self._overdue[tenant]

    def find_unplaced(self) -> Mapping[str, str]:
        """Return for each tenant with pods that were not placed in time how many they are, and why one of them."""
        return {
            tenant: f"{len(overdue.uids)} pods with an open gate have no node after {self._seconds:.0f} s. "
            f"One is {overdue.example}"
            for tenant, overdue in self._overdue.items()
        }

    async def run(self, may_decide: Callable[[], bool]) -> None:
        """Open gates that are never decided, until cancelled."""
        while True:
            await asyncio.sleep(STRAY_SECONDS)
            if may_decide():
                await self._open_strays()

    async def _open_strays(self) -> None:
        assert self._opener is not None
        strays = self._cache.queries.find_stray_gates()
        for first in range(0, len(strays), STRAYS_AT_ONCE):
            pods = (
                GatedPod(facts.namespace, facts.name, facts.uid, facts.version)
                for facts in strays[first : first + STRAYS_AT_ONCE]
            )
            results = Counter(await asyncio.gather(*(self._opener.open_undecided(pod) for pod in pods)))
            _log.info("opened gates of pods that belong to no tenant: %s", dict(sorted(results.items())))

    def _give_back(self, uid: str) -> bool:
        """Take the capacity of a pod whose time is over, say so, and return whether its scheduler has refused it."""
        pod = self._cache.find_pod(uid)
        if not self._cache.give_back(uid) or pod is None:
            return False
        words = pod.scheduled_message or ""
        has_spoken = bool(words) and not words.startswith(_GATED_MESSAGE)
        is_passed = pod.nominated_node is None and self.rules.gate_limiter.was_passed(uid)
        reason = words if has_spoken else PASSED_BY if is_passed else SILENT
        tenant = find_tenant_of_leaf(pod.tenant)
        overdue = self._overdue.setdefault(tenant, _Overdue())
        overdue.uids.add(uid)
        overdue.example = f"{pod.namespace}/{pod.name}: {reason}"
        self._tenants[uid] = tenant
        note = (
            f"The pod's gate is open, and it has no node after {self._seconds:.0f} s. Its tenant's share counts it on."
        )
        self._recorder.tell(pod.namespace, pod.name, uid, "NotPlacedInTime", f"{note} {reason}")
        return has_spoken or is_passed

    def _tell(self, uid: str, reason: str, note: str) -> None:
        pod = self._cache.find_pod(uid)
        if pod is not None:
            self._recorder.tell(pod.namespace, pod.name, uid, reason, note)

    def _tell_wide(self, _namespace: str, uid: str) -> None:
        self._tell(uid, "NotNarrowed", WIDE)
