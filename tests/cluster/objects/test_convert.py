from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

import fairbind
from cluster.builders import Json, make_node, make_pod, read_node, read_pod
from fairbind.cluster.objects import convert
from fairbind.cluster.objects.facts import Owner


def make_waiting(name: str, message: str) -> Json:
    pod = make_pod(name)
    pod["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
    return pod


def test_equal_messages_are_one_object() -> None:
    one, other = (read_pod(make_waiting(name, "0/3 nodes are available.")) for name in "ab")
    assert one.scheduled_message == "0/3 nodes are available."
    assert one.scheduled_message is other.scheduled_message


def test_messages_whose_numbers_change_for_ever_are_not_kept_for_ever() -> None:
    for number in range(convert.MAX_SHARED_MESSAGES + 10):
        read_pod(make_waiting("p", f"0/{number} nodes are available."))
    assert convert._share.cache_info().currsize == convert.MAX_SHARED_MESSAGES


def test_equal_labels_and_amounts_are_one_object() -> None:
    labels, taint = {"zone": "east"}, {"key": "gpu", "effect": "NoSchedule"}
    nodes = [make_node(name, labels={**labels, "kubernetes.io/hostname": name}, taints=[taint]) for name in "ab"]
    one, other = map(read_node, nodes)
    assert one.taints[0] is other.taints[0]
    assert one.allocatable is other.allocatable
    assert one.labels[-1] is other.labels[-1] == ("zone", "east")
    assert one.labels[0][1] is one.name
    few = (read_pod(make_pod(name, labels={"app": "web", "hash": "6d4cf56db6"})) for name in "ab")
    assert len({id(pod.labels) for pod in few}) == 1


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, inf),
        ({"terminationGracePeriodSeconds": 5}, inf),
        ({"activeDeadlineSeconds": 600}, 630.0),
        ({"activeDeadlineSeconds": 600, "terminationGracePeriodSeconds": 0}, 600.0),
        ({"activeDeadlineSeconds": 600, "terminationGracePeriodSeconds": 3600}, 4200.0),
    ],
)
def test_a_pod_holds_something_until_its_deadline_and_the_end_of_its_grace_period(spec: Json, seconds: float) -> None:
    assert read_pod(make_pod(**spec)).most_seconds == seconds


def test_a_waiting_pods_owner_is_its_controller() -> None:
    keeper = {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeper", "uid": "u1"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u2", "controller": True}
    pod = make_pod()
    pod["metadata"]["ownerReferences"] = [keeper, job]
    assert read_pod(pod).owner == Owner("batch/v1", "Job", "train", "u2")
    assert read_pod(pod).owner is read_pod(pod).owner
    pod["metadata"]["ownerReferences"] = [keeper]
    assert read_pod(pod).owner is None
    pod["metadata"]["ownerReferences"] = [job]
    pod["spec"]["nodeName"] = "n1"
    assert read_pod(pod).owner == Owner("batch/v1", "Job", "train", "u2")  # which may say that its pods are a group
    pod["metadata"]["ownerReferences"] = [{**job, "kind": "ReplicaSet"}]
    assert read_pod(pod).owner is None


@pytest.mark.parametrize(
    ("phase", "reason", "rejection"),
    [
        ("Failed", "OutOfcpu", "resources"),
        ("Failed", "OutOfnvidia.com/gpu", "resources"),
        ("Failed", "NodePorts", "ports"),
        ("Failed", "NodeAffinity", "node"),
        ("Failed", "UnexpectedAdmissionError", "other"),
        ("Failed", "Evicted", None),
        ("Failed", "DeadlineExceeded", None),
        ("Failed", None, None),
        ("Running", "OutOfcpu", None),
    ],
)
def test_what_a_kubelet_refused_is_told_from_what_failed(phase: str, reason: str | None, rejection: str | None) -> None:
    assert read_pod(make_pod(node="n1", phase=phase, status={"reason": reason})).rejection == rejection


def test_names_are_shared_and_not_kept_for_ever() -> None:
    """What is interned stays until the process ends in newer Pythons, and tenants write names."""
    first = read_pod(make_pod("one", namespace="names", scheduler="some"))
    second = read_pod(make_pod("two", namespace="names", scheduler="some"))
    assert first.namespace is second.namespace
    assert first.scheduler is second.scheduler

    for number in range(convert.MAX_SHARED_NAMES + 10):
        convert._share_name(f"name{number}")
    assert convert._share_name.cache_info().currsize == convert.MAX_SHARED_NAMES
    package = Path(fairbind.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "intern(" in path.read_text(encoding="utf-8")] == []
