"""Pods of other schedulers that are nominated to a node, as affinity and spread see them before they are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod
from cluster.filters.test_topology import (
    SMALL,
    WEB,
    count_nodes,
    decide,
    list_reasons,
    make_web,
    make_zones,
    spread,
    wish,
)

NOT_WEB = {"matchLabels": {"app": "db"}}


def nominate(node: str, name: str = "critical", *, priority: int = 10, app: str = "web", **spec: Any) -> Json:
    status = {"nominatedNodeName": node}
    own = {"scheduler": "default-scheduler", "labels": {"app": app}, **spec}
    return make_pod(name, requests=SMALL, priority=priority, status=status, **own)


def count_placed(cluster: Cluster) -> dict[str, int]:
    return count_nodes(decide(cluster))


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes in zone 1, one in zone 2."""
    return make_zones(a="1", b="1", c="2")


def test_it_closes_its_node_and_no_other_to_who_keeps_away_from_it(cluster: Cluster) -> None:
    cluster.add_pods(nominate("a"), *make_web(1, **wish("podAntiAffinity", "zone", selector=WEB)))
    assert cluster.find_eligible("uid-web-0") == {"b", "c"}
    cluster.cache.check_consistent()


def test_it_closes_its_node_to_whom_it_keeps_away_itself(cluster: Cluster) -> None:
    cluster.add_pods(nominate("a", app="db", **wish("podAntiAffinity", "zone", selector=WEB)), *make_web(1))
    assert cluster.find_eligible("uid-web-0") == {"b", "c"}
    cluster.add_pods(make_pod("other", labels={"app": "db"}))
    assert cluster.find_eligible("uid-other") == {"a", "b", "c"}
    cluster.cache.check_consistent()


def test_it_opens_no_node_to_who_wants_to_be_with_it(cluster: Cluster) -> None:
    cluster.add_pods(nominate("a", app="db"), *make_web(1, **wish("podAffinity", "zone", selector=NOT_WEB)))
    assert count_placed(cluster) == {}


def test_its_node_must_be_even_with_it_and_without_it_all_through_the_cycle(cluster: Cluster) -> None:
    """Zone 1 has none yet, so b takes one and a none; when zone 2 has one, a could hold no more than it will."""
    cluster.add_pods(nominate("a"), *make_web(4, **spread()))
    placed = count_placed(cluster)
    assert placed == {"b": 2, "c": 2}
    cluster.cache.check_consistent()


def test_what_it_closes_is_told(cluster: Cluster) -> None:
    cluster.cache.nodes.replace([])
    cluster.add_nodes(make_node("a", labels={"zone": "1"}))
    cluster.add_pods(nominate("a"), *make_web(1, **wish("podAntiAffinity")))
    assert list_reasons(decide(cluster)) == {"node(s) didn't match pod anti-affinity rules": 1}
    cluster.add_pods(nominate("a", app="db", **wish("podAntiAffinity")), *make_web(1))
    assert list_reasons(decide(cluster)) == {"node(s) didn't satisfy existing pods anti-affinity rules": 1}


def test_nodes_that_placed_and_nominated_pods_close_are_told_as_one_number() -> None:
    cluster = make_zones(a="1", b="2")
    apart = wish("podAntiAffinity", "host")
    placed = make_pod("placed", node="b", labels={"app": "db"}, **apart)
    cluster.add_pods(placed, nominate("a", app="db", **apart), *make_web(1))
    assert list_reasons(decide(cluster)) == {"node(s) didn't satisfy existing pods anti-affinity rules": 2}


@pytest.mark.parametrize(("priority", "expected"), [(9, {"b", "c"}), (10, {"b", "c"}), (11, {"a", "b", "c"})])
def test_only_pods_of_its_priority_or_a_lower_one_see_it(cluster: Cluster, priority: int, expected: set[str]) -> None:
    cluster.add_pods(nominate("a"), *make_web(1, priority=priority, **wish("podAntiAffinity")))
    assert cluster.find_eligible("uid-web-0") == expected


def test_it_does_not_see_itself(cluster: Cluster) -> None:
    cluster.add_pods(nominate("a", "ours", scheduler="fairbind", **wish("podAntiAffinity")))
    assert cluster.find_eligible("uid-ours") == {"a", "b", "c"}


def bind(pod: Json) -> None:
    pod["spec"]["nodeName"] = "c"


def withdraw(pod: Json) -> None:
    del pod["status"]["nominatedNodeName"]


def rename(pod: Json) -> None:
    pod["metadata"]["labels"] = {"app": "db"}


@pytest.mark.parametrize("change", [bind, withdraw, rename])
def test_pods_that_wait_follow_what_becomes_of_it(cluster: Cluster, change: Callable[[Json], None]) -> None:
    cluster.add_pods(*make_web(1, **wish("podAntiAffinity", "host")))
    assert cluster.find_eligible("uid-web-0") == {"a", "b", "c"}
    critical = nominate("a")
    cluster.add_pods(critical)
    assert cluster.find_eligible("uid-web-0") == {"b", "c"}
    critical = cluster.change_pod(critical, change)
    assert cluster.find_eligible("uid-web-0") == {"a", "b", "c"}  # where it is bound, a rule closes
    cluster.add_pods(*make_web(3, **wish("podAntiAffinity", "host"))[1:])
    assert count_placed(cluster) == {"a": 1, "b": 1, **({} if change is bind else {"c": 1})}


def test_labels_of_namespaces_that_change_are_followed(cluster: Cluster) -> None:
    cluster.add_namespaces(make_namespace("team"), make_namespace("lab", {"is": "lab"}))
    term: Json = {"namespaceSelector": {"matchLabels": {"is": "lab"}}}
    cluster.add_pods(nominate("a", namespace="lab"), *make_web(1, **wish("podAntiAffinity", **term)))
    assert cluster.find_eligible("uid-web-0") == {"b", "c"}
    cluster.add_namespaces(make_namespace("lab", {}))
    assert cluster.find_eligible("uid-web-0") == {"a", "b", "c"}
    cluster.cache.check_consistent()


def test_terms_of_nominated_pods_stay_in_use_while_any_pod_has_them(cluster: Cluster) -> None:
    apart = wish("podAntiAffinity", "zone", selector=WEB)
    first, second = nominate("a", "one", app="db", **apart), nominate("c", "two", app="db", **apart)
    cluster.add_pods(first, second, *make_web(1, **apart))
    assert cluster.find_eligible("uid-web-0") == {"b"}
    cluster.delete_pod(first)
    assert cluster.find_eligible("uid-web-0") == {"a", "b"}
    cluster.delete_pod(make_web(1, **apart)[0])
    cluster.add_pods(*make_web(1))
    assert cluster.find_eligible("uid-web-0") == {"a", "b"}
    cluster.delete_pod(second)
    assert cluster.find_eligible("uid-web-0") == {"a", "b", "c"}
    cluster.cache.check_consistent()


def test_a_node_without_the_label_is_not_closed(cluster: Cluster) -> None:
    cluster.add_nodes(make_node("d"))
    cluster.add_pods(nominate("d"), *make_web(1, **wish("podAntiAffinity")))
    assert "d" in cluster.find_eligible("uid-web-0")
