"""How many devices nodes have, by driver, as far as it is certain.

Drivers publish their devices in pools, and a pool in slices; those of its newest generation count. A pool counts when
its slices name its node. Devices that several nodes reach (`nodeSelector`, `allNodes`, a node for each device) are no
node's capacity, and nothing says of which tenant's share they would be a part: they are left out, here and where they
are held.

Devices that take from common counters (parts of a GPU, and the GPU as a whole) cannot all be held at once. Such a pool
has as many as can be at most, see `count_at_once`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fairbind.cluster.objects.device_facts import PoolId, SliceFacts, count_at_once
from fairbind.derived import Table


class _Offer(NamedTuple):
    """A pool of one node, and how many devices it has at most."""

    node: str
    devices: int


class DevicePools:
    """See the module. slices: by name; facts that are given are never written to."""

    def __init__(self) -> None:
        self.slices: dict[str, SliceFacts] = {}
        self._slices_of: dict[PoolId, dict[str, SliceFacts]] = {}
        self._offers = Table(self._find_offer, lambda: self._slices_of)
        self._offers.refresh()
        self._pools_on: dict[str, dict[PoolId, None]] = {}
        self._nodes_of: dict[str, dict[str, int]] = {}

    def put_slice(self, name: str, published: SliceFacts | None) -> None:
        """Take a slice, new or changed; None: it is gone."""
        before = self.slices.pop(name, None)
        if before is not None:
            siblings = self._slices_of[before.pool]
            del siblings[name]
            if not siblings:
                del self._slices_of[before.pool]
            self._offers.note_change(before.pool)
        if published is not None:
            self.slices[name] = published
            self._slices_of.setdefault(published.pool, {})[name] = published
            self._offers.note_change(published.pool)

    @property
    def has_stale(self) -> bool:
        """Whether `resolve` has something to do."""
        return self._offers.is_stale

    def resolve(self) -> Iterator[tuple[PoolId, str | None, str | None]]:
        """Bring pools up to date; yield each that changed, with the node that had it before, and that has it now."""
        for pool, (before, now) in self._offers.take_changes().items():
            if before is not None:
                self._take(pool, before)
            if now is not None:
                self._give(pool, now)
            yield pool, None if before is None else before.node, None if now is None else now.node

    def _find_offer(self, pool: PoolId) -> _Offer | None:
        """Return the node of a pool, and how many devices it has there."""
        slices = self._slices_of.get(pool, {}).values()
        newest = max((each.generation for each in slices), default=0)
        current = [each for each in slices if each.generation == newest]
        nodes = {each.node for each in current}
        if len(nodes) != 1 or "" in nodes:
            return None
        parts = [part for each in current for part in each.parts]
        count = sum(each.devices for each in current)
        if parts:
            counter_sets = {name: amounts for each in current for name, amounts in each.counter_sets}
            count += count_at_once(parts, counter_sets)
        return _Offer(nodes.pop(), count)

    def _give(self, pool: PoolId, offer: _Offer) -> None:
        self._pools_on.setdefault(offer.node, {})[pool] = None
        nodes = self._nodes_of.setdefault(pool.driver, {})
        nodes[offer.node] = nodes.get(offer.node, 0) + 1

    def _take(self, pool: PoolId, offer: _Offer) -> None:
        pools = self._pools_on[offer.node]
        del pools[pool]
        if not pools:
            del self._pools_on[offer.node]
        nodes = self._nodes_of[pool.driver]
        nodes[offer.node] -= 1
        if not nodes[offer.node]:
            del nodes[offer.node]
        if not nodes:
            del self._nodes_of[pool.driver]

    def is_of_node(self, pool: PoolId) -> bool:
        """Whether it is certain which node has the devices of a pool, as of the last `resolve`."""
        return pool in self._offers.values

    def find_nodes(self, driver: str) -> Mapping[str, int]:
        """Return the nodes that have devices of a driver, and how many of its pools."""
        return self._nodes_of.get(driver, {})

    def count_devices(self, node: str) -> dict[str, int]:
        """Return how many devices of each driver a node has."""
        counts: dict[str, int] = {}
        for pool in self._pools_on.get(node, ()):
            counts[pool.driver] = counts.get(pool.driver, 0) + self._offers.values[pool].devices
        return counts
