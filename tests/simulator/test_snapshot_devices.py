"""Snapshots of clusters in which pods hold devices: what is kept, that shares stay, and that no name is left."""

from __future__ import annotations

import json
from typing import Any

from cluster.builders import Json, make_node, make_pod
from cluster.devices import GPU, IMPLICIT, make_claim, make_class, make_slice
from fairbind.what_if.anonymise import anonymise
from fairbind.what_if.listed_objects import ListedObjects, build_cache
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot
from what_if.snapshots import kind, make_list

SECRET = "hunter2"


def make_document() -> Json:
    """One device of four by a class with a resource, two of another class, and one that kube-scheduler claimed."""
    served = {"resourceClaimName": SECRET, "requestMappings": [{"containerName": SECRET, "resourceName": GPU}]}
    document = make_list(
        nodes=[make_node(f"host-{letter}") for letter in "ab"],
        pods=[
            make_pod("web", node="host-a"),
            make_pod("shop", node="host-a", requests={GPU: "1"}, status={"extendedResourceClaimStatus": served}),
            make_pod("waits", requests={GPU: "1"}),
        ],
    )
    own = make_claim("web-claim", ["acme-0"], ["uid-web"], pool="pool-a", device_class="nic")
    own["metadata"]["annotations"] = {"secret": SECRET}
    own["status"]["devices"] = [{"driver": "gpu.example.com", "data": {"secret": SECRET}}]
    parts = [{"counterSet": "acme", "counters": {"memory": {"value": "20Gi"}}}]
    devices = [{"name": SECRET, "attributes": {"secret": SECRET}, "consumesCounters": parts} for _ in range(3)]
    sets = [{"name": "acme", "counters": {"memory": {"value": "40Gi"}}}]
    document["items"] += [
        *kind("ResourceClaim", own, make_claim("shop-claim", ["acme-1"], ["uid-shop"], pool="pool-a")),
        *kind("ResourceClaim", make_claim("pending-claim", [])),
        *kind("DeviceClass", make_class("gpu", GPU), make_class("nic")),
        *kind(
            "ResourceSlice",
            make_slice("slice-a", 2, node="host-a", pool="pool-a"),
            make_slice("slice-b", devices, node="host-b", pool="pool-b"),
            make_slice("sets-b", [], node="host-b", pool="pool-b", sharedCounters=sets),
        ),
    ]
    return document


def describe(listed: ListedObjects) -> Any:
    snapshot = build_cache(listed).build_snapshot()
    blocked = [str(task_class.blocked) for task_class in snapshot.task_classes]
    return [snapshot.resources, snapshot.total_r, [tenant.allocated_r for tenant in snapshot.tenants], blocked]


def test_devices_count_in_a_snapshot_as_in_the_cluster() -> None:
    resources, total_r, (allocated_r,), (blocked,) = describe(parse_snapshot(make_document()))

    nic = IMPLICIT.replace("gpu", "nic")
    assert dict(zip(resources, total_r, strict=True)) | {GPU: 4, nic: 4} == dict(zip(resources, total_r, strict=True))
    assert [dict(zip(resources, allocated_r, strict=True))[resource] for resource in (GPU, nic)] == [1, 1]
    assert "DeviceClass gpu serves" in blocked


def test_the_file_is_read_as_it_was_written_and_has_only_what_decides() -> None:
    listed = parse_snapshot(make_document())
    text = format_snapshot(listed)

    assert format_snapshot(parse_snapshot(json.loads(text))) == text
    assert describe(parse_snapshot(json.loads(text))) == describe(listed)
    assert SECRET not in text
    assert "main" not in text.partition('"resourceClaims"')[2]


def test_shares_stay_and_no_name_that_somebody_gave_is_left() -> None:
    listed = parse_snapshot(make_document())
    other = anonymise(listed)
    text = format_snapshot(other)

    assert describe(other) == describe(listed)
    words = ("web", "shop", "waits", "acme", "host-", "pool-", "slice-", "sets-", "claim-", "team", "gpu.example")
    assert [word for word in words if word in text] == []
