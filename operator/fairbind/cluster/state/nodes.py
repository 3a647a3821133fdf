"""The state of nodes: what each can give, what is held there, and the arrays that a cycle reads.

Shares are parts of the totals, so both are about the same nodes: those that are there and that the operator was told to
use. Of one that is cordoned or not ready, what tenants hold there is all that counts: nothing of it is free for others.

Arrays are written only for nodes whose state (`node_state`) changed since the last snapshot. When nodes or
resources come or go there are new ones. A pod may be bound to a node that we have not
heard of yet: its state exists all the same and waits for the node.

Devices that drivers publish, and that pods hold through claims (`devices`), are part of a node's capacity and never of
what is free there, because fairbind allocates no devices. Attach slots (`claimed`) are part of both. No pod asks for
them: what a node attaches is said by rules of its own (`attach_limits`).

Three parts have modules of their own: which resources are axes (`offered_resources`), the arrays (`node_arrays`), and
which nodes count (`counting_nodes`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.refusals import find_refusal, is_usable
from fairbind.cluster.objects.facts import Amounts, Constraints, Demand, NodeFacts
from fairbind.cluster.objects.volume_facts import are_attach_slots
from fairbind.cluster.state.counting_nodes import CountingNodes
from fairbind.cluster.state.kubelet_refusals import KubeletRefusals
from fairbind.cluster.state.node_arrays import NodeArrays
from fairbind.cluster.state.node_state import Axes, NodeState, number_axes, sum_held
from fairbind.cluster.state.offered_resources import OfferedResources
from fairbind.derived import Derived, Given, Rotation
from fairbind.model.servers import BoolArray, IntArray, sum_exactly


class Totals(NamedTuple):
    """What nodes have. resting: those that count and are not usable. usable_r: of the usable ones. total_r: of both."""

    resting: frozenset[str]
    usable_r: tuple[int, ...]
    total_r: tuple[int, ...]


class Claimed(NamedTuple):
    """What nodes have as devices only. by_axis: which nodes, shape (K,). only: axes that no node has otherwise."""

    by_axis: Mapping[str, BoolArray]
    only: frozenset[str]


class Servers:
    """The state of all nodes, and what follows from it.

    faults: by node, what of it could not be read or is left out. refusals: nodes that some pods do not go to for now.
    counting: which nodes count. offered: the resources that they have, and the axes. After `flush`: arrays, claimed,
    taken_keys, fixed_keys, usable_r, total_r, resting.
    """

    def __init__(self, eligibility: Eligibility) -> None:
        self.states: dict[str, NodeState] = {}
        self.eligibility = eligibility
        self.faults: dict[str, str] = {}
        self.refusals = KubeletRefusals()
        self.counting = CountingNodes(self._find_node)
        self.offered = OfferedResources()
        self.arrays = NodeArrays(self.axes)
        self._ports, self._devices, self._amounts = Given(), Given(), Given()
        self._keys = Derived(self._compute_taken_keys, of=(self._ports, eligibility.nodes))
        self.claimed = Derived(self._find_claimed, of=(self._devices, eligibility.nodes), is_same=_are_equal)
        self._totals = Derived(self._sum_totals, of=(self._amounts, self.counting.selector))
        self._nodes_to_follow = Rotation[str]()
        self._rows_to_write = Rotation[str]()
        for each in (self._keys, self.claimed, self._totals):
            each.refresh()

    @property
    def axes(self) -> Axes:
        """The resources along which arrays go."""
        return self.offered.axes.value

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes, in the order of the arrays."""
        return self.arrays.names

    @property
    def index(self) -> Mapping[str, int]:
        """The places of nodes in the arrays, by name."""
        return self.arrays.index

    @property
    def is_total_stale(self) -> bool:
        """Whether `total_r` and `axes` may be others since the last flush."""
        return self._totals.is_stale

    @property
    def resting(self) -> frozenset[str]:
        """Nodes that count and are not usable."""
        return self._totals.value.resting

    @property
    def usable_r(self) -> tuple[int, ...]:
        """What usable nodes have."""
        return self._totals.value.usable_r

    @property
    def total_r(self) -> tuple[int, ...]:
        """What counts in shares."""
        return self._totals.value.total_r

    @property
    def taken_keys(self) -> Mapping[int, frozenset[str]]:
        """The keys that are taken on each node."""
        return self._keys.value[0]

    @property
    def fixed_keys(self) -> Mapping[int, frozenset[str]]:
        """The keys that system pods take there."""
        return self._keys.value[1]

    def put_node(self, node: NodeFacts) -> bool:
        """Take a node; False when nothing changed that lets a pod go where it could not go before."""
        state = self.states.setdefault(node.name, NodeState())
        known = state.node
        self._note_fault(node.name, node.fault)
        self.eligibility.images.set_images(node.name, () if known is None else known.images, node.images)
        if known is not None and is_same_node(known, node):
            state.node = node  # its images may be others
            return False
        self.offered.count_node(known, node)
        if known is None:
            self.offered.count_devices(state.devices, 1)
        state.node = node
        self._note_node(node.name)
        return True

    def remove_node(self, name: str) -> bool:
        """Take a node away; False when there was none. What pods hold there stays in the state."""
        state = self.states.get(name)
        if state is None or state.node is None:
            return False
        self.offered.count_node(state.node, None)
        self.offered.count_devices(state.devices, -1)
        self.eligibility.images.set_images(name, state.node.images, ())
        self._note_fault(name, None)
        state.node = None
        self._note_node(name)
        self._drop_if_empty(name)
        return True

    def _note_node(self, name: str) -> None:
        self._nodes_to_follow.add([name])
        self._amounts.note_change()
        self.counting.note_node(name)

    def set_devices(self, name: str, devices: Mapping[str, int]) -> None:
        """Take which devices and attach slots a node has of those that are held through claims, by resource."""
        state = self.states.setdefault(name, NodeState())
        if state.node is not None:
            self.offered.count_devices(state.devices, -1)
            self.offered.count_devices(devices, 1)
            self._devices.note_change()
            self._amounts.note_change()
        state.devices = devices
        self._note_state(name)
        self._drop_if_empty(name)

    def may_use(self, name: str, constraints: Constraints) -> bool:
        """Whether a node is there and takes tasks with these constraints, as of now and not of the last `flush`."""
        state = self.states.get(name)
        if state is None or state.node is None:
            return False
        return find_refusal(state.node, constraints, self.counting.selector.value) is None

    def is_overcommitted(self, name: str, uid: str, amounts: Amounts, conflicting: frozenset[str]) -> bool:
        """Whether more is held on a node than it has, of what these amounts use, or others hold these keys.

        uid, amounts, conflicting: of a pod that holds its own there already.
        """
        state = self.states[name]  # the pod itself keeps it there
        allocatable = dict(state.node.allocatable) if state.node is not None else {}
        if any(state.system.get(r, 0) + state.held.get(r, 0) > allocatable.get(r, 0) for r, _ in amounts):
            return True
        return bool(conflicting) and any(conflicting & taken for other, taken in state.ports.items() if other != uid)

    def hold(self, name: str, uid: str, demand: Demand, ports: frozenset[str], *, system: bool) -> None:
        """Note that a pod holds something on a node."""
        state = self.states.setdefault(name, NodeState())
        state.hold(demand, system=system)
        if ports:
            state.hold_ports(uid, ports, system=system)
            self._ports.note_change()
        self._note_state(name, system=system)

    def release(self, name: str, uid: str, demand: Demand, *, system: bool) -> None:
        """Take back what `hold` noted."""
        state = self.states[name]
        state.hold(demand, -1, system=system)
        if uid in state.ports:
            state.release_ports(uid)
            self._ports.note_change()
        self._note_state(name, system=system)
        self._drop_if_empty(name)

    def reserve(self, name: str, amounts: Amounts, sign: int = 1) -> None:
        """Note that capacity of a node is reserved for a pod, or no more."""
        state = self.states.setdefault(name, NodeState())
        state.reserve(amounts, sign)
        self._note_state(name)
        self._drop_if_empty(name)

    def _note_state(self, name: str, *, system: bool = False) -> None:
        self._rows_to_write.add([name])
        if system or name in self.resting:
            self._amounts.note_change()

    def flush(self) -> None:
        """Bring the arrays up to date."""
        axes = self.offered.choose_axes()
        nodes = {name: self._find_node(name) for name in sorted(self._nodes_to_follow.take_all())}
        rows, is_all_new = self._rows_to_write.take_all(), self.counting.take_change_of_labels()
        is_list_new = is_all_new or any((node is None) == (name in self.index) for name, node in nodes.items())
        if is_list_new:
            self._set_nodes(nodes, is_all_new=is_all_new)
        elif changed := {self.index[name]: node for name, node in nodes.items() if node is not None}:
            self.eligibility.change_nodes(changed)
        if is_list_new or axes != self.axes:
            self._rebuild(axes)
        elif places := sorted({self.index[name] for name in (*nodes, *rows) if name in self.index}):
            self._rewrite(places)
        for each in (self._keys, self.claimed, self._totals):
            each.refresh()
        self.eligibility.follow_images()

    def _note_fault(self, name: str, fault: str | None) -> None:
        if fault is not None:
            self.faults[name] = fault
        else:
            self.faults.pop(name, None)

    def _drop_if_empty(self, name: str) -> None:
        state = self.states[name]
        if state.node is None and state.pods == 0 and not state.devices:
            del self.states[name]

    def _set_nodes(self, changed: Container[str], *, is_all_new: bool) -> None:
        """Take the nodes of now in the place of others. changed: those of which nothing may be kept."""
        nodes = [state.node for _, state in sorted(self.states.items()) if state.node is not None]
        kept = [-1 if node.name in changed else self.index.get(node.name, -1) for node in nodes]
        self.arrays.names = tuple(node.name for node in nodes)
        selector = self.counting.selector.value
        self.eligibility.set_nodes(nodes, None if is_all_new else np.array(kept, dtype=np.intp), selector)
        self.arrays.index = self.eligibility.index

    def _rebuild(self, axes: Axes) -> None:
        """Make arrays for other nodes, or along other axes."""
        states = [self.states[name] for name in self.names]
        self.offered.axes.set(axes)
        self.arrays.rebuild(states, axes, self._find_usable(states))
        self._devices.note_change()

    def _rewrite(self, places: Sequence[int]) -> None:
        """Write the rows of some nodes. As a rule only what tenants' pods hold is another, which no total counts."""
        states = [self.states[self.names[place]] for place in places]
        usable_n = self._find_usable(states) if self.is_total_stale else None
        self.arrays.rewrite(np.array(places, dtype=np.intp), states, self.axes, usable_n)

    def _find_usable(self, states: Iterable[NodeState]) -> BoolArray:
        usable = [state.node is not None and is_usable(state.node, self.counting.selector.value) for state in states]
        return np.array(usable, dtype=np.bool_)

    def _find_node(self, name: str) -> NodeFacts | None:
        state = self.states.get(name)
        return None if state is None else state.node

    def _find_claimed(self) -> Claimed:
        """Return which nodes have what as devices only."""
        claimed_k: dict[str, BoolArray] = {}
        for k, name in enumerate(self.names) if self.offered.has_devices else ():
            state = self.states[name]
            if state.node is not None and state.devices:
                offered = {resource for resource, amount in state.node.allocatable if amount}
                for resource in state.devices.keys() - offered:
                    claimed_k.setdefault(resource, np.zeros(len(self.names), dtype=np.bool_))[k] = True
        claimed_only = frozenset(r for r in claimed_k if r in self.axes and not self.offered.is_allocatable(r))
        return Claimed({resource: claimed_k[resource] for resource in self.axes if resource in claimed_k}, claimed_only)

    def compute_unclaimed(self) -> IntArray | None:
        """Return how many devices no pod holds, shape (K, R); None when no node has any. As of the last `flush`.

        Below zero where more are held than are published. They are capacity, and are not free for pods.
        """
        if not self.offered.has_devices:
            return None
        number = number_axes(self.axes)
        unclaimed_kr = np.zeros_like(self.arrays.capacity_kr)
        for k, name in enumerate(self.names):
            state = self.states[name]
            for resource in state.devices.keys() | state.claimed.keys():
                r = number.get(resource)
                if r is not None and not are_attach_slots(resource):
                    unclaimed_kr[k, r] = state.find_devices(resource) - state.claimed.get(resource, 0)
        return unclaimed_kr

    def compute_counted(self) -> IntArray:
        """Return what counts of each node in the totals, shape (K, R). As of the last `flush`."""
        counted_kr = np.where(self.arrays.usable_k[:, None], self.arrays.capacity_kr, 0)
        for name in self.resting:
            counted_kr[self.index[name]] = sum_held([self.states[name]], self.axes)
        return counted_kr

    def _sum_totals(self) -> Totals:
        """Return what usable nodes have, and what is held on the others that count."""
        others = [self.names[k] for k in np.flatnonzero(~self.arrays.usable_k).tolist()]
        resting = frozenset(name for name in others if self.counting.is_counting(name))
        held_r = sum_held([self.states[name] for name in sorted(resting)], self.axes)
        usable_r = sum_exactly(self.arrays.capacity_kr[self.arrays.usable_k])
        total_r = tuple(usable + held for usable, held in zip(usable_r, held_r, strict=True))
        return Totals(resting, tuple(usable_r), total_r)

    def _compute_taken_keys(self) -> tuple[Mapping[int, frozenset[str]], Mapping[int, frozenset[str]]]:
        """Return the keys that are taken on each node, and those that system pods take there."""
        taken_keys, fixed = {}, {}
        for name, state in self.states.items():
            if state.ports and name in self.index:
                taken_keys[self.index[name]] = frozenset[str]().union(*state.ports.values())
            if state.system_ports and name in self.index:
                fixed[self.index[name]] = frozenset[str]().union(
                    *(state.ports[uid] for uid in sorted(state.system_ports))
                )
        return taken_keys, fixed


def _are_equal(one: Claimed, other: Claimed) -> bool:
    is_only_same = one.only == other.only and one.by_axis.keys() == other.by_axis.keys()
    return is_only_same and all(np.array_equal(closed_k, other.by_axis[r]) for r, closed_k in one.by_axis.items())


def is_same_node(one: NodeFacts, other: NodeFacts) -> bool:
    """Whether nothing differs that says which pods a node takes; a heartbeat changes nothing, nor do images."""
    return (
        one.allocatable == other.allocatable
        and one.ready == other.ready
        and one.unschedulable == other.unschedulable
        and one.taints == other.taints
        and one.labels == other.labels
        and one.features == other.features
    )
