"""The feeds of objects about volumes and devices: what each kind changes in the state, and when that wakes the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from fairbind.cluster.cache.feeds import Feed
from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.objects.decode import (
    ATTACHMENTS,
    CLAIMS,
    COSCHEDULING_POD_GROUPS,
    CSI_DRIVERS,
    CSI_NODES,
    DEVICE_CLASSES,
    JOBS,
    POD_GROUPS,
    QUOTAS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLCANO_POD_GROUPS,
    VOLUMES,
    ResourceType,
)
from fairbind.cluster.objects.device_facts import DeviceClassFacts, ResourceClaimFacts, SliceFacts
from fairbind.cluster.objects.group_facts import JobFacts, PodGroupFacts
from fairbind.cluster.objects.group_marks import GroupFormat
from fairbind.cluster.objects.quota_facts import QuotaFacts
from fairbind.cluster.objects.task_names import make_task_name
from fairbind.cluster.objects.volume_facts import (
    AttachmentFacts,
    ClaimFacts,
    CsiDriverFacts,
    CsiNodeFacts,
    StorageCapacityFacts,
    StorageClassFacts,
    VolumeFacts,
    name_claim,
)

Named = TypeVar(
    "Named",
    bound=ClaimFacts
    | VolumeFacts
    | StorageClassFacts
    | CsiNodeFacts
    | CsiDriverFacts
    | AttachmentFacts
    | StorageCapacityFacts
    | ResourceClaimFacts
    | DeviceClassFacts
    | SliceFacts
    | PodGroupFacts
    | JobFacts
    | QuotaFacts,
)

ObjectFeeds = tuple[tuple[ResourceType[Any], Feed[Any]], ...]
"""Each kind, and where its objects go."""


def _get_name(
    facts: VolumeFacts
    | StorageClassFacts
    | CsiNodeFacts
    | CsiDriverFacts
    | AttachmentFacts
    | DeviceClassFacts
    | SliceFacts,
) -> str:
    return facts.name


def _find_key(claim: ClaimFacts | StorageCapacityFacts | ResourceClaimFacts) -> str:
    """Return what a claim, or another object of a namespace, is known by."""
    return name_claim(claim.namespace, claim.name)


def make_volume_feeds(state: ClusterState, touch: Callable[[], None]) -> ObjectFeeds:
    """Return the feeds of all kinds of objects about volumes. touch: called when a decision may be another."""
    volumes = state.volumes

    def feed(
        key: Callable[[Named], str], put: Callable[[str, Named | None], None], objects: Mapping[str, Named]
    ) -> Feed[Named]:
        def change(name: str, facts: Named | None) -> None:
            before = volumes.versions
            put(name, facts)
            is_other_answer = state.queues.about_volumes and volumes.versions != before
            if volumes.has_stale or volumes.limits.nodes_to_follow or is_other_answer:
                touch()

        return _make_feed(key, change, objects)

    return (
        (CLAIMS, feed(_find_key, volumes.put_claim, volumes.claims)),
        (VOLUMES, feed(_get_name, volumes.put_volume, volumes.volumes)),
        (STORAGE_CLASSES, feed(_get_name, volumes.put_class, volumes.classes)),
        (CSI_NODES, feed(_get_name, volumes.put_csi_node, volumes.csi_nodes)),
        (CSI_DRIVERS, feed(_get_name, volumes.put_driver, volumes.drivers)),
        (ATTACHMENTS, feed(_get_name, volumes.put_attachment, volumes.attachments)),
        (STORAGE_CAPACITIES, feed(_find_key, volumes.put_capacity, volumes.capacities)),
    )


def make_device_feeds(state: ClusterState, touch: Callable[[], None]) -> ObjectFeeds:
    """Return the feeds of all kinds of objects about devices. touch: called when a decision may be another."""
    devices = state.devices

    def feed(
        key: Callable[[Named], str],
        put: Callable[[str, Named | None], None],
        objects: Mapping[str, Named],
        on_listed: Callable[[bool], None] = lambda _is_served: None,
    ) -> Feed[Named]:
        def change(name: str, facts: Named | None) -> None:
            before = devices.classes.changes.revision
            put(name, facts)
            if devices.has_stale or devices.classes.changes.revision != before:
                touch()

        return _make_feed(key, change, objects, on_listed)

    def note_listed(is_served: bool) -> None:  # noqa: FBT001 - as feeds call it
        devices.waits.note_listed(is_served=is_served)
        if devices.has_stale:
            touch()

    return (
        (DEVICE_CLASSES, feed(_get_name, devices.put_class, devices.classes.by_name)),
        (RESOURCE_SLICES, feed(_get_name, devices.put_slice, devices.pools.slices)),
        (RESOURCE_CLAIMS, feed(_find_key, devices.put_claim, devices.claims, note_listed)),
    )


def make_group_feeds(state: ClusterState, touch: Callable[[], None]) -> ObjectFeeds:
    """Return the feeds of PodGroups, Jobs and quotas. touch: called when a decision may be another."""
    groups = state.groups

    def feed_pod_groups(kind: GroupFormat) -> Feed[PodGroupFacts]:
        def change(name: str, facts: PodGroupFacts | None) -> None:
            groups.put_pod_group(kind, name, facts)
            touch()

        return _make_feed(_name_object, change, groups.pod_groups[kind])

    def change_job(name: str, facts: JobFacts | None) -> None:
        facts = None if facts is None or facts.mark is None else facts
        if groups.jobs.get(name) != facts:
            groups.put_job(name, facts)
            touch()

    def change_quota(name: str, facts: QuotaFacts | None) -> None:
        if groups.put_quota(name, facts):
            touch()

    return (
        (POD_GROUPS, feed_pod_groups(GroupFormat.NATIVE)),
        (VOLCANO_POD_GROUPS, feed_pod_groups(GroupFormat.VOLCANO)),
        (COSCHEDULING_POD_GROUPS, feed_pod_groups(GroupFormat.COSCHEDULING)),
        (JOBS, _make_feed(_name_object, change_job, groups.jobs)),
        (QUOTAS, _make_feed(_name_object, change_quota, groups.quotas.by_key)),
    )


def _name_object(facts: PodGroupFacts | JobFacts | QuotaFacts) -> str:
    return make_task_name(facts.namespace, facts.name)


def _make_feed(
    key: Callable[[Named], str],
    change: Callable[[str, Named | None], None],
    objects: Mapping[str, Named],
    on_listed: Callable[[bool], None] = lambda _is_served: None,
) -> Feed[Named]:
    """Return the feed of a kind of objects, which are kept by their keys. change: takes what differs from before."""

    def take(name: str, facts: Named | None) -> None:
        kept = None if facts is None else msgspec.structs.replace(facts, version="")  # of use to feeds only
        if objects.get(name) != kept:
            change(name, kept)

    return Feed(
        key=key,
        put=lambda facts: take(key(facts), facts),
        remove=lambda name: take(name, None),
        known=objects.keys,
        on_listed=on_listed,
    )
