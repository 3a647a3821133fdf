"""The one place where the recorded histories touch the mirror: telling it of objects, asking it, deciding.

The cycle itself and its text come from `scheduling.recorded`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from cluster.builders import SCHEDULER, Json, read_namespace, read_node, read_pod
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.messages import format_unschedulable
from fairbind.cluster.tenancy.policies import parse_policy
from fairbind.cluster.tenancy.tenants import parse_tenant
from scheduling.recorded import build
from scheduling.recorded.render import render_overview, render_report, render_world

ResourceType = Literal["pods", "nodes", "namespaces"]
FAILING_WITHOUT_NODES = ("ps-dsf", "rps-dsf")
"""On the day of the recording a cycle of these raised an IndexError when there was no node at all: a fault, which is
not to be kept, so such cycles are left out."""
SAID = 4
"""Of so many waits a cycle the message is recorded."""
NOW, ON_THE_DAY = "takes the next free capacity", "takes the next free room"
"""Words of the message that have changed since the recording; what is decided has not."""


class Mirrored:
    """A mirror that hears of JSON, and decides as the scheduling loop does."""

    def __init__(self, *, has_memory: bool) -> None:
        self._cache = ClusterCache(SCHEDULER, lambda: None)
        self._decider = build.Decider(has_memory=has_memory)
        self._report: build.CycleReport | None = None

    def tell(self, kind: ResourceType, item: Json, *, is_deleted: bool) -> None:
        match kind:
            case "pods":
                pods, pod = self._cache.pods, read_pod(item)
                pods.delete(pod) if is_deleted else pods.apply(pod)
            case "nodes":
                nodes, node = self._cache.nodes, read_node(item)
                nodes.delete(node) if is_deleted else nodes.apply(node)
            case "namespaces":
                namespaces, namespace = self._cache.namespaces, read_namespace(item)
                namespaces.delete(namespace) if is_deleted else namespaces.apply(namespace)

    def tell_list(self, kind: ResourceType, items: Sequence[Json], version: str) -> None:
        match kind:
            case "pods":
                self._cache.pods.replace([read_pod(item) for item in items], version)
            case "nodes":
                self._cache.nodes.replace([read_node(item) for item in items], version)
            case "namespaces":
                self._cache.namespaces.replace([read_namespace(item) for item in items], version)

    def put_tenant(self, tenant: Json) -> None:
        self._cache.set_tenant(parse_tenant(tenant))

    def remove_tenant(self, name: str) -> None:
        self._cache.delete_tenant(name)

    def put_policy(self, policy: Json | None) -> None:
        self._cache.set_policy(None if policy is None else parse_policy(policy))

    def set_targets(self, targets: build.Targets | None) -> None:
        self._cache.set_targets(targets)

    def decide(self, now: float, limit: int | None) -> tuple[str, list[tuple[str, str]]]:
        """Run a cycle; return what it said, and the bindings as (uid, node)."""
        snapshot, settings = self._cache.build_snapshot(), self._cache.settings
        if not snapshot.servers.names and settings.policy in FAILING_WITHOUT_NODES:
            return render_world(snapshot), []
        report = self._report = self._decider.decide(snapshot, settings.policy, settings.seed, now, limit)
        nodes = len(snapshot.servers.names)
        said = (f"message {self._format(wait.first.uid, n, nodes)}" for n, wait in enumerate(report.waits[:SAID]))
        return "\n".join((render_world(snapshot), render_report(report), *said)), build.find_bindings(report)

    def _format(self, uid: str, wait: int, nodes: int) -> str:
        """Say to a waiting pod why it waits."""
        assert self._report is not None
        pod = self._cache.find_pod(uid)
        detail = None if pod is None else pod.unsupported
        message = format_unschedulable(self._report.waits[wait], nodes, blocked_detail=detail)
        return message.replace(NOW, ON_THE_DAY)

    def note_waits(self) -> None:
        """Hand the waits of the last cycle back, for the overview."""
        if self._report is not None:
            self._cache.note_waits(self._report.waits)

    def assume(self, uid: str, node: str) -> bool:
        return self._cache.assume(uid, node)

    def forget(self, uid: str, *, is_postponed: bool) -> None:
        self._cache.forget(uid, postponed=is_postponed)

    def resume(self, uid: str) -> None:
        self._cache.resume(uid)

    def render_pod(self, uid: str, node: str) -> str:
        """What the mirror says of a pod that was decided to go to a node."""
        pod = self._cache.find_pod(uid)
        seen = "gone" if pod is None else f"{pod.tenant} {pod.node} {pod.assumed} {pod.is_waiting}"
        queries = self._cache.queries
        return f"pod {uid} {seen} may={queries.may_use(uid, node)} room={queries.has_capacity(uid, node)}"

    def render_overview(self, fair_shares: Mapping[str, float] | None) -> str:
        return render_overview(self._cache.queries.build_overview(fair_shares))
