"""Claims that are bound once their pod has a node: which nodes have volumes for them, and who gets which."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.builders import make_node
from cluster.volumes import DRIVER, ZONE, VolumeCluster, claiming
from fairbind.cluster.filters.volume_offers import NO_SPACE, NO_VOLUME
from fairbind.cluster.state import claim_troubles, volume_plans
from fairbind.model import Rejection
from fairbind.scheduling import run_cycle
from seeds import draw_seeds

LOCAL = "kubernetes.io/no-provisioner"


@pytest.fixture
def cluster() -> VolumeCluster:
    return VolumeCluster()


def set_class(cluster: VolumeCluster, provisioner: str = LOCAL, **parts: Any) -> None:
    """Say how volumes of the class `late` are made; by default not at all."""
    cluster.add("storageclasses", "late", provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer", **parts)


def find_reasons(cluster: VolumeCluster, uid: str = "uid-pod") -> dict[Rejection, int]:
    return dict(cluster.get_class(uid).placement.rejections)


def decide(cluster: VolumeCluster) -> dict[str, str]:
    """Run a cycle and assume its decisions; return which pods got which node."""
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    return {bind.task.uid: bind.server for bind in report.bindings if cluster.cache.assume(bind.task.uid, bind.server)}


def find_volumes(cluster: VolumeCluster, uid: str = "uid-pod") -> dict[str, str]:
    plan = cluster.cache.queries.find_plan(uid)
    return {} if plan is None else {key.partition("/")[2]: volume for key, volume in plan.volumes}


def test_a_pod_goes_where_a_volume_is_for_its_claim(cluster: VolumeCluster) -> None:
    set_class(cluster)
    cluster.add_late_claim("claim", "2Gi")
    cluster.add_pods(claiming("pod", "claim"))
    assert cluster.find_eligible("uid-pod") == set()
    assert find_reasons(cluster) == {NO_VOLUME: 2}

    changes = cluster.changes
    cluster.add_free("too-small", "a", "1Gi")
    cluster.add_free("of-another-class", "a", "2Gi", storageClassName="now")
    cluster.add_free("block", "a", "2Gi", volumeMode="Block")
    cluster.add_free("read-only", "a", "2Gi", accessModes=["ReadOnlyMany"])
    cluster.add_free("for-another", "a", "2Gi", claimRef={"namespace": "team", "name": "other", "uid": "x"})
    assert cluster.find_eligible("uid-pod") == set()
    cluster.add_free("large", "b", "9Gi")
    cluster.add_free("right", "b", "2Gi")
    assert cluster.changes > changes
    assert cluster.find_eligible("uid-pod") == {"b"}
    cluster.cache.check_consistent()

    assert decide(cluster) == {"uid-pod": "b"}
    assert find_volumes(cluster) == {"claim": "right"}
    cluster.cache.check_consistent()


def test_a_selector_and_labels_choose_among_volumes(cluster: VolumeCluster) -> None:
    set_class(cluster)
    cluster.add_late_claim("claim", selector={"matchLabels": {"tier": "gold"}})
    cluster.add_pods(claiming("pod", "claim"))
    cluster.add_free("tin", "a")
    assert cluster.find_eligible("uid-pod") == set()

    spec = {"storageClassName": "late", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    cluster.add(
        "persistentvolumes", "gold", meta={"labels": {"tier": "gold"}}, spec=spec, status={"phase": "Available"}
    )
    assert cluster.find_eligible("uid-pod") == {"a", "b"}


def test_two_claims_of_a_pod_need_two_volumes(cluster: VolumeCluster) -> None:
    set_class(cluster)
    cluster.add_late_claim("small", "1Gi")
    cluster.add_late_claim("large", "2Gi")
    cluster.add_pods(claiming("pod", "large", "small"))
    cluster.add_free("one", "a", "2Gi")
    assert cluster.find_eligible("uid-pod") == set()
    cluster.add_free("two", "a", "3Gi")

    assert decide(cluster) == {"uid-pod": "a"}
    assert find_volumes(cluster) == {"large": "two", "small": "one"}


def test_of_two_pods_one_gets_the_volume_and_the_other_is_looked_at_again(cluster: VolumeCluster) -> None:
    set_class(cluster)
    cluster.add_free("only", "a")
    for name in ("first", "second"):
        cluster.add_late_claim(f"claim-{name}")
    cluster.add_pods(claiming("first", "claim-first"), claiming("second", "claim-second"))
    cluster.cache.build_snapshot()
    changes = cluster.changes

    bound = decide(cluster)
    assert len(bound) == 1
    (winner,) = bound
    (loser,) = {"uid-first", "uid-second"} - {winner}
    assert cluster.changes > changes
    assert find_reasons(cluster, loser)[NO_VOLUME] == 2
    cluster.cache.check_consistent()
    assert decide(cluster) == {}

    cluster.cache.forget(winner, postponed=True)
    assert cluster.find_eligible(loser) == {"a"}
    cluster.cache.check_consistent()


def test_a_plan_that_cannot_be_is_no_reason_to_look_again(cluster: VolumeCluster) -> None:
    set_class(cluster)
    cluster.add_late_claim("claim")
    cluster.add_pods(claiming("pod", "claim"))
    cluster.cache.build_snapshot()
    changes = cluster.changes

    assert not cluster.cache.assume("uid-pod", "a")
    assert cluster.changes == changes


def test_volumes_are_made_where_the_class_allows_it_and_the_driver_has_room(cluster: VolumeCluster) -> None:
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    set_class(cluster, DRIVER, allowedTopologies=zones)
    cluster.add_late_claim("claim", "2Gi")
    cluster.add_pods(claiming("pod", "claim"))
    assert cluster.find_eligible("uid-pod") == {"b"}
    assert find_reasons(cluster) == {NO_VOLUME: 1}

    cluster.add("csidrivers", DRIVER, spec={"storageCapacity": True})
    assert find_reasons(cluster) == {NO_VOLUME: 1, NO_SPACE: 1}
    in_b: dict[str, Any] = {"storageClassName": "late", "nodeTopology": {"matchLabels": {ZONE: "b"}}}
    cluster.add("csistoragecapacities", "b", capacity="10Gi", maximumVolumeSize="1Gi", **in_b)
    assert cluster.find_eligible("uid-pod") == set()
    cluster.add("csistoragecapacities", "more", capacity="2Gi", **in_b)
    assert cluster.find_eligible("uid-pod") == {"b"}
    cluster.cache.check_consistent()

    assert decide(cluster) == {"uid-pod": "b"}
    assert find_volumes(cluster) == {"claim": ""}


def test_a_volume_that_is_being_made_and_one_that_names_the_claim_decide_the_node(cluster: VolumeCluster) -> None:
    cluster.add_late_claim("made", node="b")
    cluster.add_late_claim("kept")
    cluster.add_pods(claiming("pod", "made"), claiming("other", "kept"))
    assert cluster.find_eligible("uid-pod") == {"b"}
    assert cluster.find_eligible("uid-other") == {"a", "b"}

    set_class(cluster)
    cluster.add_free("v", "a", claimRef={"namespace": "team", "name": "kept", "uid": "uid-kept"})
    assert cluster.find_eligible("uid-other") == {"a"}
    cluster.add_free("v", "a", claimRef={"namespace": "team", "name": "kept", "uid": "of-a-claim-before"})
    assert cluster.find_eligible("uid-other") == set()
    of_claim = {"namespace": "team", "name": "kept", "uid": "uid-kept"}
    cluster.add_free("v", "a", claimRef=of_claim, storageClassName="another")
    assert cluster.find_eligible("uid-other") == set()
    cluster.cache.check_consistent()


def test_a_pod_may_be_bound_when_all_its_claims_are(cluster: VolumeCluster) -> None:
    cluster.add_late_claim("one")
    cluster.add_late_claim("two")
    cluster.add_pods(claiming("pod", "one", "two"))
    (node,) = decide(cluster).values()
    assert not cluster.cache.queries.may_use("uid-pod", node)

    cluster.add_volume("v1", node)
    cluster.add_claim("one", "v1", storage_class="late")
    assert find_volumes(cluster) == {"one": "", "two": ""}
    assert not cluster.cache.queries.may_use("uid-pod", node)
    cluster.cache.check_consistent()
    cluster.add_volume("v2", node)
    cluster.add_claim("two", "v2", storage_class="late")
    assert find_volumes(cluster) == {}
    assert cluster.cache.queries.may_use("uid-pod", node)
    cluster.cache.check_consistent()


def test_a_claim_that_is_being_bound_for_one_pod_keeps_another_waiting(cluster: VolumeCluster) -> None:
    cluster.add_late_claim("shared")
    cluster.add_pods(claiming("pod", "shared"))
    (node,) = decide(cluster).values()
    cluster.add_pods(claiming("other", "shared"))
    assert cluster.find_words("uid-other") == 'persistentvolumeclaim "shared" is being bound for another pod'

    cluster.add_volume("v", node)
    cluster.add_claim("shared", "v", storage_class="late")
    assert cluster.find_eligible("uid-other") == {node}
    cluster.cache.check_consistent()


def test_a_pod_that_is_gone_gives_its_volume_back(cluster: VolumeCluster) -> None:
    set_class(cluster)
    cluster.add_free("only", "a")
    for name in ("pod", "other"):
        cluster.add_late_claim(f"claim-{name}")
    pod = claiming("pod", "claim-pod")
    cluster.add_pods(pod)
    decide(cluster)
    cluster.add_pods(claiming("other", "claim-other"))
    assert cluster.find_eligible("uid-other") == set()

    cluster.delete_pod(pod)
    assert cluster.find_eligible("uid-other") == {"a"}
    cluster.cache.check_consistent()


def test_only_so_many_pods_wait_on_nodes_for_volumes(cluster: VolumeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_plans, "MOST_PLANS", 2)
    monkeypatch.setattr(volume_plans, "REOPEN_PLANS", 1)
    for number in range(3):
        cluster.add_late_claim(f"claim-{number}")
    cluster.add_pods(*(claiming(f"p{number}", f"claim-{number}") for number in range(3)))
    bound = decide(cluster)
    assert len(bound) == 2
    (last,) = {f"uid-p{number}" for number in range(3)} - bound.keys()
    assert cluster.get_class(last).blocked == claim_troubles.MANY

    first, second = bound
    cluster.cache.forget(first, postponed=True)
    assert cluster.get_class(last).blocked is None
    assert set(decide(cluster)) == {last}
    assert second != last
    cluster.cache.check_consistent()


def test_pods_that_are_decided_together_wait_for_volumes_together(
    cluster: VolumeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_plans, "MOST_PLANS", 2)
    monkeypatch.setattr(volume_plans, "REOPEN_PLANS", 1)
    for number in range(4):
        cluster.add_late_claim(f"claim-{number}")
    cluster.add_pods(*(claiming(f"p{number}", f"claim-{number}") for number in range(4)))
    cluster.cache.build_snapshot()
    assert [cluster.cache.assume(f"uid-p{n}", "a", joins=n > 0) for n in range(3)] == [True] * 3
    assert not cluster.cache.assume("uid-p3", "a")
    assert cluster.get_class("uid-p3").blocked == claim_troubles.MANY
    cluster.cache.check_consistent()


def test_a_pod_that_runs_counts_no_longer_as_one_that_waits_for_volumes(
    cluster: VolumeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a simulation, which binds no claims."""
    monkeypatch.setattr(volume_plans, "MOST_PLANS", 1)
    monkeypatch.setattr(volume_plans, "REOPEN_PLANS", 0)
    set_class(cluster)
    for name in ("first", "second"):
        cluster.add_late_claim(f"claim-{name}")
        cluster.add_free(f"v-{name}", "a")
    cluster.add_pods(claiming("first", "claim-first"), claiming("second", "claim-second"))
    (winner,) = decide(cluster)
    (loser,) = {"uid-first", "uid-second"} - {winner}
    assert cluster.get_class(loser).blocked == claim_troubles.MANY

    name = winner.removeprefix("uid-")
    cluster.add_pods(claiming(name, f"claim-{name}", node="a"))
    assert decide(cluster) == {loser: "a"}
    assert set(find_volumes(cluster, winner).values()).isdisjoint(find_volumes(cluster, loser).values())
    cluster.cache.check_consistent()


@pytest.mark.parametrize("seed", draw_seeds(40))
def test_all_nodes_at_once_get_the_answer_that_each_gets_alone(seed: int) -> None:
    dice = random.Random(seed)
    cluster = VolumeCluster()
    names = [f"n{number}" for number in range(6)]
    cluster.add_nodes(*(make_node(name, labels={ZONE: dice.choice("abc"), "host": name}) for name in names))
    set_class(cluster, dice.choice((LOCAL, DRIVER)))
    if dice.random() < 0.5:
        cluster.add("csidrivers", DRIVER, spec={"storageCapacity": True})
    for number in range(3):
        nodes = {"matchLabels": {ZONE: dice.choice("abc")}}
        free = dice.choice(("1Gi", "2Gi"))
        cluster.add("csistoragecapacities", f"c{number}", capacity=free, storageClassName="late", nodeTopology=nodes)
    for number in range(dice.randrange(8)):
        cluster.add_free(f"v{number}", dice.choice((*"abc", None)), dice.choice(("1Gi", "2Gi", "3Gi")))
    claims = [f"claim-{number}" for number in range(dice.choice((1, 2, 3)))]
    for claim in claims:
        cluster.add_late_claim(claim, dice.choice(("1Gi", "2Gi")), node=dice.choice(("", "", "", "n0")))
    cluster.add_pods(claiming("pod", *claims))

    allowed = cluster.find_eligible("uid-pod")
    for book in list(cluster.cache.state.servers.states.values()):
        assert book.node is not None
        name = book.node.name
        facts = cluster.cache.state.pods.entries["uid-pod"].facts
        planned = cluster.cache.state.volumes.plan(facts, name, dict(book.node.labels))
        cluster.cache.state.volumes.end_plan("uid-pod")
        assert planned == (name in allowed), name
