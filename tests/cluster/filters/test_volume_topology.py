"""Which nodes reach volumes: one node asked in plain words says what all of them say at once."""

from __future__ import annotations

import json
import random

import pytest

from cluster.builders import Json, make_node, read_node
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.refusals import MISMATCH, find_refusal
from fairbind.cluster.filters.volume_topology import OTHER_ZONE, OUT_OF_REACH
from fairbind.cluster.objects.constraints import NO_CONSTRAINTS, add_volumes, share_constraints
from fairbind.cluster.objects.decode import VOLUMES
from fairbind.cluster.objects.volume_facts import ANYWHERE, VolumeTopology, join_topologies
from seeds import draw_seeds

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
VALUES = {ZONE: "abc", OLD_ZONE: "abc", REGION: "rs", "disk": ("ssd", "hdd")}


def read_topology(labels: dict[str, str] | None = None, *terms: Json) -> VolumeTopology:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    volume = {"metadata": {"name": "v", "labels": labels}, "spec": affinity}
    return VOLUMES.decode_item(json.dumps(volume).encode()).topology


def need(key: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def find_reason(topology: VolumeTopology, labels: dict[str, str], **selector: str) -> object:
    node = read_node(make_node("n", labels=labels))
    constraints = add_volumes(share_constraints(selector=tuple(selector.items())), topology)
    eligibility = Eligibility()
    eligibility.set_nodes([node], None, ())
    rejections = eligibility.get_placement(constraints).rejections
    found = rejections[0][0] if rejections else None
    assert found == find_refusal(node, constraints)
    return found


def test_one_term_of_the_node_affinity_of_each_volume_must_hold() -> None:
    one, other = read_topology(None, need(ZONE, "a"), need(ZONE, "b")), read_topology(None, need("disk", "ssd"))

    both = join_topologies([one, other, one])
    assert find_reason(both, {ZONE: "b", "disk": "ssd"}) is None
    assert find_reason(both, {ZONE: "c", "disk": "ssd"}) == OUT_OF_REACH
    assert find_reason(both, {ZONE: "b"}) == OUT_OF_REACH
    assert find_reason(both, {ZONE: "c"}, place="x") == MISMATCH  # what the pod itself asks for is told first


def test_expressions_over_the_name_of_a_node_are_left_out() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["other"]}

    assert read_topology(None, {"matchFields": [field]}) == ANYWHERE
    assert find_reason(read_topology(None, {**need("disk", "ssd"), "matchFields": [field]}), {"disk": "ssd"}) is None
    assert find_reason(read_topology(None, {}), {}) == OUT_OF_REACH  # an empty term holds nowhere


@pytest.mark.parametrize(
    ("labels", "node", "reason"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, None),
        ({ZONE: "a"}, {ZONE: "b"}, OTHER_ZONE),
        ({ZONE: "a__b"}, {ZONE: "b"}, None),
        ({ZONE: " a __ b "}, {ZONE: "b"}, None),
        ({ZONE: "a__"}, {ZONE: "b"}, None),  # a list with an empty part counts for nothing
        ({ZONE: "a"}, {}, None),  # a cluster without zones
        ({ZONE: "a"}, {REGION: "r"}, OTHER_ZONE),
        ({OLD_ZONE: "a"}, {ZONE: "a"}, None),
        ({OLD_ZONE: "a"}, {ZONE: "a", OLD_ZONE: "b"}, OTHER_ZONE),
        ({ZONE: "a"}, {OLD_ZONE: "a"}, OTHER_ZONE),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, OTHER_ZONE),
    ],
)
def test_labels_for_zones_hold_on_nodes_that_carry_any(
    labels: dict[str, str], node: dict[str, str], reason: object
) -> None:
    assert find_reason(read_topology(labels), node) == reason


def test_ephemeral_volumes_are_not_asked_for_their_zone() -> None:
    assert read_topology({ZONE: "a"}).without_zones() == ANYWHERE


def test_volumes_that_are_reached_from_everywhere_leave_constraints_as_they_are() -> None:
    assert join_topologies([ANYWHERE, read_topology()]) is ANYWHERE
    assert add_volumes(NO_CONSTRAINTS, ANYWHERE) is NO_CONSTRAINTS
    zones = [read_topology(None, need(ZONE, "a")) for _ in range(2)]
    assert add_volumes(NO_CONSTRAINTS, zones[0]) is add_volumes(NO_CONSTRAINTS, zones[1])


def draw_labels(dice: random.Random) -> dict[str, str]:
    return {key: dice.choice(values) for key, values in VALUES.items() if dice.random() < 0.5}


@pytest.mark.parametrize("seed", draw_seeds(20))
def test_all_nodes_at_once_and_one_by_one_say_the_same(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [read_node(make_node(f"n{number}", labels=draw_labels(dice))) for number in range(12)]
    eligibility = Eligibility()
    eligibility.set_nodes(nodes, None, ())
    keys = sorted(VALUES)
    topologies = [
        read_topology(draw_labels(dice), *(need(key, *VALUES[key][:1]) for key in dice.sample(keys, dice.randrange(3))))
        for _ in range(30)
    ]
    for _ in range(3):
        for topology in topologies:
            constraints = add_volumes(NO_CONSTRAINTS, topology)
            answers = eligibility.get_placement(constraints).eligible_k.tolist()
            assert answers == [find_refusal(node, constraints) is None for node in nodes]
        nodes[3] = read_node(make_node("n3", labels=draw_labels(dice)))  # asked by itself from here on
        eligibility.change_nodes({3: nodes[3]})
