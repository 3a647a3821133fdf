"""The patch that opens a gate: what it says, and when it narrows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.builders import SCHEDULER, make_node, read_node
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.facts import HOSTNAME, MOST_HOSTS
from fairbind.cluster.other_schedulers.opening import make_opening

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTS = {"key": HOSTNAME, "operator": "In", "values": ["h1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
FIELD = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


def narrow(affinity: dict[str, Any] | None) -> Any:
    """Return the affinity of the patch for one host."""
    return make_opening("u", "7", affinity, ["h1"])["spec"]["affinity"]


def test_the_pod_is_named_by_its_uid_and_version() -> None:
    assert make_opening("u", "7", None, None)["metadata"] == {"uid": "u", "resourceVersion": "7"}


def test_without_hosts_the_nodes_stay_as_they_are() -> None:
    assert make_opening("u", "7", {"nodeAffinity": {}}, None)["spec"].keys() == {"schedulingGates"}


def test_a_pod_without_terms_gets_one() -> None:
    expected = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [HOSTS]}]}}}
    assert narrow(None) == narrow({"podAffinity": {}}) == narrow({"nodeAffinity": {}}) == expected


def test_every_term_is_narrowed_but_one_that_selects_nothing() -> None:
    terms = [{"matchExpressions": [ZONE]}, {"matchFields": [FIELD]}, {}]
    assert narrow({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})["nodeAffinity"][REQUIRED] == {
        "nodeSelectorTerms": [
            {"matchExpressions": [ZONE, HOSTS]},
            {"matchFields": [FIELD], "matchExpressions": [HOSTS]},
            {},
        ]
    }


def test_nodes_that_are_kept_for_others_are_ruled_out_and_no_more() -> None:
    opened = make_opening("u", "7", None, ["h1"], avoids=True)["spec"]["affinity"]["nodeAffinity"][REQUIRED]
    assert opened == {"nodeSelectorTerms": [{"matchExpressions": [{**HOSTS, "operator": "NotIn"}]}]}


def find_hosts(labels: Mapping[str, Mapping[str, str]], nodes: Sequence[str]) -> list[str] | None:
    """Return the host names of nodes in a cluster whose nodes have these labels."""
    cache = ClusterCache(SCHEDULER, lambda: None)
    cache.nodes.replace([read_node(make_node(name, labels=each)) for name, each in labels.items()], "1")
    cache.build_snapshot()
    return cache.queries.find_hosts(nodes)


def test_hosts_keep_their_order_and_are_not_too_many() -> None:
    labels = {f"n{n}": {HOSTNAME: f"h{n}"} for n in range(100)}
    nodes = list(reversed(labels))
    assert find_hosts(labels, nodes) == [f"h{n}" for n in range(99, 99 - MOST_HOSTS, -1)]


def test_labels_that_do_not_tell_nodes_apart_narrow_nothing() -> None:
    assert find_hosts({}, []) is None
    assert find_hosts({"n1": {}, "n2": {HOSTNAME: "h"}}, ["n1"]) is None
    assert find_hosts({"n1": {HOSTNAME: "h"}, "n2": {HOSTNAME: "h"}}, ["n1", "n2"]) is None
    assert find_hosts({"n1": {HOSTNAME: "h"}, "n2": {HOSTNAME: "h"}}, ["n1"]) is None
    assert find_hosts({"n1": {HOSTNAME: "h"}, "n2": {}}, ["n1", "gone"]) is None
