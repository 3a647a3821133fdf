"""How many volumes a node takes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cluster.builders import make_node, read_node
from fairbind.cluster.filters.attach_limits import FULL, AttachLimits
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.objects.volume_facts import CsiDriverFacts, CsiNodeFacts, VolumeId
from fairbind.model import LimitRule, Placement, Rejection, RejectionKind
from seeds import draw_seeds

INDEX = {"a": 0, "b": 1}
NODES = Eligibility()
NODES.set_nodes([read_node(make_node(name)) for name in INDEX], None, ())


def disk(number: int, driver: str = "disk") -> VolumeId:
    return VolumeId(driver, str(number))


def make_limits(**counts: int | None) -> AttachLimits:
    """On node a."""
    limits = AttachLimits(NODES)
    limits.set_csi_node("a", CsiNodeFacts("a", "1", tuple(counts.items())))
    return limits


def find_open(limits: AttachLimits, *volumes: VolumeId) -> set[str]:
    load = limits.find_load(volumes)
    base = Placement(np.ones(len(INDEX), dtype=np.bool_))
    found = base if load is None else limits.restrict(base, load)
    assert sum(count for _, count in found.rejections) == len(INDEX) - np.count_nonzero(found.eligible_k)
    names = {name for name, index in INDEX.items() if found.eligible_k[index]}
    assert load is None or names == {name for name in INDEX if limits.find_refusal(name, load) is None}
    return names


def test_drivers_without_limits_cost_nothing() -> None:
    limits = make_limits(disk=None)
    limits.hold("a", "x", [disk(1)])

    assert limits.find_load([disk(2), disk(3)]) is None
    assert limits.changes.revision == 1  # the one change is that of the drivers


def test_a_node_takes_as_many_volumes_as_its_driver_says() -> None:
    limits = make_limits(disk=2)
    limits.hold("a", "x", [disk(1), disk(1)])

    assert find_open(limits, disk(2)) == {"a", "b"}
    assert find_open(limits, disk(2), disk(3)) == {"b"}
    limits.hold("a", "y", [disk(2)])
    assert find_open(limits, disk(3)) == {"b"}
    assert find_open(limits, disk(1)) == {"a", "b"}  # it is there
    assert find_open(limits, disk(1), disk(3)) == {"b"}
    limits.release("a", "x")
    assert find_open(limits, disk(3)) == {"a", "b"}


def test_what_is_still_attached_counts_beside_what_comes() -> None:
    limits = make_limits(disk=1)
    limits.attach("a", disk(1))

    assert find_open(limits, disk(2)) == {"b"}
    assert find_open(limits, disk(1)) == {"b"}  # kube-scheduler counts it twice, too
    limits.hold("a", "x", [disk(1)])
    assert find_open(limits, disk(1)) == {"a", "b"}
    limits.release("a", "x")
    limits.attach("a", disk(1), -1)
    assert find_open(limits, disk(2)) == {"a", "b"}


def test_a_driver_may_ask_to_be_installed() -> None:
    limits = make_limits(disk=None)
    assert limits.set_driver("disk", CsiDriverFacts("disk", "1", must_be_installed=True))

    assert find_open(limits, disk(1)) == {"a"}
    load = limits.find_load([disk(1)])
    assert load is not None
    assert limits.find_refusal("b", load) == Rejection(RejectionKind.VOLUME_DRIVER, "disk")
    assert limits.set_driver("disk", None)
    assert find_open(limits, disk(1)) == {"a", "b"}


def test_a_missing_driver_is_told_before_a_limit() -> None:
    limits = make_limits(disk=0)
    limits.set_driver("share", CsiDriverFacts("share", "1", must_be_installed=True))

    load = limits.find_load([disk(1), disk(1, "share")])
    assert load is not None
    base = Placement(np.ones(2, dtype=np.bool_))
    lacking = Rejection(RejectionKind.VOLUME_DRIVER, "share")
    assert limits.restrict(base, load).rejections == ((lacking, 2),)
    load = limits.find_load([disk(1)])
    assert load is not None
    assert limits.restrict(base, load).rejections == ((FULL, 1),)
    assert base.rejections == ()


def test_of_pods_that_are_too_many_the_first_ones_stay() -> None:
    limits = make_limits(disk=2)
    for uid, volume in (("first", 1), ("second", 2), ("third", 3), ("guest", 1)):
        limits.hold("a", uid, [disk(volume)])

    assert [uid for uid in ("first", "second", "third", "guest") if limits.is_over("a", uid)] == ["third", "guest"]
    limits.release("a", "third")
    assert not limits.is_over("a", "guest")
    assert not limits.is_over("b", "first")
    limits.attach("a", disk(9))  # of a pod that is gone
    assert limits.is_over("a", "second")


def test_a_rule_stays_until_a_volume_takes_a_slot_or_leaves_one() -> None:
    limits = make_limits(disk=3, other=1)
    limits.hold("a", "x", [disk(1)])

    def find_rule() -> LimitRule:
        load = limits.find_load([disk(2)])
        assert load is not None
        (rule,) = limits.find_rules(load)
        return rule

    first = find_rule()
    assert (first.counter.count_d.tolist(), first.most_d.tolist(), first.amount) == ([1], [3], 1)
    limits.attach("a", disk(1))
    limits.hold("a", "y", [disk(1, "other")])
    assert find_rule() is first, "the volume has its slot already, and the other one is another driver's"
    limits.hold("a", "z", [disk(3)])
    second = find_rule()
    assert second.counter.count_d.tolist() == [2]
    assert second.counter.domains is first.counter.domains
    limits.set_csi_node("b", CsiNodeFacts("b", "1", (("disk", 5),)))
    assert find_rule().most_d.tolist() == [3, 5]


def test_volumes_that_others_have_too_are_in_no_rule() -> None:
    limits = make_limits(disk=3)
    limits.hold("a", "x", [disk(1)])
    load = limits.find_load([disk(1), disk(2), disk(3), disk(4)], frozenset({disk(2)}))
    assert load is not None
    assert [rule.amount for rule in limits.find_rules(load)] == [2]


@pytest.mark.parametrize("seed", draw_seeds(10))
def test_what_is_kept_equals_what_is_counted_anew(seed: int) -> None:
    dice = random.Random(seed)
    limits = make_limits(disk=2, share=None)
    held: dict[str, tuple[str, list[VolumeId]]] = {}
    attached: list[tuple[str, VolumeId]] = []
    for step in range(60):
        node = dice.choice(("a", "b"))
        volumes = [disk(dice.randrange(5), dice.choice(("disk", "share"))) for _ in range(dice.randrange(3))]
        match dice.randrange(5):
            case 0 | 1:
                held[f"p{step}"] = node, volumes
                limits.hold(node, f"p{step}", volumes)
            case 2 if held:
                uid = dice.choice(sorted(held))
                limits.release(held.pop(uid)[0], uid)
            case 3:
                attached.append((node, disk(dice.randrange(5))))
                limits.attach(*attached[-1])
            case _ if attached:
                limits.attach(*attached.pop(), -1)
            case _:
                count = dice.choice((None, 1, 3))
                limits.set_csi_node(node, CsiNodeFacts(node, "", (("disk", count),)))
        anew = AttachLimits(NODES)
        for name, drivers in limits._csi_nodes.items():
            anew.set_csi_node(name, CsiNodeFacts(name, "", tuple(drivers.items())))
        for uid, (name, used) in held.items():
            anew.hold(name, uid, used)
        for name, volume in attached:
            anew.attach(name, volume)
        assert limits.describe() == anew.describe()
        asked = [disk(dice.randrange(6)) for _ in range(dice.randrange(1, 3))]
        assert find_open(limits, *asked) == find_open(anew, *asked)
