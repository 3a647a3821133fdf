"""What the cache keeps of ResourceClaims, DeviceClasses and ResourceSlices, and how it is read.

Of a claim only what it has been given counts, by device class and pool: two devices that differ in their names only are
the same to shares. Left out are devices for administrators' access, which take nothing from other claims, and devices
that several claims divide among themselves (`shareID`), of which no claim has a whole one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from fairbind.cluster.objects import device_wire
from fairbind.cluster.objects.convert import parse_time
from fairbind.cluster.objects.quantity import QuantityError, to_base_units

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With the name of a class behind it, the extended resource by which pods may ask for a device of any class."""

MAX_DEVICES = 32
"""So many devices a claim may be given, and so many requests it may have: the API server accepts no more."""

MAX_CONSUMERS = 256
"""So many pods may reserve a claim: the API server accepts no more."""

MAX_SHARED_PARTS = 1_024

_PODS = "pods"


class PoolId(NamedTuple):
    """A pool of devices."""

    driver: str
    name: str


class HeldDevices(NamedTuple):
    """So many devices of a class and a pool."""

    device_class: str
    pool: PoolId
    number: int


class ResourceClaimFacts(Struct, frozen=True, gc=False):
    """A ResourceClaim. devices: what it was given, if it was. pods: the UIDs of those that reserve it, sorted."""

    namespace: str
    name: str
    version: str
    devices: tuple[HeldDevices, ...]
    pods: tuple[str, ...]


class DeviceClassFacts(Struct, frozen=True, gc=False):
    """A DeviceClass.

    resource: the extended resource that it serves besides the one with `DEVICE_CLASS_PREFIX`; empty: none. created:
    seconds since the epoch.
    """

    name: str
    version: str
    resource: str
    created: float


Amounts = tuple[tuple[str, int], ...]


class Part(NamedTuple):
    """A device that is a part of what a counter set counts. takes: of which counter how much."""

    counter_set: str
    takes: Amounts


class SliceFacts(Struct, frozen=True, gc=False):
    """A ResourceSlice.

    node: the only one that has these devices; empty: there is no such node. devices: how many there are that are no
    parts. parts: the others. counter_sets: what parts take from.
    """

    name: str
    version: str
    pool: PoolId
    generation: int
    node: str
    devices: int
    parts: tuple[Part, ...]
    counter_sets: tuple[tuple[str, Amounts], ...]


def convert_resource_claim(claim: device_wire.ResourceClaim) -> ResourceClaimFacts:
    """Return what matters of a claim."""
    meta, status = claim.metadata, claim.status
    results = None if status.allocation is None else status.allocation.devices.results
    devices = _find_devices(claim.spec.devices.requests or (), results) if results else ()
    consumers = islice(status.reserved_for or (), MAX_CONSUMERS) if devices else ()
    pods = {each.uid for each in consumers if each.resource == _PODS and not each.api_group and each.uid}
    return ResourceClaimFacts(meta.namespace, meta.name, meta.resource_version, devices, tuple(sorted(pods)))


def _find_devices(
    requests: Iterable[device_wire.DeviceRequest], results: Iterable[device_wire.AllocatedDevice]
) -> tuple[HeldDevices, ...]:
    held = {
        (device_class, PoolId(each.driver, each.pool), each.device)
        for device_class, each in find_held_devices(requests, results)
    }
    counts = Counter((device_class, pool) for device_class, pool, _ in held)
    return tuple(sorted(HeldDevices(device_class, pool, count) for (device_class, pool), count in counts.items()))


def find_held_devices(
    requests: Iterable[device_wire.DeviceRequest], results: Iterable[device_wire.AllocatedDevice]
) -> Iterator[tuple[str, device_wire.AllocatedDevice]]:
    """Yield the results that count, each with the device class of its request."""
    class_of = _find_classes(requests)
    for each in islice(results, MAX_DEVICES):
        if each.request in class_of and not each.admin_access and not each.share_id:
            yield class_of[each.request], each


def _find_classes(requests: Iterable[device_wire.DeviceRequest]) -> Mapping[str, str]:
    """Return the class of each request, by the name that results have for it."""
    class_of = {}
    for request in islice(requests, MAX_DEVICES):
        if request.exactly is not None:
            class_of[request.name] = request.exactly.device_class_name
        for sub in islice(request.first_available or (), MAX_DEVICES):
            class_of[f"{request.name}/{sub.name}"] = sub.device_class_name
    return class_of


def convert_device_class(device_class: device_wire.DeviceClass) -> DeviceClassFacts:
    """Return what matters of a device class."""
    meta = device_class.metadata
    resource = device_class.spec.extended_resource_name or ""
    return DeviceClassFacts(meta.name, meta.resource_version, resource, parse_time(meta.creation_timestamp))


def convert_slice(published: device_wire.ResourceSlice) -> SliceFacts:
    """Return what matters of a slice. A device that several claims may have at once is left out, as it is in claims."""
    meta, spec = published.metadata, published.spec
    whole = [device for device in spec.devices or () if not device.allow_multiple_allocations]
    parts = [_make_part(device.consumes_counters[0]) for device in whole if device.consumes_counters]
    counter_sets = ((each.name, _read_counters(each.counters)) for each in spec.shared_counters or ())
    return SliceFacts(
        name=meta.name,
        version=meta.resource_version,
        pool=PoolId(spec.driver, spec.pool.name),
        generation=spec.pool.generation,
        node=spec.node_name or "",
        devices=len(whole) - len(parts),
        parts=_share_parts(tuple(sorted(parts))),
        counter_sets=tuple(sorted(counter_sets)),
    )


def _make_part(use: device_wire.CounterUse) -> Part:
    return Part(use.counter_set, _read_counters(use.counters))


def _read_counters(counters: Mapping[str, device_wire.DeviceCounter] | None) -> Amounts:
    """Return amounts by counter; one that makes no sense counts as nothing."""
    amounts = []
    for name, counter in (counters or {}).items():
        try:
            amounts.append((name, to_base_units(name, counter.value)))
        except QuantityError:
            continue
    return tuple(sorted(amounts))


@lru_cache(maxsize=MAX_SHARED_PARTS)
def _share_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return one object for equal parts: thousands of nodes have the same kinds of devices."""
    return parts


def count_at_once(parts: Iterable[Part], counter_sets: Mapping[str, Amounts]) -> int:
    """Return how many of these devices can be held at once, at most: they take from the same counters.

    >>> half, whole = Part("gpu0", (("memory", 20),)), Part("gpu0", (("memory", 40),))
    >>> count_at_once([whole, half, half, half], {"gpu0": (("memory", 40),)})
    2
    """
    by_set: dict[str, list[Part]] = {}
    for part in parts:
        by_set.setdefault(part.counter_set, []).append(part)
    return sum(_count_of_set(each, dict(counter_sets.get(name, ()))) for name, each in by_set.items())


def _count_of_set(parts: list[Part], left: Mapping[str, int]) -> int:
    most = len(parts)
    for counter, total in left.items():
        taken, count = 0, 0
        for amount in sorted(dict(part.takes).get(counter, 0) for part in parts):
            taken += amount
            if taken > total:
                break
            count += 1
        most = min(most, count)
    return most
