"""A node's state, and what it comes to along the axes.

A node's capacity for tenants is its allocatable minus what belongs to no tenant (system pods); what tenants' pods hold,
and what is reserved for pods that are not bound yet, comes off what is free. These are dicts of Python integers,
changed pod by pod. Rows of arrays are made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fairbind.cluster.objects.facts import Amounts, Demand, NodeFacts
from fairbind.cluster.objects.volume_facts import are_attach_slots
from fairbind.model import MAX_AMOUNT
from fairbind.model.servers import IntArray

Axes = tuple[str, ...]

_NO_PORTS: frozenset[str] = frozenset()
_NOTHING: Mapping[str, int] = {}
_NO_PORTS_HELD: Mapping[str, frozenset[str]] = {}
"""Thousands of nodes hold nothing of a sort, and share what says so."""


def add_amounts(total: dict[str, int], amounts: Iterable[tuple[str, int]], sign: int = 1) -> None:
    """Add amounts to a total, or take them away; what becomes zero goes."""
    for resource, amount in amounts:
        value = total.get(resource, 0) + sign * amount
        if value:
            total[resource] = value
        else:
            total.pop(resource, None)


@dataclass(slots=True)
class NodeState:
    """One node's state. node: None when only pods told us of it. system, held: base units. ports: keys by pod.

    Mappings and sets are replaced and never written to.
    system_ports: the uids of those of them that are system pods. reserved: for pods that are not bound yet.
    pods: how many hold something or have something reserved. devices: those that drivers publish and their attach
    slots, by resource. claimed, system_claimed: those that pods hold.
    """

    node: NodeFacts | None = None
    system: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    held: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    ports: Mapping[str, frozenset[str]] = field(default_factory=lambda: _NO_PORTS_HELD)
    system_ports: frozenset[str] = _NO_PORTS
    reserved: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    pods: int = 0
    devices: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    claimed: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    system_claimed: Mapping[str, int] = field(default_factory=lambda: _NOTHING)

    def hold(self, demand: Demand, sign: int = 1, *, system: bool) -> None:
        """Count more that is held, or less."""
        if system:
            self.system = _add(self.system, demand.real, sign)
        else:
            self.held = _add(self.held, demand.real, sign)
        if demand.claimed and system:
            self.system_claimed = _add(self.system_claimed, demand.claimed, sign)
        elif demand.claimed:
            self.claimed = _add(self.claimed, demand.claimed, sign)
        self.pods += sign

    def find_devices(self, resource: str) -> int:
        """Return how many devices of a resource tenants' pods may hold in all."""
        return max(self.devices.get(resource, 0) - self.system_claimed.get(resource, 0), 0)

    def reserve(self, amounts: Amounts, sign: int) -> None:
        """Count more that is reserved, or less."""
        self.reserved = _add(self.reserved, amounts, sign)
        self.pods += sign

    def hold_ports(self, uid: str, ports: frozenset[str], *, system: bool) -> None:
        """Note which ports a pod holds."""
        self.ports = {**self.ports, uid: ports}
        if system:
            self.system_ports |= {uid}

    def release_ports(self, uid: str) -> None:
        """Note that a pod that held ports holds none any more."""
        left = {other: ports for other, ports in self.ports.items() if other != uid}
        self.ports, self.system_ports = left or _NO_PORTS_HELD, self.system_ports - {uid}


def _add(total: Mapping[str, int], amounts: Amounts, sign: int) -> Mapping[str, int]:
    changed = dict(total)
    add_amounts(changed, amounts, sign)
    return changed or _NOTHING


class Rows(NamedTuple):
    """What nodes have: what tenants' pods may hold in all, and what is free of it. Shapes (n, R)."""

    capacity_nr: IntArray
    free_nr: IntArray


@lru_cache(maxsize=8)
def number_axes(axes: Axes) -> Mapping[str, int]:
    """Return the number of each axis: pods and nodes have a few of many."""
    return {resource: r for r, resource in enumerate(axes)}


def compute_vector(amounts: Amounts, axes: Axes) -> tuple[int, ...]:
    """Return amounts in the order of the axes; a resource that is no axis drops out."""
    number = number_axes(axes)
    vector = [0] * len(axes)
    for resource, amount in amounts:
        if resource in number:
            vector[number[resource]] = amount
    return tuple(vector)


def compute_rows(states: Sequence[NodeState], axes: Axes) -> Rows:
    """Return the rows of nodes. A node costs what is in its state, however many axes there are."""
    number, width = number_axes(axes), len(axes)
    places, capacities, frees = list[int](), list[int](), list[int]()
    for n, state in enumerate(states):
        own: dict[int, int] = {}
        if state.node is not None:
            _add_by_axis(own, state.node.allocatable, 1, number)
        _add_by_axis(own, state.system.items(), -1, number)
        free = own.copy()
        _add_by_axis(free, state.held.items(), -1, number)
        _add_by_axis(free, state.reserved.items(), -1, number)
        for r, amount in free.items():
            places.append(n * width + r)
            capacities.append(min(max(own.get(r, 0), 0), MAX_AMOUNT))
            frees.append(max(amount, -MAX_AMOUNT))
    rows, where = _make_empty_rows(len(states), width), np.array(places, dtype=np.intp)
    rows.capacity_nr.put(where, capacities)
    rows.free_nr.put(where, frees)
    for n, state in enumerate(states):
        for resource in number.keys() & state.devices.keys():
            r, amount = number[resource], state.find_devices(resource)
            rows.capacity_nr[n, r] = min(int(rows.capacity_nr[n, r]) + amount, MAX_AMOUNT)
            if are_attach_slots(resource):
                rows.free_nr[n, r] = max(amount - state.claimed.get(resource, 0), -MAX_AMOUNT)
    return rows


def sum_held(states: Iterable[NodeState], axes: Axes) -> list[int]:
    """Return what tenants' pods hold on some nodes, and of each node no more than it has, length R."""
    total, number = [0] * len(axes), number_axes(axes)
    for state in states:
        (capacity_r,), _ = compute_rows([state], axes)
        held: dict[int, int] = {}
        _add_by_axis(held, state.held.items(), 1, number)
        _add_by_axis(held, state.claimed.items(), 1, number)
        for r, amount in held.items():
            total[r] += min(amount, int(capacity_r[r]))
    return total


def _make_empty_rows(count: int, width: int) -> Rows:
    return Rows(np.zeros((count, width), dtype=np.int64), np.zeros((count, width), dtype=np.int64))


def _add_by_axis(
    total: dict[int, int], amounts: Iterable[tuple[str, int]], sign: int, number: Mapping[str, int]
) -> None:
    """Add amounts to a total by axis, or take them away; a resource that is no axis drops out."""
    for resource, amount in amounts:
        r = number.get(resource)
        if r is not None:
            total[r] = total.get(r, 0) + sign * amount
