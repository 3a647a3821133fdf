"""What tenants hold, pod by pod and node by node: what an eviction could give back.

Pods come and go one by one, and a snapshot tells of all of them at once; who reads it asks for few nodes, or for none.
So a snapshot gets one entry a node, which is remade only when one of the node's pods changed, and which makes its tasks
when they are asked for: thousands of unread tasks would cost seconds at a start. The vectors of equal
demands are shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from weakref import WeakKeyDictionary

import msgspec

from fairbind.cluster.objects.facts import Demand, PodFacts
from fairbind.cluster.state.node_state import Axes, compute_vector
from fairbind.derived import Derived, Setting, Table
from fairbind.model import RunningTask


class _Pod:
    """A pod that holds something, as it was when it last changed. facts: with the devices that it holds."""

    __slots__ = ("facts", "tenant")

    def __init__(self, tenant: str, demand: Demand, facts: PodFacts) -> None:
        self.tenant = tenant
        self.facts = facts if demand is facts.demand else msgspec.structs.replace(facts, demand=demand)


class _Vectors:
    """The vectors of demands along some axes, made once."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self._known: WeakKeyDictionary[Demand, tuple[tuple[int, ...], tuple[int, ...]]] = WeakKeyDictionary()

    def get(self, demand: Demand) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what a demand takes from a server, and what it counts in shares."""
        vectors = self._known.get(demand)
        if vectors is None:
            vectors = compute_vector(demand.real, self.axes), compute_vector(demand.share, self.axes)
            self._known[demand] = vectors
        return vectors


class _NodeTasks:
    """The tasks of one node at one time. _pods: None as soon as the tasks are made."""

    __slots__ = ("_node", "_pods", "_tasks", "_vectors")

    def __init__(self, node: str, pods: tuple[_Pod, ...], vectors: _Vectors) -> None:
        self._node = node
        self._pods: tuple[_Pod, ...] | None = pods
        self._vectors = vectors
        self._tasks: tuple[RunningTask, ...] = ()

    def get(self) -> tuple[RunningTask, ...]:
        """Return the tasks by uid."""
        if self._pods is not None:
            pods = sorted(self._pods, key=lambda pod: pod.facts.uid)
            self._tasks = tuple(_make_task(self._node, pod, self._vectors) for pod in pods)
            self._pods = None
        return self._tasks


class _TasksByNode(Mapping[str, tuple[RunningTask, ...]]):
    """What snapshots are told: a mapping that never changes, and makes its values when they are asked for."""

    def __init__(self, nodes: Mapping[str, _NodeTasks]) -> None:
        self._nodes = nodes

    def __getitem__(self, name: str) -> tuple[RunningTask, ...]:
        return self._nodes[name].get()

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class RunningTasks:
    """All pods that belong to a tenant and hold something, by the name of their node.

    growing: the UIDs of those with a deferred growth, by tenant.
    """

    def __init__(self) -> None:
        self.growing: dict[str, set[str]] = {}
        self._pods: dict[str, dict[str, _Pod]] = {}
        self._vectors = Setting(_Vectors(()))
        self._nodes = Table(self._list_tasks, self._pods.keys, of=(self._vectors,))
        self._tasks = Derived(self._share_tasks, of=(self._nodes,), is_same=is_)

    def hold(self, tenant: str, node: str, demand: Demand, facts: PodFacts) -> None:
        """Note that a tenant's pod holds something on a node. demand: of it, with its devices."""
        self._pods.setdefault(node, {})[facts.uid] = _Pod(tenant, demand, facts)
        self._nodes.note_change(node)
        if demand.growth:
            self.growing.setdefault(tenant, set()).add(facts.uid)

    def release(self, node: str, uid: str) -> None:
        """Take back what `hold` noted."""
        pods = self._pods[node]
        pod = pods.pop(uid)
        if not pods:
            del self._pods[node]
        if pod.facts.demand.growth:
            self.growing[pod.tenant].remove(uid)
            if not self.growing[pod.tenant]:
                del self.growing[pod.tenant]
        self._nodes.note_change(node)

    def list_uids(self, node: str) -> Iterable[str]:
        """Return the UIDs of the pods on a node."""
        return self._pods.get(node, ())

    def follow(self, node: str, facts: PodFacts) -> bool:
        """Take newer facts of a pod that stays where it is; False when a running task is no other by them."""
        pods = self._pods[node]
        old = pods[facts.uid]
        if _find_told(old.facts) == _find_told(facts):
            return False
        pods[facts.uid] = _Pod(old.tenant, old.facts.demand, facts)
        self._nodes.note_change(node)
        return True

    def build(self, axes: Axes) -> Mapping[str, tuple[RunningTask, ...]]:
        """Return the tasks by node, each node's by uid; what was handed out before never changes."""
        if axes != self._vectors.value.axes:
            self._vectors.set(_Vectors(axes))
        return self._tasks.get()

    def _list_tasks(self, node: str) -> _NodeTasks | None:
        """Return the running tasks of a node."""
        held = self._pods.get(node)
        return _NodeTasks(node, tuple(held.values()), self._vectors.value) if held else None

    def _share_tasks(self) -> _TasksByNode:
        """Return the running tasks of all nodes, as a snapshot has them."""
        return _TasksByNode(self._nodes.values.copy())


def _find_told(facts: PodFacts) -> tuple[object, ...]:
    """Return what a running task tells of a pod that may change while it runs."""
    return facts.priority, facts.start, facts.group, facts.most_seconds


def _make_task(node: str, pod: _Pod, vectors: _Vectors) -> RunningTask:
    facts = pod.facts
    real, share = vectors.get(facts.demand)
    keys = facts.constraints.exclusive_keys.taken
    group = f"{facts.namespace}/{facts.group.name}" if facts.group is not None else None
    return RunningTask(
        facts.uid, pod.tenant, node, facts.priority, facts.start, group, real, share, keys, facts.most_seconds
    )
