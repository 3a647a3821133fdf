"""Snapshots of clusters with claims: what is kept, that decisions stay, and that no name is left."""

from __future__ import annotations

import json

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.cluster.state.claim_troubles import IN_USE, MISSING
from fairbind.model import InvalidProblemError
from fairbind.what_if.anonymise import anonymise
from fairbind.what_if.listed_objects import ListedObjects, build_cache
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot
from what_if.snapshots import kind, make_list

SECRET = "hunter2"
ZONE = "topology.kubernetes.io/zone"
BOUND = "pv.kubernetes.io/bind-completed"


def make_claim(name: str, volume: str, **meta: object) -> Json:
    meta = {"annotations": {BOUND: "yes", "owner": SECRET}, "labels": {"secret": SECRET}, **meta}
    spec = {"volumeName": volume, "storageClassName": "gold", "accessModes": ["ReadWriteOncePod"]}
    return {
        "metadata": {"name": name, "namespace": "team", "resourceVersion": "1", **meta},
        "spec": {**spec, "selector": {"matchLabels": {"secret": SECRET}}},
        "status": {"phase": "Bound"},
    }


def make_volume(name: str, zone: str, **labels: str) -> Json:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    csi = {"driver": "disk.acme.org", "volumeHandle": f"handle-{name}", "volumeAttributes": {"secret": SECRET}}
    spec = {"csi": csi, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    return {"metadata": {"name": name, "labels": {"secret": SECRET, **labels}}, "spec": spec}


def claim_volume(name: str) -> Json:
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def make_document() -> Json:
    """Zones a and b: one pod's volume is in a, another's in b, one waits for a claim, and one shares the first's."""
    owner = {"kind": "Pod", "name": "burst", "uid": "uid-burst", "controller": True}
    driver = {"name": "disk.acme.org", "nodeID": SECRET, "allocatable": {"count": 1}}
    document = make_list(
        nodes=[make_node(f"node-{zone}", labels={ZONE: f"zone-{zone}"}) for zone in "ab"],
        pods=[
            make_pod("web", volumes=[claim_volume("web-data")]),
            make_pod("shop", volumes=[claim_volume("shop-data")]),
            make_pod("lost", volumes=[claim_volume("lost-data")]),
            make_pod("twin", volumes=[claim_volume("web-data")], node="node-a"),
            make_pod("burst", volumes=[{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"secret": SECRET}}}]),
        ],
    )
    document["items"] += [
        *kind(
            "PersistentVolumeClaim",
            make_claim("web-data", "volume-web"),
            make_claim("shop-data", "volume-shop"),
            make_claim("burst-tmp", "volume-tmp", ownerReferences=[owner]),
        ),
        *kind(
            "PersistentVolume",
            make_volume("volume-web", "zone-a"),
            make_volume("volume-shop", "zone-b", **{ZONE: "zone-b"}),
            make_volume("volume-tmp", "zone-b"),
        ),
        *kind("StorageClass", {"metadata": {"name": "gold"}, "provisioner": "disk.acme.org", "mountOptions": [SECRET]}),
        *kind("CSINode", {"metadata": {"name": "node-b"}, "spec": {"drivers": [driver]}}),
        *kind("CSIDriver", {"metadata": {"name": "disk.acme.org", "labels": {"secret": SECRET}}, "spec": {}}),
        *kind(
            "VolumeAttachment",
            {
                "metadata": {"name": "csi-1"},
                "spec": {
                    "attacher": "disk.acme.org",
                    "nodeName": "node-a",
                    "source": {"persistentVolumeName": "volume-web"},
                },
            },
        ),
    ]
    return document


def describe(listed: ListedObjects) -> list[tuple[str, object, list[bool]]]:
    """What each waiting pod is told, in the order of their names."""
    snapshot = build_cache(listed).build_snapshot()
    return sorted(
        (task.name, task_class.blocked, task_class.placement.eligible_k.tolist())
        for task_class in snapshot.task_classes
        for task in task_class.tasks
    )


def test_claims_decide_in_a_snapshot_as_in_the_cluster() -> None:
    listed = parse_snapshot(make_document())

    told = {name: (blocked, eligible) for name, blocked, eligible in describe(listed)}
    assert told["team/shop"] == (None, [False, True])
    assert told["team/burst"] == (None, [False, True])
    assert told["team/lost"][0] == MISSING
    assert told["team/web"][0] == IN_USE


def test_the_file_is_read_as_it_was_written_and_has_only_what_decides() -> None:
    listed = parse_snapshot(make_document())
    text = format_snapshot(listed)
    again = parse_snapshot(json.loads(text))

    assert format_snapshot(again) == text
    assert describe(again) == describe(listed)
    assert SECRET not in text
    assert set(json.loads(text)) >= {"persistentVolumeClaims", "persistentVolumes", "storageClasses", "csiNodes"}


def test_decisions_stay_and_no_name_that_somebody_gave_is_left() -> None:
    listed = parse_snapshot(make_document())
    other = anonymise(listed)
    text = format_snapshot(other)

    assert [each[1:] for each in describe(other)] == [each[1:] for each in describe(listed)]
    words = ("web", "shop", "lost", "twin", "burst", "acme", "gold", "zone-", "handle", "tmp", "team")
    assert [word for word in words if word in text] == []


def test_a_cluster_without_volumes_has_nothing_of_them_in_its_file() -> None:
    text = format_snapshot(parse_snapshot(make_list(nodes=[make_node("n")])))

    assert not any(field in text for field in ("persistentVolume", "storageClasses", "csi", "volumeAttachments"))


def test_two_claims_of_one_name_are_named() -> None:
    document = make_document()
    document["items"] += kind("PersistentVolumeClaim", make_claim("web-data", "volume-shop"))

    with pytest.raises(InvalidProblemError, match=r"persistentVolumeClaims.* must differ from all others"):
        parse_snapshot(document)
