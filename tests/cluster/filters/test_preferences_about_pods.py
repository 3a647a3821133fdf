"""Soft wishes about other pods, from a pod's spec to the node that a cycle takes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod
from cluster.filters.test_topology import REQUIRED, SMALL, WEB, count_nodes, decide, make_web, make_zones, spread, wish
from fairbind.cluster.objects.budget import MAX_PREFERRED_PARTS, MAX_PREFERRED_TERMS

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ANYWAY = spread(whenUnsatisfiable="ScheduleAnyway")


def prefer(kind: str, *, weight: int = 10, key: str = "zone", selector: Json = WEB, **more: Any) -> Json:
    term = {"topologyKey": key, "labelSelector": selector, **more}
    return {"affinity": {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}}


def place(name: str, node: str, **spec: Any) -> Json:
    return make_pod(name, node=node, labels={"app": name}, requests=SMALL, **spec)


@pytest.mark.parametrize("wishes", [ANYWAY, prefer("podAntiAffinity")], ids=["spread", "anti-affinity"])
def test_replicas_go_to_different_zones_in_one_cycle_and_the_next(wishes: Json) -> None:
    cluster = make_zones(a="1", b="2", c="3")
    cluster.add_pods(*make_web(2, **wishes))
    first = count_nodes(decide(cluster))
    cluster.add_pods(make_pod("web-9", labels={"app": "web"}, requests=SMALL, **wishes))

    assert sorted(first | count_nodes(decide(cluster))) == ["a", "b", "c"]


def test_a_wish_that_cannot_be_met_keeps_no_pod_waiting() -> None:
    cluster = make_zones(a="1")
    cluster.add_pods(*make_web(3, **ANYWAY))

    assert count_nodes(decide(cluster)) == {"a": 3}


def test_pods_go_where_those_are_that_they_would_like_to_be_with() -> None:
    cluster = make_zones(a="1", b="2", c="2")
    cluster.add_pods(place("web", "c"), make_pod("x", requests=SMALL, **prefer("podAffinity")))

    assert count_nodes(decide(cluster)) == {"b": 1}


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        (prefer("podAffinity"), "c"),
        (prefer("podAntiAffinity"), "a"),
        (wish("podAffinity"), "c"),
        (prefer("podAffinity", namespaces=["elsewhere"]), "a"),
    ],
    ids=["affinity", "anti-affinity", "required affinity", "about others"],
)
def test_what_placed_pods_would_like_counts_for_a_pod_without_wishes(spec: Json, node: str) -> None:
    cluster = make_zones(a="1", b="2", c="3")
    cluster.add_pods(place("other", "c", **spec), *make_web(1))

    assert count_nodes(decide(cluster)) == {node: 1}


def test_what_a_pod_of_the_same_cycle_would_like_counts_too() -> None:
    cluster = make_zones(a="1", b="2", c="3")
    first = make_pod("a-first", priority=9, requests=SMALL, nodeSelector={"host": "c"}, **prefer("podAffinity"))
    cluster.add_pods(first, *make_web(2))

    assert count_nodes(decide(cluster)) == {"c": 3}


def test_a_placed_pod_that_goes_takes_its_wishes_along() -> None:
    cluster = make_zones(a="1", b="2", c="3")
    other = place("other", "c", **prefer("podAffinity"))
    cluster.add_pods(other, *make_web(1))
    assert cluster.get_class("uid-web-0").preferences is not None
    cluster.delete_pod(other)

    assert cluster.get_class("uid-web-0").preferences is None
    assert count_nodes(decide(cluster)) == {"a": 1}


def test_wishes_about_nodes_and_pods_are_weighed_together() -> None:
    """Zone 3 has a taint (-300), zone 2 a pod to be with (+200): 500 for it, 300 for zone 1."""
    cluster = Cluster()
    taint = {"key": "k", "effect": "PreferNoSchedule"}
    cluster.add_nodes(
        make_node("a", labels={"zone": "1"}),
        make_node("b", labels={"zone": "2"}),
        make_node("c", labels={"zone": "3"}, taints=[taint]),
    )
    cluster.add_pods(place("web", "b"), place("more", "c"), make_pod("x", requests=SMALL, **prefer("podAffinity")))
    task_class = cluster.get_class("uid-x")

    assert task_class.placement.preference_k is None
    assert task_class.preferences is not None
    assert [wish.weight for wish in task_class.preferences.preferences] == [2, 3]
    assert count_nodes(decide(cluster)) == {"b": 1}


def test_a_label_of_a_node_that_changes_moves_its_domain() -> None:
    cluster = make_zones(a="1", b="2")
    cluster.add_pods(place("web", "b"), make_pod("x", requests=SMALL, **prefer("podAntiAffinity")))
    assert cluster.get_class("uid-x").preferences is not None
    cluster.add_nodes(make_node("b", labels={"zone": "3"}), make_node("c", labels={"zone": "2"}))

    assert count_nodes(decide(cluster)) == {"a": 1}


def test_a_pinned_pod_has_no_choice_and_so_no_wishes() -> None:
    cluster = make_zones(a="1", b="2")
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    pinned: Json = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}}
    cluster.add_pods(make_pod("x", requests=SMALL, **pinned, **ANYWAY))

    assert cluster.get_class("uid-x").preferences is None
    assert count_nodes(decide(cluster)) == {"b": 1}


def test_terms_beyond_the_budget_are_left_out() -> None:
    def count(*wishes: Json) -> int:
        cluster = make_zones(a="1")
        cluster.add_pods(make_pod("x", requests=SMALL, affinity={"podAffinity": {PREFERRED: list(wishes)}}))
        found = cluster.get_class("uid-x")
        assert found.blocked is None
        assert found.preferences is not None
        (pull,) = found.preferences.preferences
        return len({weight for _, weight in pull.pulls})  # type: ignore[union-attr]  # what the wish is

    def term(weight: int, values: int = 1) -> Json:
        expression = {"key": "app", "operator": "In", "values": [f"{weight}-{n}" for n in range(values)]}
        selector = {"matchExpressions": [expression]}
        return {"weight": weight, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": selector}}

    assert count(*(term(weight + 1) for weight in range(MAX_PREFERRED_TERMS + 5))) == MAX_PREFERRED_TERMS
    assert count(term(1), term(2, MAX_PREFERRED_PARTS)) == 1


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    cluster = make_zones(a="1", b="2")
    pods = [place("web", "a", **prefer("podAffinity")), *make_web(2, **prefer("podAntiAffinity", key="host"))]
    cluster.add_namespaces(make_namespace("ns"))
    cluster.add_pods(*pods)
    cluster.cache.build_snapshot()
    for pod in pods:
        cluster.delete_pod(pod)
    cluster.cache.check_consistent()

    state = cluster.cache.state
    assert not any(
        (
            state.filters.topology._waiting_carry,
            state.filters.topology._placed_carry._pods,
            state.filters.topology._users,
        )
    )
    assert not any((state.filters.anti_affinity._uses, state.filters.anti_affinity._terms))
