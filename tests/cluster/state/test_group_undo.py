"""Groups that began and cannot be completed: which these are, what is told of them, and who of them is evicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_gang, make_node, make_pod
from fairbind.cluster.cache.group_evictions import GroupEvictions
from fairbind.cluster.messages import format_unschedulable
from fairbind.cluster.objects.decode import POD_GROUPS
from fairbind.cluster.state.undoing import UndoRule
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import PolicySettings
from fairbind.scheduling import run_cycle

LATE = 300.0


class Scene:
    """A cluster with a group of three, and who is evicted of it."""

    def __init__(self, *, evicts: bool = True, minimum: int = 3, **settings: Any) -> None:
        self.cluster = Cluster(**settings)
        self.groups = self.cluster.cache.state.groups
        self.groups.undoing.rule = UndoRule(evicts=evicts)
        self.cluster.add_nodes(make_node("a"), make_node("b"))
        self.cluster.put_objects(POD_GROUPS, make_gang(minimum))
        self.evictions = GroupEvictions(self.cluster.cache.state)
        self.advance(0.0)

    def add(self, number: int, **more: Any) -> Json:
        pod = make_member(number, **more)
        self.cluster.add_pods(pod)
        return pod

    def bind(self, pod: Json, node: str = "a") -> Json:
        return self.cluster.change_pod(pod, lambda each: each["spec"].update(nodeName=node))

    def advance(self, now: float) -> list[str]:
        """Let time pass, and return the names of those to evict."""
        self.cluster.cache.advance_rests(now)
        self.cluster.cache.check_consistent()
        return [eviction.name for eviction in self.evictions.list_due()]

    def find_message(self, uid: str) -> str:
        """Why a pod waits, as a cycle says it."""
        waits = run_cycle(self.cluster.cache.build_snapshot(), PolicySettings(), 0.0).waits
        (wait,) = [wait for wait in waits if any(task.uid == uid for task in wait.task_class.tasks)]
        return format_unschedulable(wait, 2)


def make_member(number: int, **more: Any) -> Json:
    fields: Json = {"schedulingGroup": {"podGroupName": "g"}, "requests": {"cpu": "3"}, **more}
    return make_pod(f"m{number}", **fields)


def leave(pod: Json) -> None:
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def begin(scene: Scene, count: int = 2, of: int = 3) -> list[Json]:
    """Let a group be there of which some are bound."""
    pods = [scene.add(number) for number in range(of)]
    return [scene.bind(pod, "ab"[number % 2]) for number, pod in enumerate(pods[:count])] + pods[count:]


def test_a_group_that_is_below_its_minimum_for_too_long_is_undone_and_begins_again() -> None:
    scene = Scene()
    pods = begin(scene)
    assert scene.advance(10.0) == []
    assert scene.advance(10.0 + LATE - 1) == []
    assert scene.advance(10.0 + LATE) == ["m0", "m1"]
    eviction = next(iter(scene.evictions.list_due()))
    assert (eviction.group, eviction.tenant, eviction.bound, eviction.minimum) == ("team/g", "ns/team", 2, 3)
    for pod in pods[:2]:
        scene.cluster.change_pod(pod, leave)
    assert scene.advance(11.0 + LATE) == []
    assert not scene.evictions.is_due(eviction)
    for pod in pods[:2]:
        scene.cluster.delete_pod(pod)
    scene.bind(scene.add(3))
    assert scene.advance(12.0 + LATE) == []
    assert scene.advance(12.0 + 2 * LATE) == ["m3"]  # the time counts from the new beginning


def test_the_time_counts_from_the_first_member_whatever_happens_to_others() -> None:
    scene = Scene()
    pods = begin(scene, count=1)
    scene.advance(0.0)
    scene.cluster.delete_pod(pods[2])
    scene.advance(100.0)
    assert scene.advance(200.0) == []
    scene.bind(pods[1], "b")
    assert scene.advance(LATE) == ["m0", "m1"]


def test_a_group_whose_minimum_stood_once_is_never_undone() -> None:
    """Its members worked. A successor of the lost one comes before everything else, however long it takes."""
    scene = Scene()
    pods = begin(scene, count=2)
    last = scene.bind(pods[2], "b")
    scene.advance(0.0)
    scene.cluster.delete_pod(last)
    scene.add(3)
    assert scene.advance(1.0) == scene.advance(1.0 + 2 * LATE) == []
    scene.cluster.put_objects(POD_GROUPS, make_gang(5))  # nor is one whose minimum is raised
    assert scene.advance(2.0) == scene.advance(2.0 + 4 * LATE) == []


@pytest.mark.parametrize(
    "happens",
    [
        lambda scene, pods: scene.bind(pods[2], "b"),
        lambda scene, _: scene.cluster.put_objects(POD_GROUPS, make_gang(2)),
        lambda scene, pods: (
            scene.cluster.change_pod(pods[0], lambda pod: pod["status"].update(phase="Failed"))
            and scene.cluster.change_pod(pods[1], lambda pod: pod["status"].update(phase="Failed"))
        ),
        lambda scene, _: scene.cluster.delete_object(POD_GROUPS, make_gang(3)),
    ],
    ids=["it is completed", "its minimum is lowered", "all have ended", "nothing says its minimum"],
)
def test_a_late_group_is_let_be_when(happens: Callable[[Scene, list[Json]], object]) -> None:
    scene = Scene()
    pods = begin(scene)
    scene.advance(0.0)
    (first, _) = [*scene.evictions.list_due()] if scene.advance(LATE) else []
    happens(scene, pods)
    assert not scene.evictions.is_due(first)  # at once
    assert scene.advance(LATE) == scene.advance(3 * LATE) == []


def test_those_who_succeeded_count_and_are_not_evicted() -> None:
    scene = Scene()
    pods = begin(scene)
    scene.cluster.change_pod(pods[0], lambda pod: pod["status"].update(phase="Succeeded"))
    scene.advance(0.0)
    assert scene.advance(LATE) == ["m1"]
    scene.cluster.put_objects(POD_GROUPS, make_gang(2))
    assert scene.advance(LATE) == []


def test_what_is_on_its_way_is_awaited_and_what_fails_again_is_not() -> None:
    scene = Scene()
    begin(scene, count=1, of=2)
    scene.cluster.put_objects(POD_GROUPS, make_gang(2))
    scene.advance(0.0)
    scene.cluster.cache.build_snapshot()
    assert scene.cluster.cache.assume("uid-m1", "b")
    assert scene.advance(LATE) == []
    scene.cluster.cache.forget("uid-m1")
    assert scene.advance(LATE) == ["m0"]


def test_a_group_that_ran_before_we_saw_it_is_left_alone() -> None:
    """It may have been whole, and lost a member, while no replica was there."""
    scene = Scene()
    scene.add(0, node="a")
    scene.bind(scene.add(1))
    scene.add(2)
    assert scene.advance(0.0) == scene.advance(2 * LATE) == []
    scene.cluster.delete_object(POD_GROUPS, make_gang(3))
    scene.cluster.put_objects(POD_GROUPS, make_gang(3, uid="another"))
    assert scene.advance(2 * LATE) == scene.advance(4 * LATE) == []


def test_a_member_that_only_changes_is_no_other() -> None:
    """It is the last of its group, which nothing else stands for."""
    scene = Scene()
    marks: Json = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "k"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
        "schedulingGroup": None,
    }
    pod = scene.add(0, node="a", **marks)
    scene.cluster.change_pod(pod, lambda each: each["spec"].update(priority=7))
    scene.add(1, priority=7, **marks)
    assert scene.advance(0.0) == scene.advance(2 * LATE) == []


def test_a_place_that_is_kept_is_awaited() -> None:
    """Its members were lost, and so was its PodGroup; another of the name has a part of the old places."""
    scene = Scene(kept_seconds=1000.0)
    pods = begin(scene, count=2)
    pods[2] = scene.bind(pods[2], "b")
    scene.cluster.delete_object(POD_GROUPS, make_gang(3))
    for pod in pods:
        scene.cluster.delete_pod(scene.cluster.change_pod(pod, leave))
    scene.cluster.put_objects(POD_GROUPS, make_gang(3, uid="another"))
    scene.bind(scene.add(3))
    assert scene.advance(0.0) == scene.advance(999.0) == []
    scene.advance(1000.0)
    scene.advance(1001.0)
    assert scene.advance(1001.0 + LATE) == ["m3"]


def test_pods_that_others_place_are_left_alone() -> None:
    scene = Scene()
    pods = [scene.add(number, scheduler="another") for number in range(3)]
    scene.bind(pods[0])
    scene.advance(0.0)
    assert scene.advance(LATE) == []


def test_pods_of_system_namespaces_are_left_alone_whoever_claims_these() -> None:
    scene = Scene()
    scene.cluster.cache.set_tenant(TenantSpec("t", namespaces=frozenset({"kube-system"})))
    scene.cluster.put_objects(POD_GROUPS, make_gang(3, namespace="kube-system"))
    pods = [scene.add(number, namespace="kube-system") for number in range(3)]
    scene.bind(pods[0])
    scene.advance(0.0)
    assert scene.advance(LATE) == []


def test_without_undoing_the_members_stay_and_the_others_are_told() -> None:
    scene = Scene(evicts=False, minimum=4)
    begin(scene, count=2, of=4)
    words = "group team/g: 0 of 2 fit; short of 2 x {cpu: 3}"
    assert scene.advance(0.0) == []
    assert f"{words}; 2 Insufficient cpu" in scene.find_message("uid-m3")
    assert scene.advance(LATE) == []
    note = "; 2 pods of it keep their nodes; groups.undo would evict them"
    assert f"{words}{note}; 2 Insufficient cpu" in scene.find_message("uid-m3")
    scene.cluster.delete_pod(make_member(2))
    assert f"group team/g: 3 of 4 pods exist{note}." in scene.find_message("uid-m3")
    scene.cluster.put_objects(POD_GROUPS, make_gang(3))
    assert scene.advance(LATE + 1) == []
    scene.cluster.put_objects(POD_GROUPS, make_gang(2))
    scene.advance(LATE + 2)
    assert "groups.undo" not in scene.find_message("uid-m3")


def test_with_undoing_the_others_are_told_that_it_begins_again() -> None:
    scene = Scene()
    begin(scene, count=1)
    scene.advance(0.0)
    scene.advance(LATE)
    assert "1 pod of it is evicted from its node" in scene.find_message("uid-m2")
