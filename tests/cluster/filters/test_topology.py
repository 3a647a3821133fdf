"""Wishes about other pods, from a pod's spec to what the cycle decides."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod, next_version, read_node, read_pod
from fairbind.cluster.messages import word_rejection
from fairbind.model import CycleReport
from fairbind.scheduling import run_cycle

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WEB = {"matchLabels": {"app": "web"}}
SMALL = {"cpu": "100m"}


def make_zones(**nodes: str) -> Cluster:
    cluster = Cluster()
    cluster.add_nodes(*(make_node(name, labels={"zone": zone, "host": name}) for name, zone in nodes.items()))
    return cluster


def spread(key: str = "zone", *, selector: Json | None = None, **more: Any) -> Json:
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [{**constraint, "labelSelector": WEB if selector is None else selector}]}


def wish(kind: str, key: str = "zone", *, selector: Json = WEB, **more: Any) -> Json:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": selector, **more}]}}}


def make_web(count: int, **spec: Any) -> list[Json]:
    return [make_pod(f"web-{n}", labels={"app": "web"}, requests=SMALL, **spec) for n in range(count)]


def decide(cluster: Cluster) -> CycleReport:
    """One cycle, whose decisions are assumed."""
    cluster.cache.check_consistent()
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    for bind in report.bindings:
        assert cluster.cache.assume(bind.task.uid, bind.server)
    cluster.cache.check_consistent()
    return report


def count_nodes(report: CycleReport) -> dict[str, int]:
    return dict(sorted(Counter(bind.server for bind in report.bindings).items()))


def list_reasons(report: CycleReport) -> dict[str, int]:
    return {word_rejection(rejection): count for wait in report.waits for rejection, count in wait.rejections}


def test_replicas_are_spread_over_zones_in_one_cycle_and_the_next() -> None:
    cluster = make_zones(a="1", b="2", c="3")
    cluster.add_pods(*make_web(4, **spread()))
    assert sorted(count_nodes(decide(cluster)).values()) == [1, 1, 2]

    cluster.add_pods(*make_web(9, **spread())[4:])
    decide(cluster)
    running = cluster.cache.build_snapshot().running
    assert sorted(len(tasks) for tasks in running.values()) == [3, 3, 3]


def test_a_full_zone_makes_the_rest_wait_with_the_reason() -> None:
    cluster = make_zones(a="1", b="2")
    cluster.add_nodes(make_node("b", labels={"zone": "2"}, allocatable={"cpu": "100m", "pods": "9", "memory": "1Gi"}))
    cluster.add_pods(*make_web(5, **spread()))

    report = decide(cluster)

    assert count_nodes(report) == {"a": 2, "b": 1}
    assert list_reasons(report) == {
        "node(s) didn't match pod topology spread constraints": 1,
        "Insufficient cpu": 1,
    }


def test_a_node_without_the_label_is_no_domain_and_takes_no_pod() -> None:
    cluster = make_zones(a="1")
    cluster.add_nodes(make_node("bare"))
    cluster.add_pods(make_pod("big", labels={"app": "web"}, requests={"cpu": "9"}, **spread()))

    assert list_reasons(decide(cluster)) == {
        "node(s) didn't match pod topology spread constraints (missing required label)": 1,
        "Insufficient cpu": 1,
    }


@pytest.mark.parametrize(("policy", "placed"), [("Honor", 2), ("Ignore", 1)])
def test_tainted_nodes_count_as_domains_only_if_the_pod_says_so(policy: str, placed: int) -> None:
    cluster = make_zones(a="1")
    taint = {"key": "t", "value": "", "effect": "NoSchedule"}
    cluster.add_nodes(make_node("b", labels={"zone": "2"}, taints=[taint]))
    cluster.add_pods(*make_web(2, **spread(nodeTaintsPolicy=policy)))

    assert len(decide(cluster).bindings) == placed


def test_pods_that_are_being_deleted_do_not_count_for_spread_but_keep_others_away() -> None:
    cluster = make_zones(a="1", b="2")
    leaving = [make_pod(f"leaving-{n}", labels={"app": "web"}, node="a", phase="Running") for n in range(3)]
    for pod in leaving:
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    cluster.add_pods(*leaving, *make_web(1, **wish("podAntiAffinity")))
    cluster.add_pods(make_pod("even", labels={"app": "x"}, **spread()))
    cluster.add_pods(*(make_pod(f"o{n}", labels={"app": "web"}, node="b", phase="Running") for n in range(2)))

    report = decide(cluster)

    assert {bind.task.uid: bind.server for bind in report.bindings} == {"uid-even": "a"}
    assert list_reasons(report) == {"node(s) didn't match pod anti-affinity rules": 2}


def test_match_label_keys_count_only_pods_of_the_same_revision() -> None:
    cluster = make_zones(a="1", b="2")
    old = [make_pod(f"o{n}", labels={"app": "web", "rev": "1"}, node="a", phase="Running") for n in range(5)]
    new = [make_pod(f"n{n}", labels={"app": "web", "rev": "2"}, **spread(matchLabelKeys=["rev"])) for n in range(2)]
    cluster.add_pods(*old, *new)

    assert count_nodes(decide(cluster)) == {"a": 1, "b": 1}


def test_pods_that_want_to_be_together_follow_the_first() -> None:
    cluster = make_zones(a="1", b="2", c="2")
    cluster.add_pods(*make_web(6, **wish("podAffinity")))

    assert set(count_nodes(decide(cluster))) in ({"a"}, {"b"}, {"b", "c"}, {"c"})


def test_a_pod_waits_for_one_that_it_wants_to_be_with_and_is_woken_by_it() -> None:
    cluster = make_zones(a="1", b="2")
    cluster.add_pods(make_pod("cache", labels={"app": "cache"}, **wish("podAffinity", "host")))
    assert list_reasons(decide(cluster)) == {"node(s) didn't match pod affinity rules": 2}

    before = cluster.changes
    cluster.add_pods(make_pod("web", labels={"app": "web"}, node="b", phase="Running", scheduler="another"))
    assert cluster.changes > before
    assert count_nodes(decide(cluster)) == {"b": 1}


def test_all_terms_of_affinity_are_about_the_same_pods() -> None:
    """A node needs a pod that all terms select, as for kube-scheduler, and not one for each term."""
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {key: "yes"}}} for key in ("red", "round")]
    cluster = make_zones(a="1", b="2")
    cluster.add_pods(make_pod("p", affinity={"podAffinity": {REQUIRED: terms}}))
    cluster.add_pods(*(make_pod(key, labels={key: "yes"}, node="a", phase="Running") for key in ("red", "round")))
    assert decide(cluster).bindings == ()

    cluster.add_pods(make_pod("both", labels={"red": "yes", "round": "yes"}, node="b", phase="Running"))
    assert count_nodes(decide(cluster)) == {"b": 1}


def test_more_replicas_that_keep_apart_than_nodes_wait_until_a_node_comes() -> None:
    cluster = make_zones(a="1", b="1")
    cluster.add_pods(*make_web(3, **wish("podAntiAffinity", "host")))
    report = decide(cluster)
    assert count_nodes(report) == {"a": 1, "b": 1}
    assert list_reasons(report) == {"node(s) didn't match pod anti-affinity rules": 2}

    cluster.add_nodes(make_node("c", labels={"host": "c"}))
    assert count_nodes(decide(cluster)) == {"c": 1}


def test_a_pod_placed_in_a_cycle_keeps_others_away_in_the_same_cycle() -> None:
    """The first, of higher priority, does not want to be with web; web itself wants nothing."""
    cluster = make_zones(a="1")
    cluster.add_pods(make_pod("shy", labels={"app": "x"}, priority=9, **wish("podAntiAffinity")), *make_web(2))

    report = decide(cluster)

    assert [bind.task.uid for bind in report.bindings] == ["uid-shy"]
    assert list_reasons(report) == {"node(s) didn't satisfy existing pods anti-affinity rules": 1}
    assert decide(cluster).bindings == ()


def test_namespace_labels_decide_which_pods_are_meant() -> None:
    cluster = make_zones(a="1", b="2")
    cluster.add_namespaces(make_namespace("team"), make_namespace("far", {"env": "test"}))
    far = wish("podAffinity", namespaceSelector={"matchLabels": {"env": "prod"}})
    cluster.add_pods(make_pod("p", **far))
    cluster.add_pods(make_pod("web", namespace="far", labels={"app": "web"}, node="b", phase="Running"))
    assert decide(cluster).bindings == ()

    cluster.add_namespaces(make_namespace("far", {"env": "prod"}))
    assert count_nodes(decide(cluster)) == {"b": 1}


def test_a_pinned_pod_waits_when_its_domain_is_closed() -> None:
    cluster = make_zones(a="1", b="2")
    named = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    affinity = {**wish("podAntiAffinity")["affinity"], "nodeAffinity": {REQUIRED: named}}
    cluster.add_pods(make_pod("first", labels={"app": "web"}, node="a", phase="Running"))
    cluster.add_pods(make_pod("pinned", labels={"app": "web"}, affinity=affinity))

    report = decide(cluster)

    assert list_reasons(report) == {
        "node(s) didn't match Pod's node affinity/selector": 1,
        "node(s) didn't match pod anti-affinity rules": 1,
    }
    cluster.cache.pods.delete(read_pod(make_pod("first", labels={"app": "web"}, node="a", phase="Running")))
    assert count_nodes(decide(cluster)) == {"a": 1}


def test_nothing_is_kept_when_all_pods_are_gone() -> None:
    cluster = make_zones(a="1", b="2")
    pods = [
        *make_web(3, **spread()),
        make_pod("shy", labels={"app": "web"}, **wish("podAntiAffinity")),
        make_pod("placed", labels={"app": "web"}, node="a", phase="Running"),
    ]
    cluster.add_pods(*pods)
    decide(cluster)
    for pod in pods:
        pod["metadata"]["resourceVersion"] = next_version()
        cluster.cache.pods.delete(read_pod(pod))
    cluster.cache.nodes.delete(read_node(make_node("b")))
    cluster.cache.check_consistent()

    state = cluster.cache.state
    assert not any((state.filters.topology._watched, state.filters.topology._users, state.filters.topology._carried))
    assert not any(
        (
            state.filters.topology.placed._groups,
            state.filters.topology.placed._selected,
            state.filters.anti_affinity._uses,
        )
    )
    assert not state.filters.anti_affinity._terms


def test_classes_that_wish_the_same_share_their_rules() -> None:
    cluster = make_zones(a="1", b="2")
    cluster.add_pods(*make_web(1, **spread()))
    cluster.add_pods(make_pod("big", labels={"app": "web"}, requests={"cpu": "2"}, **spread()))
    first, second = cluster.cache.build_snapshot().task_classes

    assert first.rules is second.rules is not None
    cluster.add_pods(make_pod("elsewhere", labels={"app": "x"}, node="a", phase="Running"))
    assert {id(each.rules) for each in cluster.cache.build_snapshot().task_classes} == {id(first.rules)}
