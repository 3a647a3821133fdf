"""What tenants hold, pod by pod and node by node: what an eviction could give back.

Pods come and go one by one, and a snapshot tells of all of them at once; who reads it asks for few nodes, or for none.
So a snapshot gets one entry a node, which is remade only when one of the node's pods changed, and which makes its tasks
when they are asked for: thousands of unread tasks would cost seconds at a start. The vectors of equal
demands are shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

import msgspec

from fairbind.cluster.objects.facts import Demand, PodFacts
from fairbind.cluster.state.node_books import Axes, compute_vector
from fairbind.model import RunningTask

MAX_CHANGED = 64
"""So many nodes may have something else than in the mapping that they share with earlier snapshots."""


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
    """What snapshots are told: a mapping that never changes, and makes its values when they are asked for.

    One follows the other with a few changes, so they share what most nodes have. _changed: what nodes have that have
    something else than in `_shared`; None: nothing.
    """

    def __init__(self, shared: Mapping[str, _NodeTasks], changed: Mapping[str, _NodeTasks | None]) -> None:
        self._shared = shared
        self._changed = changed

    def change(self, changes: Mapping[str, _NodeTasks | None]) -> _TasksByNode:
        """Return the mapping in which these nodes have this instead."""
        changed = {**self._changed, **changes}
        if len(changed) <= MAX_CHANGED:
            return _TasksByNode(self._shared, changed)
        nodes = dict(self._shared)
        for name, tasks in changed.items():
            if tasks is None:
                nodes.pop(name, None)
            else:
                nodes[name] = tasks
        return _TasksByNode(nodes, {})

    def __getitem__(self, name: str) -> tuple[RunningTask, ...]:
        tasks = self._changed[name] if name in self._changed else self._shared[name]
        if tasks is None:
            raise KeyError(name)
        return tasks.get()

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._shared if name not in self._changed)
        yield from (name for name, tasks in self._changed.items() if tasks is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RunningTasks:
    """All pods that belong to a tenant and hold something, by the name of their node.

    growing: the UIDs of those with a deferred growth, by tenant.
    """

    def __init__(self) -> None:
        self.growing: dict[str, set[str]] = {}
        self._pods: dict[str, dict[str, _Pod]] = {}
        self._changed: set[str] = set()
        self._vectors = _Vectors(())
        self._tasks = _TasksByNode({}, {})

    def hold(self, tenant: str, node: str, demand: Demand, facts: PodFacts) -> None:
        """Note that a tenant's pod holds something on a node. demand: of it, with its devices."""
        self._pods.setdefault(node, {})[facts.uid] = _Pod(tenant, demand, facts)
        self._changed.add(node)
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
        self._changed.add(node)

    def list_uids(self, node: str) -> Iterable[str]:
        """Return the UIDs of the pods on a node."""
        return self._pods.get(node, ())

    def follow(self, node: str, facts: PodFacts) -> bool:
        """Take newer facts of a pod that stays where it is; False when a running task is no other by them."""
        pods = self._pods[node]
        old = pods[facts.uid]
        if (old.facts.priority, old.facts.start, old.facts.group) == (facts.priority, facts.start, facts.group):
            return False
        pods[facts.uid] = _Pod(old.tenant, old.facts.demand, facts)
        self._changed.add(node)
        return True

    def build(self, axes: Axes) -> Mapping[str, tuple[RunningTask, ...]]:
        """Return the tasks by node, each node's by uid; what was handed out before never changes."""
        if axes != self._vectors.axes:
            self._vectors = _Vectors(axes)
            self._changed.update(self._pods)
        if self._changed:
            changes: dict[str, _NodeTasks | None] = {}
            for node in self._changed:
                held = self._pods.get(node)
                changes[node] = _NodeTasks(node, tuple(held.values()), self._vectors) if held else None
            self._tasks = self._tasks.change(changes)
            self._changed.clear()
        return self._tasks


def _make_task(node: str, pod: _Pod, vectors: _Vectors) -> RunningTask:
    facts = pod.facts
    real, share = vectors.get(facts.demand)
    keys = facts.constraints.exclusive_keys.taken
    group = f"{facts.namespace}/{facts.group}" if facts.group is not None else None
    return RunningTask(facts.uid, pod.tenant, node, facts.priority, facts.start, group, real, share, keys)
