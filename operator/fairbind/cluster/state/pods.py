"""Where a pod stands in the state: it holds something, it waits to be decided, it waits for something else, or nothing.

In gate mode another scheduler's pods wait behind our gate. From the decision on such a pod holds its
capacity, as any other. When its capacity was given back, or it was let go without any so that a node is bought for
it, it only counts in the share. In extender mode another scheduler asks before it places a pod. Its pods of tenants
wait and hold as our own do.

`locate` decides it from what the API says, from what we have assumed, and from whose namespace it is in; a pod of
another scheduler that is not bound yet stands in them only while a node's capacity is reserved for it. The cache
compares the answer with the one before and moves the pod when it differs; so no sequence of events, however odd, can
count a pod twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from fairbind.cluster.filters.anti_affinity import AntiAffinity
from fairbind.cluster.filters.nominated_rules import Nomination
from fairbind.cluster.filters.term_index import NO_TERMS
from fairbind.cluster.filters.volume_offers import Wanted
from fairbind.cluster.objects.constraints import FEATURES, set_images
from fairbind.cluster.objects.facts import (
    Demand,
    Owner,
    PodFacts,
    PodTerms,
)
from fairbind.cluster.objects.requests import leave_out_growth
from fairbind.cluster.objects.task_names import make_task_name
from fairbind.cluster.state.claim_troubles import Trouble
from fairbind.cluster.state.claimed import add_brought, add_held
from fairbind.cluster.state.devices import Devices
from fairbind.cluster.state.groups import Groups
from fairbind.cluster.state.nominations import Nominations
from fairbind.cluster.state.pod_images import PodImages
from fairbind.cluster.state.positions import Bound, Idle, Opened, Position, Reserved, Waiting
from fairbind.cluster.state.queue_keys import QueueKey, round_up
from fairbind.cluster.state.term_rotation import NOT_YET, TermRotation
from fairbind.cluster.state.volumes import Volumes
from fairbind.cluster.tenancy.tenants import Directory
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import Rejection, Task


class PodEntry:
    """One pod in the cache.

    assumed: the node that we have decided and the API has not confirmed. scales_up: its gate is opened without
    capacity. ungated: when the last gate of others was seen gone, seconds since the epoch; None: it was never seen
    behind one.
    """

    __slots__ = ("assumed", "facts", "position", "postponed", "scales_up", "ungated")

    def __init__(self, facts: PodFacts) -> None:
        self.facts = facts
        self.assumed: str | None = None
        self.postponed = False
        self.scales_up = False
        self.ungated: float | None = None
        self.position: Position | None = None

    def note_gates(self, now: PodFacts, wall_clock: Callable[[], float]) -> None:
        """Note when the last gate of others is gone. now: newer facts than its own."""
        if self.facts.gated_by_others and not now.gated_by_others:
            self.ungated = wall_clock()

    @property
    def queue(self) -> QueueKey | None:
        """Where it waits to be decided."""
        return self.position.key if isinstance(self.position, Waiting) else None


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod as others ask for it.

    node: where the API says it is bound. assumed: where we have decided to bind it. ready_since: since when no gate of
    others keeps it back, seconds since the epoch.
    tenant: empty when it belongs to no tenant. is_waiting: for a node, also while it is postponed.
    unsupported: the very thing that it carries and that is not honoured yet.
    scheduled_message: what its condition PodScheduled=False says, or None when it has none. owner: its controller.
    is_gated: it has scheduling gates. nominated_node: where capacity is reserved for it until it is bound. generation,
    scheduled_generation: see `PodFacts`.
    """

    uid: str
    namespace: str
    name: str
    ready_since: float
    priority: int
    tenant: str
    node: str | None
    assumed: str | None
    resource_version: str
    is_waiting: bool
    unsupported: str | None
    scheduled_message: str | None
    owner: Owner | None
    is_gated: bool = False
    generation: int = 0
    scheduled_generation: int = 0
    nominated_node: str | None = None


def is_waiting(position: Position | None) -> bool:
    """Whether a pod may still be placed, now or when it is not postponed any more."""
    return isinstance(position, Waiting) or (isinstance(position, Idle) and not position.gated)


def describe_pod(entry: PodEntry, tenant: str | None, unsupported: str | None) -> PodRecord:
    """Return a pod as others ask for it. unsupported: what of it is not honoured yet."""
    facts = entry.facts
    return PodRecord(
        uid=facts.uid,
        namespace=facts.namespace,
        name=facts.name,
        ready_since=facts.created if entry.ungated is None else entry.ungated,
        priority=facts.priority,
        tenant=tenant or "",
        node=facts.node,
        assumed=None if facts.node else entry.assumed,
        resource_version=facts.version,
        is_waiting=is_waiting(entry.position),
        unsupported=unsupported,
        scheduled_message=facts.scheduled_message,
        owner=facts.owner,
        is_gated=facts.gated,
        generation=facts.generation,
        scheduled_generation=facts.scheduled_generation,
        nominated_node=facts.nominated_node,
    )


def find_tenant(facts: PodFacts, directory: Directory, scheduler_name: str) -> str | None:
    """Return the leaf whose pod it is: its namespace decides, and its user. None: no tenant's (a system pod)."""
    if facts.scheduler != scheduler_name and directory.is_system(facts.namespace):
        return None
    return directory.leaf_of(facts.namespace, facts.labels)


def locate(
    entry: PodEntry,
    directory: Directory,
    anti_affinity: AntiAffinity,
    nominations: Nominations,
    rotation: TermRotation,
    volumes: Volumes,
    images: PodImages,
    devices: Devices,
    *,
    groups: Groups,
    above: Container[str | None],
    scheduler_name: str,
    gated_scheduler: str | None = None,
    asking: frozenset[str] = frozenset(),
) -> Position | None:
    """Return where the pod stands now; None when it neither holds nor waits for anything of ours.

    above: tenants for whose deferred growth nothing is reserved. gated_scheduler: the other scheduler whose pods of
    tenants are rationed; None: there is none. asking: schedulers that ask which pod is next before they place a pod.
    """
    facts = entry.facts
    if facts.finished:
        return None
    tenant = find_tenant(facts, directory, scheduler_name)
    is_rationed = tenant is not None and facts.scheduler == gated_scheduler
    is_on_its_way = is_rationed and (not facts.gated or entry.scales_up)
    asks = tenant is not None and facts.scheduler in asking
    # Free capacity that the other scheduler makes by evicting pods is where it will place this one, whatever was
    # decided.
    node = facts.node or (facts.nominated_node if is_on_its_way else None) or entry.assumed
    if node is None and facts.terminating:
        return None
    if node is None and (is_on_its_way or not (is_rationed or asks or facts.scheduler == scheduler_name)):
        return _locate_unplaced(facts, tenant, volumes, is_on_its_way=is_on_its_way)
    if node is not None:
        constraints = volumes.constrain(facts) if facts.claims else facts.constraints
        demand = _find_held(facts, node, devices, volumes, reserves_growth=tenant not in above)
        return Bound(tenant, node, demand, constraints, facts.repels, facts.labels, facts.terminating, facts.carries)
    assert tenant is not None
    is_gated = facts.gated and not (is_rationed and facts.is_behind_our_gate)
    if is_gated or entry.postponed:
        return Idle(tenant, is_gated)
    blocked = _find_unsupported(facts, None if asks or is_rationed else devices, asks=asks)
    blocked = blocked or directory.find_refusal(facts.namespace)
    constraints, load = facts.constraints, None
    unbound: tuple[Wanted, ...] = ()
    if blocked is None and (trouble := _find_claim_trouble(facts, volumes, devices)) is not None:
        blocked = trouble[0]
    if facts.claims and blocked is None:
        constraints, load = volumes.constrain(facts), volumes.find_load(facts)
        unbound = volumes.find_wanted(facts)
    pod_terms = facts.pod_terms if blocked is None else None
    if pod_terms is not None and not rotation.is_looked_at(find_tenant_of_leaf(tenant), pod_terms):
        blocked = NOT_YET
    if blocked is None:
        constraints = set_images(constraints, images.find(facts))
    nomination = find_nomination(facts, tenant) if blocked is None else None
    group, role, queue_time = groups.find_place(facts)
    key = QueueKey(
        tenant,
        add_brought(facts.demand, load, volumes.limits),
        constraints,
        blocked,
        pin=facts.pin,
        selected_by=anti_affinity.find_terms(facts.namespace, facts.labels) if blocked is None else NO_TERMS,
        pod_terms=pod_terms if blocked is None else None,
        above_priority=nominations.find_above_priority(facts.priority),
        nominated=None if nomination is None else facts.uid,
        load=load,
        unbound=unbound,
        is_rationed=is_rationed or asks,
        most_seconds=round_up(facts.most_seconds),
        group=group,
        role=role,
    )
    task = Task(facts.uid, make_task_name(facts.namespace, facts.name), facts.priority, queue_time)
    return Waiting(key, task, facts.labels, nomination, pod_terms)


def _find_held(facts: PodFacts, node: str, devices: Devices, volumes: Volumes, *, reserves_growth: bool) -> Demand:
    """Return what a pod holds on its node."""
    demand = add_held(facts, node, devices, volumes)
    return demand if reserves_growth or not demand.growth else leave_out_growth(demand)


def _find_claim_trouble(facts: PodFacts, volumes: Volumes, devices: Devices) -> Trouble | None:
    """Return why a waiting pod must wait for its claims of volumes and devices, if those are honoured; or None."""
    trouble = devices.waits.find_trouble(facts) if facts.device_claims else None
    return volumes.find_trouble(facts) if trouble is None and facts.claims else trouble


def find_detail(entry: PodEntry, volumes: Volumes, devices: Devices) -> str | None:
    """Return the very thing for which a pod is not placed, where others wait for the like."""
    facts, position = entry.facts, entry.position
    if isinstance(position, Waiting):
        trouble = _find_claim_trouble(facts, volumes, devices)
        if trouble is not None and trouble[0] == position.key.unsupported:
            return trouble[1]
    return facts.unsupported_detail


def _find_unsupported(facts: PodFacts, devices: Devices | None, *, asks: bool) -> Rejection | None:
    """Return what a pod needs that is not honoured. devices: None when another scheduler places it, which makes claims.

    asks: that one asks which pod is next, and honours more than we do.
    """
    unsupported = None if asks and facts.unsupported in FEATURES else facts.unsupported
    return unsupported or (None if devices is None else devices.classes.find_unserved(facts.demand))


def _locate_unplaced(facts: PodFacts, tenant: str | None, volumes: Volumes, *, is_on_its_way: bool) -> Position | None:
    """Return where a pod stands that another scheduler will place. is_on_its_way: its gate is open."""
    if tenant is not None and is_on_its_way:
        load = volumes.find_load(facts) if facts.claims else None
        return Opened(tenant, add_brought(facts.demand, load, volumes.limits), facts.constraints)
    nomination = find_nomination(facts, tenant)
    return None if nomination is None else Reserved(nomination)


def find_nomination(facts: PodFacts, tenant: str | None) -> Nomination | None:
    """Return the capacity that is kept for a pod that is not bound yet, or None."""
    node = facts.nominated_node
    if node is None or facts.gated:
        return None
    return Nomination(
        facts.uid, node, facts.priority, facts.demand, facts.namespace, facts.labels, facts.repels, tenant
    )


def get_asked(position: Position | None) -> PodTerms | None:
    """Return the pod terms of a pod that are looked at."""
    return position.key.pod_terms if isinstance(position, Waiting) else None


def get_pod_terms(position: Position | None) -> tuple[str, PodTerms] | None:
    """Return the tenant, of users theirs, and the pod terms of a pod that has some, also while they wait."""
    if not isinstance(position, Waiting) or position.pod_terms is None:
        return None
    return find_tenant_of_leaf(position.key.tenant), position.pod_terms
