"""What we read of Kubernetes' JSON about devices (`resource.k8s.io/v1`); see `wire`."""

from __future__ import annotations

from msgspec import field

from fairbind.cluster.objects.wire import ObjectMeta, Wire


class DeviceSubRequest(Wire):
    """One of several ways to serve a request."""

    name: str = ""
    device_class_name: str = ""


class ExactDeviceRequest(Wire):
    """The only way to serve a request."""

    device_class_name: str = ""


class DeviceRequest(Wire):
    """What a claim asks for."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] | None = None


class DeviceRequests(Wire):
    """All that a claim asks for."""

    requests: list[DeviceRequest] | None = None


class ResourceClaimSpec(Wire):
    """What the claim asks for."""

    devices: DeviceRequests = field(default_factory=DeviceRequests)


class AllocatedDevice(Wire):
    """A device that the claim was given. request: `name`, or `name/subname` for one of several ways."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = field(default=None, name="shareID")


class AllocatedDevices(Wire):
    """All devices that the claim was given."""

    results: list[AllocatedDevice] | None = None


class Allocation(Wire):
    """What the claim was given."""

    devices: AllocatedDevices = field(default_factory=AllocatedDevices)


class ClaimConsumer(Wire):
    """What may use the claim: a pod as a rule."""

    api_group: str = ""
    resource: str = ""
    uid: str = ""


class ResourceClaimStatus(Wire):
    """What the claim was given, and for whom."""

    allocation: Allocation | None = None
    reserved_for: list[ClaimConsumer] | None = None


class ResourceClaim(Wire):
    """A claim for devices."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)
    fault: str | None = None


class DeviceClassSpec(Wire):
    """By which name pods may ask for a device of the class as for an extended resource."""

    extended_resource_name: str | None = None


class DeviceClass(Wire):
    """A class of devices."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)
    fault: str | None = None


class DeviceCounter(Wire):
    """An amount."""

    value: str = "0"


class CounterSet(Wire):
    """What the devices of a pool share, by the counter's name."""

    name: str = ""
    counters: dict[str, DeviceCounter] | None = None


class CounterUse(Wire):
    """What a device takes of a counter set."""

    counter_set: str = ""
    counters: dict[str, DeviceCounter] | None = None


class Device(Wire):
    """A device of a slice."""

    consumes_counters: list[CounterUse] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(Wire):
    """The pool that a slice is a part of; slices of an older generation count no more."""

    name: str = ""
    generation: int = 0


class ResourceSliceSpec(Wire):
    """Devices of a pool. node_name: of the only node that has them; None: they are reached in another way."""

    driver: str = ""
    pool: ResourcePool = field(default_factory=ResourcePool)
    node_name: str | None = None
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Wire):
    """Devices that a driver offers."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceSliceSpec = field(default_factory=ResourceSliceSpec)
    fault: str | None = None
