"""What a pod asks for, counted as Kubernetes counts it.

The pod needs, resource by resource, the larger of two moments: while it runs (all containers and all sidecars at once)
and while it starts (each init container in its turn, together with the sidecars that started before it). Pod-level
requests for cpu, memory and huge pages replace the containers' sum; the runtime's overhead comes on top; every pod is
one of `pods`. A container without a request for what it limits requests the limit. An extended resource that a claim of
kube-scheduler's making serves is no request: the claim has the devices (`cache.devices`), and the node's allocatable is
not used.

A container that is being resized holds the largest of what its spec asks, what its node has allocated and what runs;
the spec drops out when the node has declared the resize infeasible. (Kubernetes 1.37 takes the maximum of the three
sums, earlier ones the sum of the maxima; they differ only when two containers of a pod are resized in opposite
directions at the same time, and then the sum of the maxima, taken here, is the one that never promises too much.)

A resize that its node has deferred is no exception: kube-scheduler reserves the capacity for it, and so do we, for the
kubelet grants it as soon as the node has the capacity. So it counts in the tenant's share from the request on. Nothing
is reserved for the growth of a tenant that is above its fair share; see `cache.growths`.

For shares, not for feasibility, a pod counts with `DEFAULT_SHARE` of cpu and memory at least, whether it asks for less
or for nothing: a tenant of thousands of such pods would otherwise hold nothing, and a request of 1m would pay.

Names of resources are free text, so a pod may carry thousands of them. Beyond `MAX_RESOURCES` such a pod is not placed,
and only so many of its amounts are read: those of every node's resources first. The same holds for what a node offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TypeVar

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.facts import (
    BASE_RESOURCES,
    CPU,
    MEMORY,
    PODS,
    Amounts,
    Demand,
    Interner,
    join_amounts,
)
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.model import MAX_AMOUNT

DEFAULT_SHARE: Mapping[str, int] = {CPU: 10, MEMORY: 16 * 2**20}
"""10 milli-CPU and 16 MiB."""

MAX_RESOURCES = 64
"""So many resources a pod may ask for, and a node may offer; each costs a number for every node."""

MAX_SHARED_DEMANDS = 1_024
MAX_REMEMBERED = 32
"""So many amounts and containers of a pod are remembered as they are written, with what they come to."""

Amount = TypeVar("Amount", int, str)

_POD_LEVEL = (CPU, MEMORY)


def _make_demand(real: Amounts) -> Demand:
    stated = dict(real)
    least = {resource: max(amount, stated.get(resource, 0)) for resource, amount in DEFAULT_SHARE.items()}
    share = tuple(sorted((stated | least).items()))
    return Demand(real, real if share == real else share)


_DEMANDS: Interner[Amounts, Demand] = Interner(_make_demand)


def make_demand(amounts: Mapping[str, int]) -> Demand:
    """Return the shared demand with these amounts; zeros drop out, what is too large saturates."""
    real = sorted((resource, min(amount, MAX_AMOUNT)) for resource, amount in amounts.items() if amount > 0)
    return _DEMANDS.get(tuple(real))


_OTHERS: Interner[tuple[Amounts, Amounts, Amounts, Amounts], Demand] = Interner(lambda parts: Demand(*parts))
"""Demands with claimed devices or growth, by real, share, claimed and growth."""


def add_claimed(demand: Demand, devices: Mapping[str, int]) -> Demand:
    """Return the shared demand of a pod that also holds these devices through claims; none of them is zero."""
    claimed = tuple(sorted(devices.items()))
    return _OTHERS.get((demand.real, join_amounts(demand.share, claimed), claimed, demand.growth))


def leave_out_growth(demand: Demand) -> Demand:
    """Return the shared demand that takes only what is allocated, and counts in shares as before."""
    real = dict(demand.real)
    for resource, amount in demand.growth:
        real[resource] -= amount
    allocated = tuple((resource, amount) for resource, amount in real.items() if amount)
    return _OTHERS.get((allocated, demand.share, demand.claimed, demand.growth))


class DemandReader:
    """Reads the amounts of one pod and remembers the first quantity that made no sense (it counts as nothing).

    most: so many resources are read of anything that names more; is_over says that something did. None: all.
    """

    def __init__(self, most: int | None = None) -> None:
        self.fault: str | None = None
        self.is_over = False
        self._most = most

    def read(self, amounts: wire.Amounts | None, where: str) -> dict[str, int]:
        """Return amounts in base units. where: the field's path, for the fault."""
        result: dict[str, int] = {}
        amounts = amounts or {}
        if self._most is not None and len(amounts) > self._most:
            self.is_over, amounts = True, keep_first(amounts, self._most)
        for resource, text in amounts.items():
            try:
                amount = to_base_units(resource, text)
            except QuantityError as error:
                self._note(f"{where}[{resource}]: {error}")
                continue
            if amount < 0:
                self._note(f"{where}[{resource}]: {text!r} is negative")
            else:
                result[resource] = amount
        return result

    def read_requests(self, resources: wire.Resources | None, where: str) -> dict[str, int]:
        """Return the requests of a container or a pod; a limit stands in for a request that is missing."""
        if resources is None:
            return {}
        requests = self.read(resources.requests, f"{where}.resources.requests")
        if resources.limits and len(resources.limits) > len(requests):
            limits = self.read(resources.limits, f"{where}.resources.limits")
            stated = resources.requests or {}
            requests |= {resource: amount for resource, amount in limits.items() if resource not in stated}
        return requests

    def _note(self, fault: str) -> None:
        self.fault = self.fault or fault


class PodDemand(NamedTuple):
    """What a pod holds or asks for.

    fault: the first quantity that made no sense, if any. is_over: whether it names more than `MAX_RESOURCES` resources.
    """

    demand: Demand
    fault: str | None
    is_over: bool


def compute_demand(pod: wire.Pod) -> PodDemand:
    """Return what the pod holds or asks for."""
    spec, served = pod.spec, pod.status.extended_resource_claim_status
    odd = spec.init_containers or spec.overhead or spec.resources is not None or served is not None
    if not (odd or _find_resized(pod)):
        written = tuple([_get_written(container.resources) for container in spec.containers or ()])
        if len(written) + sum(map(len, written)) <= MAX_REMEMBERED:
            return _compute_plain(written)
    return _compute_demand(pod)


def _get_written(resources: wire.Resources | None) -> tuple[tuple[str, str] | None, ...]:
    """Return requests and limits as they are written, with None between them if there are limits."""
    if resources is None:
        return ()
    requests = tuple(resources.requests.items()) if resources.requests else ()
    return (*requests, None, *resources.limits.items()) if resources.limits else requests


@lru_cache(maxsize=MAX_SHARED_DEMANDS)
def _compute_plain(written: tuple[tuple[tuple[str, str] | None, ...], ...]) -> PodDemand:
    """Return what a pod asks for whose containers all run at once, and say so alone. written: see `_get_written`."""
    containers = []
    for amounts in written:
        end = amounts.index(None) if None in amounts else len(amounts)
        requests, limits = (dict(filter(None, part)) for part in (amounts[:end], amounts[end:]))
        containers.append(wire.Container(resources=wire.Resources(requests, limits)))
    return _compute_demand(wire.Pod(spec=wire.PodSpec(containers=containers)))


def _compute_demand(pod: wire.Pod) -> PodDemand:
    reader = DemandReader(MAX_RESOURCES)
    total = _compute_total(pod, reader, allocated_only=_is_resize_pending(pod, "Infeasible"))
    is_over = reader.is_over or len(total) > MAX_RESOURCES
    demand = make_demand(keep_first(total, MAX_RESOURCES) if is_over else total)
    if _is_resize_pending(pod, "Deferred"):
        demand = _add_growth(demand, _compute_total(pod, reader, allocated_only=True))
    return PodDemand(demand, reader.fault, is_over)


def _add_growth(demand: Demand, allocated: Mapping[str, int]) -> Demand:
    """Return the shared demand that says what of it is more than what is allocated."""
    growth = tuple((r, amount - allocated.get(r, 0)) for r, amount in demand.real if amount > allocated.get(r, 0))
    return _OTHERS.get((demand.real, demand.share, (), growth)) if growth else demand


def _compute_total(pod: wire.Pod, reader: DemandReader, *, allocated_only: bool) -> dict[str, int]:
    """Return all that a pod asks for. allocated_only: without what its resize asks for beyond what it has."""
    spec = pod.spec
    total = _compute_containers_total(pod, reader, allocated_only=allocated_only)
    if spec.resources is not None:
        total |= _compute_pod_level(pod, reader, allocated_only=allocated_only)
    for resource, amount in reader.read(spec.overhead, "spec.overhead").items():
        total[resource] = total.get(resource, 0) + amount
    if pod.status.extended_resource_claim_status is not None:
        for served in pod.status.extended_resource_claim_status.request_mappings or ():
            if served.resource_name not in BASE_RESOURCES:
                total.pop(served.resource_name, None)
    total[PODS] = 1
    return total


def keep_first(amounts: Mapping[str, Amount], count: int) -> dict[str, Amount]:
    """Return so many of the amounts: of the resources that every node has, then the first others as they come."""
    base: list[str] = [resource for resource in BASE_RESOURCES if resource in amounts]
    return {resource: amounts[resource] for resource in islice(dict.fromkeys([*base, *amounts]), count)}


def _compute_containers_total(pod: wire.Pod, reader: DemandReader, *, allocated_only: bool) -> dict[str, int]:
    statuses = _find_resized(pod)
    running: dict[str, int] = {}
    for number, container in enumerate(pod.spec.containers or ()):
        requests = reader.read_requests(container.resources, f"spec.containers[{number}]")
        if container.name in statuses:
            requests = _compute_resized(requests, statuses[container.name], reader, allocated_only=allocated_only)
        _add(running, requests)
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for number, container in enumerate(pod.spec.init_containers or ()):
        requests = reader.read_requests(container.resources, f"spec.initContainers[{number}]")
        if container.name in statuses:
            requests = _compute_resized(requests, statuses[container.name], reader, allocated_only=allocated_only)
        if container.restart_policy == "Always":
            _add(running, requests)
            _add(sidecars, requests)
        else:
            _add(requests, sidecars)
            _raise_to(starting, requests)
    _raise_to(running, starting)
    return running


def _compute_pod_level(pod: wire.Pod, reader: DemandReader, *, allocated_only: bool) -> dict[str, int]:
    stated = pod.spec.resources.requests if pod.spec.resources is not None else None
    requests = reader.read(stated, "spec.resources.requests")
    levels = {r: amount for r, amount in requests.items() if r in _POD_LEVEL or r.startswith("hugepages-")}
    held = pod.status.resources
    if levels and held is not None:
        if allocated_only:
            levels = dict.fromkeys(levels, 0)
        for amounts in (held.requests, pod.status.allocated_resources):
            present = reader.read(amounts, "status")
            _raise_to(levels, {resource: amount for resource, amount in present.items() if resource in levels})
    return levels


def _find_resized(pod: wire.Pod) -> dict[str, wire.ContainerStatus]:
    """Return the container statuses that say what runs; most pods have none before they run."""
    found: dict[str, wire.ContainerStatus] = {}
    statuses: Iterable[list[wire.ContainerStatus] | None] = (
        pod.status.init_container_statuses,
        pod.status.container_statuses,
    )
    for group in statuses:
        if not group:
            continue
        for status in group:
            if status.resources is not None or status.allocated_resources:
                found[status.name] = status
    return found


def _compute_resized(
    requests: dict[str, int], status: wire.ContainerStatus, reader: DemandReader, *, allocated_only: bool
) -> dict[str, int]:
    running = status.resources.requests if status.resources is not None else None
    held = reader.read(running, "status.containerStatuses.resources.requests")
    _raise_to(held, reader.read(status.allocated_resources, "status.containerStatuses.allocatedResources"))
    if held and allocated_only:
        return held
    _raise_to(held, requests)
    return held


def _is_resize_pending(pod: wire.Pod, reason: str) -> bool:
    return any(c.type == "PodResizePending" and c.reason == reason for c in pod.status.conditions or ())


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount > total.get(resource, -1):
            total[resource] = amount
