"""What tenants hold, pod by pod and node by node: what an eviction could give back.

Pods come and go one by one, and a snapshot wants all of them at once. So each node's tasks are a tuple that is made
anew only when one of them changed, tasks are made once, and the vectors of equal demands are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from fairbind.cluster.cache.nodes import Axes
from fairbind.cluster.cache.pending import compute_vector
from fairbind.cluster.objects.facts import Demand, PodFacts
from fairbind.model import RunningTask

_Vectors = tuple[tuple[int, ...], tuple[int, ...]]


class _Pod:
    """A pod that holds something. task: None until a snapshot asks for it."""

    __slots__ = ("facts", "task", "tenant")

    def __init__(self, tenant: str, facts: PodFacts) -> None:
        self.tenant = tenant
        self.facts = facts
        self.task: RunningTask | None = None


class RunningTasks:
    """All pods that belong to a tenant and hold something, by the name of their node."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, _Pod]] = {}
        self._changed: set[str] = set()
        self._axes: Axes = ()
        self._vectors: WeakKeyDictionary[Demand, _Vectors] = WeakKeyDictionary()
        self._tasks: Mapping[str, tuple[RunningTask, ...]] = {}

    def hold(self, tenant: str, node: str, facts: PodFacts) -> None:
        """Note that a tenant's pod holds something on a node."""
        self._pods.setdefault(node, {})[facts.uid] = _Pod(tenant, facts)
        self._changed.add(node)

    def release(self, node: str, uid: str) -> None:
        """Take back what `hold` noted."""
        pods = self._pods[node]
        del pods[uid]
        if not pods:
            del self._pods[node]
        self._changed.add(node)

    def follow(self, node: str, facts: PodFacts) -> bool:
        """Take newer facts of a pod that stays where it is; False when a running task is no other by them."""
        pod = self._pods[node][facts.uid]
        old, pod.facts = pod.facts, facts
        if (old.priority, old.start, old.group) == (facts.priority, facts.start, facts.group):
            return False
        pod.task = None
        self._changed.add(node)
        return True

    def build(self, axes: Axes) -> Mapping[str, tuple[RunningTask, ...]]:
        """Return the tasks by node, each node's by uid; what was handed out before never changes."""
        if axes != self._axes:
            self._axes = axes
            self._vectors.clear()
            self._changed.update(self._pods)
            for pods in self._pods.values():
                for pod in pods.values():
                    pod.task = None
        if self._changed:
            tasks = dict(self._tasks)
            for node in self._changed:
                held = self._pods.get(node)
                if held:
                    tasks[node] = tuple(self._get_task(node, held[uid]) for uid in sorted(held))
                else:
                    tasks.pop(node, None)
            self._tasks = tasks
            self._changed.clear()
        return self._tasks

    def _get_task(self, node: str, pod: _Pod) -> RunningTask:
        if pod.task is None:
            facts = pod.facts
            real, share = self._get_vectors(facts.demand)
            keys = facts.constraints.exclusive_keys.taken
            group = f"{facts.namespace}/{facts.group}" if facts.group is not None else None
            pod.task = RunningTask(facts.uid, pod.tenant, node, facts.priority, facts.start, group, real, share, keys)
        return pod.task

    def _get_vectors(self, demand: Demand) -> _Vectors:
        vectors = self._vectors.get(demand)
        if vectors is None:
            vectors = compute_vector(demand.real, self._axes), compute_vector(demand.share, self._axes)
            self._vectors[demand] = vectors
        return vectors
