"""Amounts that pods hold through claims: devices (`devices`) and attach slots of drivers (`attach_limits`).

Both count in shares, and neither takes anything of what a node's allocatable has. Devices are allocated by other
schedulers, so only placed pods hold some. A placed pod holds an attach slot for each of its volumes that its node
attaches; one that several pods use there counts once, for the first of them by UID. A waiting pod counts with all
volumes that it brings, because the node on which it will share one is not known yet.

Slots count on the nodes whose driver names a limit, both what is held and what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairbind.cluster.filters.attach_limits import AttachLimits, VolumeLoad
from fairbind.cluster.objects.facts import Demand, PodFacts
from fairbind.cluster.objects.requests import add_claimed
from fairbind.cluster.objects.volume_facts import name_slots
from fairbind.cluster.state.devices import Devices
from fairbind.cluster.state.nodes import Servers
from fairbind.cluster.state.volumes import Volumes


def add_held(facts: PodFacts, node: str, devices: Devices, volumes: Volumes) -> Demand:
    """Return the demand of a pod on a node with the devices and attach slots that it holds."""
    held = devices.find_held(facts.uid)
    if facts.claims:
        held = {**held, **_name_all(volumes.count_slots(facts, node).items())}
    return add_claimed(facts.demand, held) if held else facts.demand


def add_brought(demand: Demand, load: VolumeLoad | None, limits: AttachLimits) -> Demand:
    """Return the demand of a pod that has no node yet with the attach slots that it will hold."""
    counts = () if load is None else load.counts
    brought = _name_all((driver, count) for driver, count in counts if driver in limits.counted)
    return add_claimed(demand, brought) if brought else demand


def set_capacities(servers: Servers, devices: Devices, limits: AttachLimits) -> None:
    """Tell the state of nodes which devices and attach slots they have, where these may be others."""
    for node in sorted({*devices.nodes_to_follow.take_all(), *limits.nodes_to_follow.take_all()}):
        servers.set_devices(node, {**devices.find_capacity(node), **_name_all(limits.find_slots(node).items())})


def _name_all(counts: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """Return counts of drivers by their resources."""
    return {name_slots(driver): count for driver, count in counts}
