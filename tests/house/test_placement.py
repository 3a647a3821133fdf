"""The judge of e2e placements is wrong in no direction: what is right passes, and each kind of wrong is found."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.checks import View
from e2e.objects import make_pod
from e2e.placement import find_misplaced, find_objections
from localplane.nodes import make_node

Json = dict[str, Any]
GPU = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
BEFORE, AT, AFTER = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z"


def make_server(name: str = "n", *, changed_at: str = BEFORE, **changes: Any) -> Json:
    node = make_node(name, labels={"zone": "a", "size": "3"}, taints=changes.pop("taints", []))
    node["metadata"] |= {
        "creationTimestamp": BEFORE,
        "managedFields": [{"time": changed_at, "fieldsV1": {"f:spec": {"f:taints": {}}}}],
    }
    node["spec"] |= changes
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": BEFORE}]
    return node


def bind(pod: Json, node: str = "n", *, at: str = AT) -> Json:
    pod["metadata"]["namespace"] = "mine"
    pod["spec"]["nodeName"] = node
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    pod["status"] = {"phase": "Running", "conditions": [condition]}
    return pod


def require(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def say(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def judge(*pods: Json, node: Json | None = None, **options: Any) -> list[str]:
    nodes = {"n": node if node is not None else make_server()}
    return find_misplaced(pods, nodes, scheduler_name="fairbind", **options)


RIGHT: list[Json] = [
    {},
    {"nodeSelector": {"zone": "a"}},
    {"affinity": require(say("zone", "In", "b"), say("zone", "In", "a", "c"))},
    {"affinity": require(say("zone", "NotIn", "b"))},
    {"affinity": require(say("other", "NotIn", "b"))},
    {"affinity": require(say("size", "Gt", "2"))},
    {"affinity": require(say("size", "Lt", "4"))},
    {"affinity": require(say("zone", "Exists"))},
    {"affinity": require(say("other", "DoesNotExist"))},
    {"affinity": require({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})},
]
WRONG: list[Json] = [
    {"nodeSelector": {"zone": "b"}},
    {"nodeSelector": {"other": "a"}},
    {"affinity": require(say("zone", "In", "b"))},
    {"affinity": require(say("zone", "NotIn", "a"))},
    {"affinity": require(say("other", "Exists"))},
    {"affinity": require(say("zone", "DoesNotExist"))},
    {"affinity": require(say("size", "Gt", "3"))},
    {"affinity": require(say("size", "Lt", "3"))},
    {"affinity": require(say("other", "Gt", "0"))},
    {"affinity": require({})},
    {"affinity": require({**say("zone", "In", "a"), "matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["m"]}]})},
]  # fmt: skip


@pytest.mark.parametrize("spec", RIGHT)
def test_what_is_right_passes(spec: Json) -> None:
    assert judge(bind(make_pod(**spec))) == []


@pytest.mark.parametrize("spec", WRONG)
def test_what_is_wrong_is_found(spec: Json) -> None:
    [line] = judge(bind(make_pod(name="p", **spec)))

    assert line.startswith("mine/p on n: ")


@pytest.mark.parametrize(
    ("tolerations", "is_right"),
    [
        ([], False),
        ([{"key": "gpu", "operator": "Exists"}], True),
        ([{"key": "gpu", "value": "true"}], True),
        ([{"key": "gpu", "value": "false"}], False),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "other", "operator": "Exists"}], False),
    ],
)
def test_a_taint_is_for_whoever_tolerates_it(tolerations: list[Json], *, is_right: bool) -> None:
    found = judge(bind(make_pod(tolerations=tolerations)), node=make_server(taints=[GPU]))

    assert (found == []) == is_right


def test_a_cordon_and_any_hard_taint_count_and_a_soft_one_does_not() -> None:
    soft, hard = ({**GPU, "effect": effect} for effect in ("PreferNoSchedule", "NoExecute"))

    assert judge(bind(make_pod()), node=make_server(taints=[soft])) == []
    assert len(judge(bind(make_pod()), node=make_server(taints=[hard]))) == 1
    assert "unschedulable" in judge(bind(make_pod()), node=make_server(unschedulable=True))[0]


@pytest.mark.parametrize(("changed_at", "found"), [(BEFORE, 1), (AT, 0), (AFTER, 0)])
def test_a_node_that_changed_since_says_nothing_about_before(changed_at: str, found: int) -> None:
    pod, node = bind(make_pod()), make_server(taints=[GPU], changed_at=changed_at)

    assert len(judge(pod, node=node)) == found
    assert View({"n": node}, [pod], {}, {}).find_judged() == [pod] * found


def test_others_pods_and_nodes_that_do_not_count_are_left_alone() -> None:
    tainted = make_server(taints=[GPU])

    assert judge(bind(make_pod(scheduler_name="other")), node=tainted) == []
    assert judge(bind(make_pod()), node=tainted, but=["n"]) == []
    assert judge(bind(make_pod(), node="gone"), node=tainted) == []


def make_listener(*ports: Json, at: str = AT, host_network: bool = False, **options: Any) -> Json:
    pod = make_pod(hostNetwork=host_network, **options)
    pod["spec"]["containers"][0]["ports"] = list(ports)
    return bind(pod, at=at)


HTTP = {"containerPort": 80, "hostPort": 8080}


@pytest.mark.parametrize(
    ("other", "is_right"),
    [
        (HTTP, False),
        ({**HTTP, "hostIP": "10.0.0.1"}, False),  # the first has all addresses
        ({**HTTP, "protocol": "UDP"}, True),
        ({**HTTP, "hostPort": 8081}, True),
        ({"containerPort": 8080}, True),
    ],
)
def test_a_host_port_is_taken_once(other: Json, *, is_right: bool) -> None:
    assert (judge(make_listener(HTTP), make_listener(other)) == []) == is_right
    assert judge(make_listener({**HTTP, "hostIP": "10.0.0.1"}), make_listener({**HTTP, "hostIP": "10.0.0.2"})) == []


def test_on_the_hosts_network_every_port_is_the_hosts() -> None:
    assert len(judge(make_listener(HTTP), make_listener({"containerPort": 8080}, host_network=True))) == 1


@pytest.mark.parametrize(("ours_at", "is_right"), [(BEFORE, True), (AFTER, False), (AT, False)])
def test_whoever_came_last_has_taken_the_port(ours_at: str, *, is_right: bool) -> None:
    theirs = make_listener(HTTP, scheduler_name="other")

    assert (judge(theirs, make_listener(HTTP, at=ours_at)) == []) == is_right


def test_a_view_judges_what_is_on_nodes_and_has_not_finished() -> None:
    wrong = bind(make_pod(name="p", nodeSelector={"zone": "b"}))
    ended = bind(make_pod(nodeSelector={"zone": "b"}))
    ended["status"]["phase"] = "Succeeded"
    waiting = {**make_pod(nodeSelector={"zone": "b"}), "status": {}}
    view = View({"n": make_server()}, [wrong, ended, waiting], {}, {})

    assert view.find_misplaced() == ["mine/p on n: nodeSelector wants zone=b, not a"]
    assert find_objections(wrong, make_server()) == ["nodeSelector wants zone=b, not a"]
