"""Another scheduler before the API server in memory: it spreads pods over the nodes, and is as slow as one likes.

What fits nowhere it marks Unschedulable and tries again, as kube-scheduler does.
"""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING

from cluster.builders import Json

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.assembled.replicas import Scene

LOOKS_PER_SECOND = 50.0


class OtherScheduler:
    """Places pods in the order in which their gates were opened, each on the node with most cores left.

    per_second: how many pods it looks at. latency_seconds: after which it sees an open gate. refuses: whether it never
    places the pod with this key on that node. ignores: whether it says nothing about the pod with this key. It keeps
    its own account of what is free on nodes, and makes it anew when pods are gone or others have come with nodes.
    """

    def __init__(
        self,
        scene: Scene,
        *,
        per_second: float,
        latency_seconds: float,
        refuses: Callable[[str, str], bool] = lambda _key, _node: False,
        ignores: Callable[[str], bool] = lambda _key: False,
    ) -> None:
        self._server = scene.server
        self._per_second = per_second
        self._latency_seconds = latency_seconds
        self._refuses = refuses
        self._ignores = ignores
        self._queue: list[str] = []
        self._seen = 0
        self._keys: dict[str, str] = {}
        self._free: dict[str, dict[str, Fraction]] = {}
        self._pods = 0
        self._account()

    @property
    def left(self) -> Fraction:
        """How many cores are free."""
        return sum((free["cpu"] for free in self._free.values()), Fraction(0))

    async def run(self) -> None:
        """Schedule until cancelled."""
        credit = 0.0
        while True:
            await asyncio.sleep(1 / LOOKS_PER_SECOND)
            self._take_opened()
            credit = min(credit + self._per_second / LOOKS_PER_SECOND, max(1.0, self._per_second / LOOKS_PER_SECOND))
            while credit >= 1.0 and self._queue:
                credit -= 1.0
                self._schedule(self._queue.pop(0))

    def _account(self) -> None:
        self._free = {node: self._server.find_free(node) for node in sorted(self._server.kinds["nodes"].objects)}
        self._pods = len(self._server.kinds["pods"].objects)

    def _take_opened(self) -> None:
        is_known = self._server.kinds["nodes"].objects.keys() == self._free.keys()
        if not is_known or len(self._server.kinds["pods"].objects) != self._pods:
            self._account()
        opened = self._server.opened
        while self._seen < len(opened) and opened[self._seen][0] + self._latency_seconds <= self._server.now:
            self._queue.append(self._find_key(opened[self._seen][2]))
            self._seen += 1

    def _find_key(self, uid: str) -> str:
        if uid not in self._keys:
            self._keys = {pod["metadata"]["uid"]: key for key, pod in self._server.kinds["pods"].objects.items()}
        return self._keys[uid]

    def _schedule(self, key: str) -> None:
        if self._ignores(key):
            return
        pod = self._server.get("pods", key)
        demand = self._server.find_demand(pod)
        fitting = [node for node in self._free if _fits(demand, self._free[node]) and self._allows(key, pod, node)]
        if not fitting:
            self._queue.append(key)
            if not find_unschedulable(pod):
                self._server.change("pods", key, _mark)
            return
        chosen = max(fitting, key=lambda node: self._free[node]["cpu"])
        for resource, amount in demand.items():
            self._free[chosen][resource] -= amount
        self._server.bind_elsewhere(key, chosen)

    def _allows(self, key: str, pod: Json, node: str) -> bool:
        """Whether the pod's node selector and required node affinity allow the node, and nothing else refuses it."""
        if self._refuses(key, node):
            return False
        labels = self._server.get("nodes", node)["metadata"].get("labels") or {}
        is_selected = (pod["spec"].get("nodeSelector") or {}).items() <= labels.items()
        return is_selected and _is_required(pod["spec"].get("affinity") or {}, labels)


def _is_required(affinity: Json, labels: Json) -> bool:
    """Whether a term of the required node affinity holds, with `In` and `NotIn` only, or there is none."""
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(
        all((labels.get(e["key"]) in e["values"]) == (e["operator"] == "In") for e in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def find_unschedulable(pod: Json) -> bool:
    """Whether a pod is marked Unschedulable, for which autoscalers buy nodes."""
    conditions = pod["status"].get("conditions") or []
    return not pod["spec"].get("nodeName") and any(c.get("reason") == "Unschedulable" for c in conditions)


def _mark(pod: Json) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 nodes available"}
    pod["status"]["conditions"] = [condition]


def _fits(demand: dict[str, Fraction], free: dict[str, Fraction]) -> bool:
    return all(free.get(resource, 0) >= amount for resource, amount in demand.items())
