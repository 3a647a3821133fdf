"""What is broken, and what is left behind, is found; and nothing else is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from e2e.checks import View
from e2e.objects import make_pod
from faults.constraints import APART, TOGETHER, ZONE, Constraints, draw_constraints
from faults.storage import LOCAL, MADE, SELECTED, find_asking, find_left_behind, make_claim, make_volume
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Json

NODES = {name: make_node(name, zone=zone) for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2"))}


def pod(node: str = "", *, claim: str = "", **labels: str) -> Json:
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    spec: dict[str, Any] = {"nodeName": node} if node else {}
    made: Json = make_pod(labels=labels, volumes=volumes, **spec)
    made["metadata"]["namespace"] = "red"
    return {**made, "status": {"phase": "Running" if node else "Pending"}}


def claim(name: str, storage_class: str = LOCAL, *, volume: str = "", selected: str = "") -> Json:
    made = make_claim(name, storage_class)
    made["metadata"] |= {"namespace": "red", "uid": f"uid-{name}"}
    made["metadata"]["annotations"] = {SELECTED: selected} if selected else {}
    made["spec"] |= {"volumeName": volume} if volume else {}
    return made


def volume(name: str, node: str, phase: str = "Available", *, of: str = "", storage_class: str = LOCAL) -> Json:
    reference = {"metadata": {"namespace": "red", "name": of, "uid": f"uid-{of}"}} if of else None
    return make_volume(name, storage_class, node, reference) | {"status": {"phase": phase}}


def read(*pods: Json, claims: tuple[Json, ...] = (), volumes: tuple[Json, ...] = ()) -> Constraints:
    nodes = {name: node | {"spec": {}, "status": {}} for name, node in NODES.items()}
    return Constraints.read(View(nodes, list(pods), {}, {}), claims, volumes)


def find_open(constraints: Constraints, waiting: Json) -> str:
    return "".join(name for name, node in NODES.items() if not constraints.find_objections(waiting, node))


def test_groups_keep_pods_from_nodes() -> None:
    placed = pod("a", apart="1"), pod("c", together="1"), pod("b", apart="2")
    constraints = read(*placed)

    assert find_open(constraints, pod(apart="1")) == "bc"
    assert find_open(constraints, pod(together="1")) == "c"
    assert find_open(constraints, pod(together="2")) == find_open(constraints, pod()) == "abc"
    assert constraints.find_broken() == []
    assert len(read(*placed, pod("a", apart="1")).find_broken()) == 1


def test_a_pod_with_a_claim_goes_where_its_volume_is_or_one_is_free() -> None:
    claims = claim("bound", volume="v1"), claim("open"), claim("made", MADE)
    volumes = volume("v1", "a", "Bound", of="bound"), volume("v2", "c"), volume("v3", "b", of="other")
    constraints = read(claims=claims, volumes=volumes)

    found = [find_open(constraints, pod(claim=name)) for name in ("bound", "open", "made", "none")]
    assert found == ["a", "c", "abc", ""]
    assert constraints.find_elsewhere([pod("a", claim="bound"), pod("b", claim="gone"), pod("b")]) == []
    assert len(constraints.find_elsewhere([pod("b", claim="bound"), pod("c", claim="open")])) == 2


@pytest.mark.parametrize(
    ("pods", "claims", "volumes", "left"),
    [
        ([], [claim("c", selected="a")], [], 1),
        ([pod(claim="c")], [claim("c", selected="a")], [], 0),
        ([], [claim("c", volume="v", selected="a")], [volume("v", "a", "Bound", of="c")], 0),
        ([], [claim("c")], [volume("v", "a", of="c")], 1),
        ([], [], [volume("v", "a", of="c")], 1),
        ([pod(claim="c")], [claim("c")], [volume("v", "a", of="c")], 0),
        ([], [], [volume("v", "a", "Released", of="c"), volume("w", "b")], 0),
    ],
)
def test_what_stays_reserved_for_a_pod_that_is_gone_is_found(
    pods: list[Json], claims: list[Json], volumes: list[Json], left: int
) -> None:
    assert len(find_left_behind(pods, claims, volumes)) == left


def test_volumes_are_made_for_claims_that_have_a_node_and_none_yet() -> None:
    claims = [claim("local", selected="a"), claim("wanted", MADE, selected="a"), claim("unselected", MADE)]
    claims += [claim("bound", MADE, selected="a", volume="v"), claim("known", MADE, selected="a")]

    asking = find_asking(claims, [volume("made-uid-known", "a")])
    assert [each["metadata"]["name"] for each in asking] == ["wanted"]


def test_the_churn_draws_each_kind_of_constraint() -> None:
    drawn: list[Any] = [draw_constraints(random.Random(seed)) for seed in range(40)]

    assert {key for labels, _ in drawn for key in labels} == {APART, TOGETHER, "soft"}
    assert {key for _, spec in drawn for key in spec.get("affinity", {})} == {"podAffinity", "podAntiAffinity"}
    assert any(each["topologyKey"] == ZONE for _, spec in drawn for each in spec.get("topologySpreadConstraints", ()))
