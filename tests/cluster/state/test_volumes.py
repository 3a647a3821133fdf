"""Claims of pods in the cache: why a pod waits for one, where its volumes let it go, and who is looked at again."""

from __future__ import annotations

import random

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod
from cluster.volumes import DRIVER, ZONE, VolumeCluster, claiming
from fairbind.cluster.filters.attach_limits import FULL
from fairbind.cluster.state.claim_troubles import IN_USE
from fairbind.model import LimitRule, RejectionKind, TaskClass
from fairbind.scheduling import run_cycle
from seeds import draw_seeds


@pytest.fixture
def cluster() -> VolumeCluster:
    return VolumeCluster()


def test_a_pod_goes_where_all_its_volumes_are(cluster: VolumeCluster) -> None:
    for name, zone in (("here", "a"), ("there", "b"), ("everywhere", None)):
        cluster.add_volume(name, zone)
        cluster.add_claim(f"claim-{name}", name)
    cluster.add_pods(
        claiming("one", "claim-here", "claim-everywhere"),
        claiming("both", "claim-here", "claim-there"),
        claiming("free", "claim-everywhere"),
        make_pod("plain", requests={"cpu": "1"}),
    )

    found = {name: cluster.find_eligible(f"uid-{name}") for name in ("one", "both", "free", "plain")}
    assert found == {"one": {"a"}, "both": set(), "free": {"a", "b"}, "plain": {"a", "b"}}
    assert cluster.get_class("uid-free") is cluster.get_class("uid-plain")  # one class for both
    cluster.cache.check_consistent()


TROUBLES: dict[str, tuple[Json, str]] = {
    "unbound": ({}, "pod has unbound immediate PersistentVolumeClaims"),
    "bound by half": ({"volume": "v", "is_bound": False}, "pod has unbound immediate PersistentVolumeClaims"),
    "no class": ({"storage_class": "none"}, "pod has unbound immediate PersistentVolumeClaims"),
    "prebound": (
        {"volume": "v", "is_bound": False, "storage_class": "late"},
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "lost": (
        {"volume": "v", "phase": "Lost"},
        'persistentvolumeclaim "claim" bound to non-existent persistentvolume "v"',
    ),
    "deleted": (
        {"volume": "v", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        'persistentvolumeclaim "claim" is being deleted',
    ),
    "no volume": ({"volume": "gone"}, 'persistentvolume "gone" not found'),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_claim_that_is_not_ready_is_told_in_kube_schedulers_words(cluster: VolumeCluster, trouble: str) -> None:
    claim, words = TROUBLES[trouble]
    cluster.add_volume("v")
    cluster.add_pods(claiming("pod", "claim"))
    assert cluster.find_words() == 'persistentvolumeclaim "claim" not found'
    cluster.add_claim("claim", **claim)

    blocked = cluster.get_class("uid-pod").blocked
    assert blocked is not None
    assert blocked.kind == RejectionKind.CLAIM
    assert cluster.find_words() == words
    cluster.add_claim("claim", "v")
    assert cluster.get_class("uid-pod").blocked is None
    assert cluster.find_words() is None
    cluster.add_claim("claim", is_gone=True)
    assert cluster.find_words() == 'persistentvolumeclaim "claim" not found'
    cluster.cache.check_consistent()


def test_a_class_that_is_gone_binds_at_once_as_far_as_is_known(cluster: VolumeCluster) -> None:
    cluster.add_claim("claim", storage_class="late")
    cluster.add_pods(claiming("pod", "claim"))

    assert cluster.get_class("uid-pod").blocked is None
    cluster.add("storageclasses", "late", is_gone=True)
    blocked = cluster.get_class("uid-pod").blocked
    assert blocked is not None
    assert blocked.kind == RejectionKind.CLAIM


def test_the_beta_annotation_names_the_class_before_the_field(cluster: VolumeCluster) -> None:
    cluster.add_claim("claim", annotations={"volume.beta.kubernetes.io/storage-class": "late"})
    cluster.add_pods(claiming("pod", "claim"))

    assert cluster.get_class("uid-pod").blocked is None


def test_an_ephemeral_volume_needs_the_claim_that_was_made_for_its_pod(cluster: VolumeCluster) -> None:
    cluster.add_pods(make_pod("pod", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]))
    text = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-scratch"'
    assert cluster.find_words() == text

    cluster.add_volume("v", "b")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "controller": True}
    cluster.add_claim("pod-scratch", "v", ownerReferences=[{**owner, "uid": "uid-of-another"}])
    text = "PVC team/pod-scratch was not created for pod team/pod (pod is not owner)"
    assert cluster.find_words() == text
    cluster.add_claim("pod-scratch", "v", ownerReferences=[{**owner, "uid": "uid-pod"}])
    assert cluster.find_eligible("uid-pod") == {"b"}


def test_one_pod_at_a_time_uses_a_claim_that_is_read_write_once_pod(cluster: VolumeCluster) -> None:
    cluster.add_volume("v")
    cluster.add_claim("claim", "v", mode="ReadWriteOncePod")
    running = claiming("running", "claim", node="a")
    cluster.add_pods(running, claiming("pod", "claim"))

    assert cluster.get_class("uid-pod").blocked == IN_USE
    cluster.cache.check_consistent()
    changes = cluster.changes
    cluster.delete_pod(running)
    assert cluster.changes > changes
    assert cluster.get_class("uid-pod").blocked is None
    cluster.add_pods(claiming("lost", "claim", node="gone"))  # its node is not there
    assert cluster.get_class("uid-pod").blocked is None
    cluster.add_nodes(make_node("gone"))
    assert cluster.get_class("uid-pod").blocked == IN_USE


def decide(cluster: Cluster) -> dict[str, str]:
    """Run a cycle, and let its decisions hold until each is sent, or found to be in vain."""
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    for bind in report.bindings:
        assert cluster.cache.assume(bind.task.uid, bind.server)
    sent = {}
    queries = cluster.cache.queries
    for bind in report.bindings:
        if queries.may_use(bind.task.uid, bind.server) and queries.has_capacity(bind.task.uid, bind.server):
            sent[bind.task.uid] = bind.server
        else:
            cluster.cache.forget(bind.task.uid)
    return sent


def test_of_two_pods_with_one_exclusive_claim_in_one_cycle_one_is_bound(cluster: VolumeCluster) -> None:
    cluster.add_volume("v")
    cluster.add_claim("claim", "v", mode="ReadWriteOncePod")
    cluster.add_pods(claiming("one", "claim"), claiming("two", "claim"))

    assert len(decide(cluster)) == 1
    assert decide(cluster) == {}
    (waiting,) = cluster.cache.build_snapshot().task_classes
    assert waiting.blocked == IN_USE
    cluster.cache.check_consistent()


def test_no_cycle_sends_more_volumes_to_a_node_than_it_takes(cluster: VolumeCluster) -> None:
    for node, count in (("a", 1), ("b", 2)):
        cluster.add_csi_node(node, count)
    for number in range(5):
        cluster.add_volume(f"v{number}")
        cluster.add_claim(f"c{number}", f"v{number}")
        cluster.add_pods(claiming(f"p{number}", f"c{number}"))

    sent: dict[str, str] = {}
    for _ in range(5):
        sent |= decide(cluster)
    assert sorted(sent.values()) == ["a", "b", "b"]
    (waiting,) = cluster.cache.build_snapshot().task_classes
    assert {rejection.kind: count for rejection, count in waiting.placement.rejections} == {
        RejectionKind.VOLUME_LIMIT: 2
    }
    changes = cluster.changes
    cluster.add_csi_node("a", 3)
    assert cluster.changes > changes
    assert set(decide(cluster).values()) == {"a"}
    cluster.cache.check_consistent()


def test_one_cycle_sends_to_a_node_what_it_takes_and_nothing_in_vain(cluster: VolumeCluster) -> None:
    """Node a takes seven volumes and has one, b takes two; the pods bring one, two or three each."""
    cluster.add_nodes(*(make_node(zone, labels={ZONE: zone}, allocatable={"cpu": "64", "pods": "64"}) for zone in "ab"))
    for node, count in (("a", 7), ("b", 2)):
        cluster.add_csi_node(node, count)
    for number in range(20):
        cluster.add_volume(f"v{number}")
        cluster.add_claim(f"c{number}", f"v{number}")
    cluster.add_pods(claiming("there", "c0", node="a", phase="Running"))
    brings = {"three": 3, "two": 2, **{f"one-{number}": 1 for number in range(9)}}
    numbers = iter(range(1, 20))
    for name, count in brings.items():
        cluster.add_pods(claiming(name, *(f"c{next(numbers)}" for _ in range(count))))

    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)

    volumes = {"a": 1, "b": 0}
    for bind in report.bindings:
        volumes[bind.server] += brings[bind.task.uid.removeprefix("uid-")]
    assert volumes == {"a": 7, "b": 2}
    assert decide(cluster).keys() == {bind.task.uid for bind in report.bindings}
    assert {wait.rejections for wait in report.waits} == {((FULL, 2),)}


def test_volumes_that_pods_share_are_not_counted_twice(cluster: VolumeCluster) -> None:
    """Node a takes two volumes more: one that four pods share, and one that the last of them brings besides."""
    cluster.add_csi_node("a", 2)
    cluster.add_csi_node("b", 0)
    for name in ("common", "own"):
        cluster.add_volume(name)
        cluster.add_claim(f"claim-{name}", name, mode="ReadWriteMany")
    cluster.add_pods(
        *(claiming(f"p{number}", "claim-common") for number in range(3)),
        claiming("more", "claim-common", "claim-own"),
    )

    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)

    assert not report.waits
    assert set(decide(cluster).values()) == {"a"}
    assert not cluster.cache.build_snapshot().task_classes


def test_a_volume_is_alone_again_when_the_other_pod_is_gone(cluster: VolumeCluster) -> None:
    cluster.add_csi_node("a", 1)
    cluster.add_volume("v")
    cluster.add_claim("claim", "v", mode="ReadWriteMany")
    cluster.add_pods(claiming("pod", "claim"))

    def find_limits() -> list[int]:
        task_class = cluster.get_class("uid-pod")
        rules = () if task_class.rules is None else task_class.rules.rules
        assert len(task_class.brings) == len(rules)
        return [rule.amount for rule in rules if isinstance(rule, LimitRule)]

    assert find_limits() == [1]
    other = claiming("other", "claim")
    cluster.add_pods(other)
    assert find_limits() == []
    cluster.delete_pod(other)
    assert find_limits() == [1]
    cluster.cache.check_consistent()


def test_a_decision_falls_when_its_claim_goes(cluster: VolumeCluster) -> None:
    cluster.add_volume("v", "a")
    cluster.add_claim("claim", "v")
    cluster.add_pods(claiming("pod", "claim"))
    assert cluster.cache.assume("uid-pod", "a")
    queries = cluster.cache.queries

    assert queries.may_use("uid-pod", "a")
    assert not queries.may_use("uid-pod", "b")
    cluster.add_claim("claim", "v", deletionTimestamp="2026-01-01T00:00:00Z")
    assert not queries.may_use("uid-pod", "a")


def test_only_what_a_waiting_pod_waits_for_wakes_the_loop(cluster: VolumeCluster) -> None:
    cluster.add_volume("v")
    cluster.add_claim("claim", "v")
    cluster.add_pods(claiming("pod", "claim"))
    cluster.cache.build_snapshot()
    snapshot, changes = cluster.cache.build_snapshot(), cluster.changes

    cluster.add_claim("other", "w")
    cluster.add_volume("w", "a")
    cluster.add_claim("claim", "v", labels={"any": "label"})
    cluster.add_csi_node("a", None)
    cluster.add("storageclasses", "another", provisioner="p")
    assert cluster.changes == changes
    assert cluster.cache.build_snapshot() is snapshot
    cluster.add_volume("v", "b")
    assert cluster.changes == changes + 1
    assert cluster.find_eligible("uid-pod") == {"b"}
    cluster.add_csi_node("b", 0)
    assert cluster.changes == changes + 2
    assert cluster.find_eligible("uid-pod") == set()
    cluster.add_csi_node("b", 1)
    assert cluster.changes == changes + 3
    assert cluster.find_eligible("uid-pod") == {"b"}


def test_where_held_pods_might_run_follows_their_volumes(cluster: VolumeCluster) -> None:
    cluster.add_volume("v", "a")
    cluster.add_pods(claiming("pod", "claim", node="a"))
    cluster.add_claim("claim", "v")

    (tenant,) = cluster.cache.build_detailed_snapshot().tenants
    (held,) = tenant.holdings
    assert held.placement is not None
    assert held.placement.eligible_k.tolist() == [True, False]


def test_volumes_of_kinds_that_drivers_replaced_are_not_supported(cluster: VolumeCluster) -> None:
    cluster.add("persistentvolumes", "v", spec={"gcePersistentDisk": {"pdName": "d"}})
    cluster.add_claim("claim", "v")
    cluster.add_pods(claiming("pod", "claim"))

    blocked = cluster.get_class("uid-pod").blocked
    assert blocked is not None
    assert blocked.kind == RejectionKind.NOT_SUPPORTED
    assert cluster.find_words() == "PersistentVolumes of kind gcePersistentDisk ('v')"


def test_a_volume_that_cannot_be_read_is_reached_from_nowhere(cluster: VolumeCluster) -> None:
    cluster.add("persistentvolumes", "v", spec={"nodeAffinity": ["?"]})
    cluster.add_claim("claim", "v")
    cluster.add_pods(claiming("pod", "claim"))

    assert cluster.find_eligible("uid-pod") == set()


@pytest.mark.parametrize("seed", draw_seeds(6))
def test_whatever_happens_the_books_equal_those_that_are_made_anew(cluster: VolumeCluster, seed: int) -> None:
    dice = random.Random(seed)
    pods: dict[str, Json] = {}
    for step in range(80):
        number = dice.randrange(3)
        match dice.randrange(8):
            case 0 | 1:
                claims = dice.sample(("c0", "c1", "c2"), dice.randrange(1, 3))
                node = dice.choice((None, None, "a", "b", "c"))
                pods[f"p{step}"] = claiming(f"p{step}", *claims, node=node)
                cluster.add_pods(pods[f"p{step}"])
            case 2 if pods:
                cluster.delete_pod(pods.pop(dice.choice(sorted(pods))))
            case 3:
                mode = dice.choice(("ReadWriteMany", "ReadWriteOncePod"))
                volume, late = dice.choice(("", "v0", "v1", "gone")), dice.choice(("now", "late"))
                gone = dice.random() < 0.2
                cluster.add_claim(f"c{number}", volume, mode=mode, storage_class=late, is_gone=gone)
            case 4:
                cluster.add_volume(f"v{number}", dice.choice(("a", "b", None)))
            case 5:
                cluster.add_csi_node(dice.choice(("a", "b")), dice.choice((None, 1, 2)))
            case 6:
                cluster.add("csidrivers", DRIVER, spec={"preventPodSchedulingIfMissing": dice.random() < 0.5})
            case _:
                source = {"persistentVolumeName": f"v{number}"}
                spec = {"attacher": DRIVER, "nodeName": dice.choice(("a", "b")), "source": source}
                cluster.add("volumeattachments", f"x{number}", is_gone=dice.random() < 0.3, spec=spec)
        if step % 3 == 0:
            decide(cluster)
            cluster.cache.check_consistent()
    cluster.cache.check_consistent()


def test_pods_without_claims_are_not_in_these_books(cluster: VolumeCluster) -> None:
    cluster.add_pods(make_pod("plain", volumes=[{"name": "v", "emptyDir": {}}]))

    volumes = cluster.cache.state.volumes
    assert volumes.describe()[:3] == ({}, {}, {})  # type: ignore[index]
    task_class: TaskClass = cluster.get_class("uid-plain")
    assert task_class.blocked is None


def test_a_pod_whose_binding_failed_is_not_in_its_own_way(cluster: VolumeCluster) -> None:
    cluster.add_volume("v")
    cluster.add_claim("claim", "v", mode="ReadWriteOncePod")
    cluster.add_pods(claiming("pod", "claim"))
    assert cluster.cache.assume("uid-pod", "a")
    cluster.cache.forget("uid-pod")

    key = cluster.cache.state.find_queue("uid-pod")
    assert key is not None
    assert key.unsupported is None
