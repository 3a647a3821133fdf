"""The devices that placed pods hold through ResourceClaims, whichever scheduler allocated them.

fairbind allocates no devices, but what its tenants hold counts in their shares:

* A claim counts once, for the first by UID of the placed pods of its namespace that reserve it; all of them are of one
  tenant. While no placed pod reserves it, it counts for none.
* A device counts as one of a **resource**: the extended resource of its DeviceClass, so that a GPU counts the same
  whether a claim or a device plugin gave it; for a class that has none, the resource by which pods may ask for its
  devices all the same (`DEVICE_CLASS_PREFIX`).
* A node's **capacity** of the resource grows by what it publishes of each driver of which a claim now holds a device of
  such a class (`device_pools`). Which devices a class selects is an expression that is not evaluated here. So the
  devices of a driver count for each class for which one of them was allocated. Held devices of pools that count on no
  node are left out.
* Claims take nothing from what nodes have free: this is for pods that a device plugin serves.

All this follows from the claims, classes and slices as they are, so the order in which they come does not matter.
`put_` methods and `note_placed` note what is stale, and `resolve` looks only at that. Pods without claims are not in
this state at all. Who waits for claims: `claim_waits`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fairbind.cluster.objects.device_facts import DeviceClassFacts, PoolId, ResourceClaimFacts, SliceFacts
from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.objects.requests import MAX_RESOURCES
from fairbind.cluster.state.claim_waits import ClaimWaits
from fairbind.cluster.state.device_classes import DeviceClasses
from fairbind.cluster.state.device_pools import DevicePools
from fairbind.cluster.state.index import note_key
from fairbind.derived import Given, Rotation


class _Counted(NamedTuple):
    """How a claim counts now. pod: the UID of the pod that it counts for, or None. sources: (resource, driver)."""

    pod: str | None
    amounts: Amounts
    sources: tuple[tuple[str, str], ...]


_NOTHING = _Counted(None, (), ())
_NO_DEVICES: Mapping[str, int] = {}


class Devices:
    """See the module. Facts that are given to `put_` methods are never written to.

    is_placed: whether a pod of this namespace and UID holds a node. claims: by key. pools: the devices of nodes.
    waits: who waits for claims. nodes_to_follow: those with other devices.
    """

    def __init__(self, is_placed: Callable[[str, str], bool], offers: Given, is_offered: Callable[[str], bool]) -> None:
        """offers, is_offered: which resources are in the allocatable of some node."""
        self._is_placed = is_placed
        self.claims: dict[str, ResourceClaimFacts] = {}
        self.classes = DeviceClasses(offers, is_offered)
        self.pools = DevicePools()
        self.waits = ClaimWaits(self.claims)
        self._counted: dict[str, _Counted] = {}
        self._held: dict[str, dict[str, int]] = {}
        self._drivers: dict[str, Counter[str]] = {}
        self._claims_of_pod: dict[str, dict[str, None]] = {}
        self._claims_of_class: dict[str, dict[str, None]] = {}
        self._claims_of_pool: dict[PoolId, dict[str, None]] = {}
        self._claims_to_follow = Rotation[str]()
        self.nodes_to_follow = Rotation[str]()

    # --- objects ---

    def put_claim(self, key: str, claim: ResourceClaimFacts | None) -> None:
        """Take a claim, new or changed; None: it is gone."""
        before = self.claims.pop(key, None)
        if before is not None:
            self._index(key, before, is_there=False)
        if claim is not None:
            self.claims[key] = claim
            self._index(key, claim, is_there=True)
        if (before is not None and before.devices) or (claim is not None and claim.devices):
            self._claims_to_follow.add([key])
        if (before is None) != (claim is None):
            self.waits.note_claim(key)

    def put_class(self, name: str, device_class: DeviceClassFacts | None) -> None:
        """Take a device class, new or changed; None: it is gone."""
        self.classes.put(name, device_class)
        self._claims_to_follow.add(self._claims_of_class.get(name, {}))

    def put_slice(self, name: str, published: SliceFacts | None) -> None:
        """Take a slice, new or changed; None: it is gone."""
        self.pools.put_slice(name, published)

    def note_placed(self, uid: str) -> None:
        """Note that a pod has come to a node, or holds none any more."""
        self._claims_to_follow.add(self._claims_of_pod.get(uid, {}))

    def copy_objects(self, other: Devices) -> None:
        """Take all objects of another state."""
        self.waits.is_served = other.waits.is_served
        for name, device_class in other.classes.by_name.items():
            self.put_class(name, device_class)
        for name, published in other.pools.slices.items():
            self.put_slice(name, published)
        for key, claim in other.claims.items():
            self.put_claim(key, claim)

    def _index(self, key: str, claim: ResourceClaimFacts, *, is_there: bool) -> None:
        for uid in claim.pods:
            note_key(self._claims_of_pod, uid, key, is_there=is_there)
        for held in claim.devices:
            note_key(self._claims_of_class, held.device_class, key, is_there=is_there)
            note_key(self._claims_of_pool, held.pool, key, is_there=is_there)

    # --- what follows ---

    @property
    def has_stale(self) -> bool:
        """Whether `resolve` has something to do."""
        return bool(self._claims_to_follow or self.waits.pods_to_follow) or self.pools.has_stale

    def resolve(self) -> list[str]:
        """Bring what is counted up to date.

        Returns the UIDs of the pods that hold something else now, or wait for other claims, sorted.
        """
        for pool, *nodes in self.pools.resolve():
            self.nodes_to_follow.add(node for node in nodes if node is not None)
            self._claims_to_follow.add(self._claims_of_pool.get(pool, {}))
        pods = set(self.waits.pods_to_follow.take_all())
        for key in self._claims_to_follow.take_all():
            before, now = self._counted.get(key, _NOTHING), self._count(self.claims.get(key))
            if before == now:
                continue
            if before.sources != now.sources:
                self._use_drivers(before.sources, -1)
                self._use_drivers(now.sources, 1)
            if before[:2] != now[:2]:
                pods |= self._hold(before, -1) | self._hold(now, 1)
            if now == _NOTHING:
                del self._counted[key]
            else:
                self._counted[key] = now
        return sorted(pods)

    def find_held(self, uid: str) -> Mapping[str, int]:
        """Return the devices that a placed pod holds, by resource."""
        held = self._held.get(uid)
        return _NO_DEVICES if held is None else _keep_first(held)

    def describe(self) -> object:
        """Return what is counted, as plain comparable values."""
        drivers = {driver: dict(each) for driver, each in self._drivers.items()}
        return dict(self._counted), self._held, drivers, self.classes.unserved, self.waits.describe()

    def _count(self, claim: ResourceClaimFacts | None) -> _Counted:
        if claim is None:
            return _NOTHING
        amounts: dict[str, int] = {}
        sources: set[tuple[str, str]] = set()
        for held in claim.devices:
            if self.pools.is_of_node(held.pool):
                resource = self.classes.find_resource(held.device_class)
                amounts[resource] = amounts.get(resource, 0) + held.number
                sources.add((resource, held.pool.driver))
        pod = next((uid for uid in claim.pods if self._is_placed(claim.namespace, uid)), None) if amounts else None
        return _Counted(pod, tuple(sorted(amounts.items())), tuple(sorted(sources)))

    def _hold(self, counted: _Counted, sign: int) -> set[str]:
        """Count a claim for its pod, or no more; return the pod."""
        if counted.pod is None:
            return set()
        held = self._held.setdefault(counted.pod, {})
        for resource, amount in counted.amounts:
            held[resource] = held.get(resource, 0) + sign * amount
            if not held[resource]:
                del held[resource]
        if not held:
            del self._held[counted.pod]
        return {counted.pod}

    def _use_drivers(self, sources: Iterable[tuple[str, str]], sign: int) -> None:
        """Note of which drivers there are devices of a resource; where one comes or goes, nodes have other capacity."""
        for resource, driver in sources:
            resources = self._drivers.setdefault(driver, Counter())
            before = resources[resource]
            resources[resource] += sign
            if not before or not resources[resource]:
                self.nodes_to_follow.add(self.pools.find_nodes(driver))
            if not resources[resource]:
                del resources[resource]
            if not resources:
                del self._drivers[driver]

    def find_capacity(self, node: str) -> Mapping[str, int]:
        """Return the devices of a node that count, by resource."""
        capacity: dict[str, int] = {}
        for driver, count in self.pools.count_devices(node).items():
            for resource in self._drivers.get(driver, ()) if count else ():
                capacity[resource] = capacity.get(resource, 0) + count
        return _keep_first(capacity)


def _keep_first(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts of not more resources than a pod may ask for and a node may offer."""
    return dict(sorted(amounts.items())[:MAX_RESOURCES])
