from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.cluster.objects.decode import NAMESPACES, NODES, PODS, Bookmark, Changed, Page, WatchFault
from fairbind.cluster.objects.facts import PodFacts
from rejections import UNREADABLE

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def encode(value: object) -> bytes:
    return json.dumps(value).encode()


def decode_list(*items: Any) -> Page[PodFacts]:
    return PODS.decode_page(encode({"metadata": {"resourceVersion": "7", "continue": "more"}, "items": list(items)}))


def test_a_page_has_its_version_and_its_next_page() -> None:
    page = decode_list(make_pod("a"), make_pod("b"))
    assert [pod.name for pod in page.items] == ["a", "b"]
    assert (page.version, page.next_page) == ("7", "more")


@pytest.mark.parametrize(
    "body", [b'{"metadata":{"resourceVersion":"7"},"items":null}', b'{"metadata":{"resourceVersion":"7"}}']
)
def test_an_empty_list_may_be_null_or_absent(body: bytes) -> None:
    page = PODS.decode_page(body)
    assert (page.items, page.version, page.next_page) == ((), "7", None)


def test_events() -> None:
    added = PODS.decode_event(encode({"type": "ADDED", "object": make_pod("a")}))
    assert isinstance(added, Changed)
    assert (added.item.name, added.deleted, added.version) == ("a", False, added.item.version)
    deleted = NODES.decode_event(encode({"type": "DELETED", "object": make_node("n")}))
    assert isinstance(deleted, Changed)
    assert deleted.deleted


def test_a_bookmark_has_a_version_and_an_object_that_is_hardly_there() -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "9", "creationTimestamp": None}}
    event = encode({"type": "BOOKMARK", "object": {**bookmark, "spec": {"containers": None}, "status": {}}})
    assert PODS.decode_event(event) == Bookmark("9")


@pytest.mark.parametrize("kind", [PODS, NODES, NAMESPACES])
def test_an_error_has_a_code(kind: Any) -> None:
    status = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired", "message": "old"}
    assert kind.decode_event(encode({"type": "ERROR", "object": status})) == WatchFault(410, "Expired", "old")
    assert kind.decode_event(encode({"type": "ERROR", "object": {"code": "x"}})) == WatchFault(0, "", "")


def test_one_odd_object_leaves_the_others_of_its_page_alone() -> None:
    odd = make_pod("odd", requests={"cpu": "1"}, node="n", tolerations=7)
    page = decode_list(odd, make_pod("fine"))
    assert [pod.unsupported for pod in page.items] == [UNREADABLE, None]
    assert page.items[0].node == "n"
    assert dict(page.items[0].demand.real) == {"cpu": 1000, "pods": 1}


def test_one_odd_container_leaves_the_others_counted() -> None:
    odd = make_pod("odd", requests={"cpu": "1"}, node="n")
    odd["spec"]["containers"].append({"name": ["not", "a", "name"], "resources": {"requests": {"cpu": "2"}}})
    (pod,) = decode_list(odd).items
    assert dict(pod.demand.real) == {"cpu": 3000, "pods": 1}
    assert pod.unsupported == UNREADABLE


def put_into(pod: Json, path: list[str | int], value: Any) -> None:
    """Put a value somewhere into an object."""
    place: Any = pod
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value


PLACES: list[list[str | int]] = [
    ["metadata", "labels"],
    ["metadata", "creationTimestamp"],
    ["metadata", "deletionTimestamp"],
    ["spec"],
    ["spec", "containers"],
    ["spec", "containers", 0],
    ["spec", "containers", 0, "resources"],
    ["spec", "containers", 0, "resources", "requests"],
    ["spec", "containers", 0, "ports"],
    ["spec", "initContainers"],
    ["spec", "tolerations"],
    ["spec", "affinity"],
    ["spec", "nodeSelector"],
    ["spec", "volumes"],
    ["spec", "overhead"],
    ["spec", "resources"],
    ["spec", "priority"],
    ["spec", "nodeName"],
    ["spec", "schedulingGates"],
    ["status"],
    ["status", "phase"],
    ["status", "conditions"],
    ["status", "containerStatuses"],
    ["status", "allocatable"],
]


@given(st.sampled_from(PLACES), anything)
@settings(max_examples=5 * settings().max_examples)
def test_whatever_stands_in_a_field_the_mirror_takes_the_object_and_the_others(
    path: list[str | int], value: Any
) -> None:
    cluster = Cluster()
    odd = make_pod("odd", requests={"cpu": "1"})
    put_into(odd, path, value)
    cluster.cache.pods.replace(decode_list(odd, make_pod("fine")).items)
    node = make_node("odd")
    node["spec"]["containers"] = [{"resources": {}}]
    put_into(node, path, value)
    nodes = encode({"metadata": {}, "items": [node, make_node("fine")]})
    cluster.cache.nodes.replace(NODES.decode_page(nodes).items)
    assert cluster.find_class("uid-fine") is not None
    assert "fine" in cluster.cache.build_snapshot().servers.names
    cluster.cache.check_consistent()
