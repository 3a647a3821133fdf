"""Groups of pods: when their members may be placed, and with which others, whatever comes first and whatever goes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_gang, make_job, make_node, make_pod, make_pod_group
from fairbind.cluster.objects.decode import COSCHEDULING_POD_GROUPS, JOBS, POD_GROUPS, VOLCANO_POD_GROUPS
from fairbind.cluster.objects.group_marks import GROUP_LABEL
from fairbind.cluster.state import kept_places
from fairbind.model import RejectionKind, TaskGroup

NATIVE: Json = {"schedulingGroup": {"podGroupName": "g"}}
VOLCANO = {"scheduling.k8s.io/group-name": "g"}
LWS = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}
KUEUE = {"kueue.x-k8s.io/pod-group-name": "k"}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_nodes(make_node("a", labels={"rack": "1"}), make_node("b", labels={"rack": "2"}))
    return made


def make_member(number: int, **more: Any) -> Json:
    return make_pod(f"m{number}", requests={"cpu": "1"}, **{**NATIVE, **more})


def find_words(cluster: Cluster, uid: str = "uid-m0") -> str:
    blocked = cluster.get_class(uid).blocked
    assert blocked is None or blocked.kind is RejectionKind.GANG_INCOMPLETE
    return "" if blocked is None else blocked.subject


def find_group(cluster: Cluster, uid: str = "uid-m0") -> TaskGroup | None:
    task_class = cluster.get_class(uid)
    assert task_class.blocked is None
    return task_class.group


def test_members_wait_until_so_many_exist_as_must_be_placed_together(cluster: Cluster) -> None:
    cluster.add_pods(make_member(0), make_pod("single", requests={"cpu": "1"}))
    assert find_words(cluster) == "PodGroup team/g does not exist"
    cluster.put_objects(POD_GROUPS, make_gang(3))
    assert find_words(cluster) == "group team/g: 1 of 3 pods exist"
    cluster.add_pods(make_member(1))
    assert find_words(cluster) == "group team/g: 2 of 3 pods exist"
    cluster.add_pods(make_member(2), make_member(3))
    assert find_group(cluster) == TaskGroup("team/g", 3)
    assert len(cluster.get_class("uid-m0").tasks) == 4
    assert find_group(cluster, "uid-single") is None
    cluster.cache.check_consistent()


def test_once_the_minimum_stands_the_others_are_pods_like_any(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(2))
    pods = [make_member(number) for number in range(3)]
    cluster.add_pods(*pods)
    assert cluster.cache.assume("uid-m1", "a")
    assert find_group(cluster) == TaskGroup("team/g", 1, is_begun=True)
    assert cluster.cache.assume("uid-m2", "b")
    assert find_group(cluster) is None
    cluster.cache.forget("uid-m2")
    assert find_group(cluster) == TaskGroup("team/g", 1, is_begun=True)


def test_who_succeeded_counts_also_when_the_pod_is_deleted_and_who_failed_is_lost(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(3))
    pods = [make_member(number, node="a" if number else None) for number in range(3)]
    cluster.add_pods(*pods)
    assert find_group(cluster) == TaskGroup("team/g", 1, is_begun=True)
    done = cluster.change_pod(pods[1], lambda pod: pod["status"].update(phase="Succeeded"))
    assert find_group(cluster) == TaskGroup("team/g", 1, is_begun=True)
    cluster.delete_pod(done)
    assert find_group(cluster) == TaskGroup("team/g", 1, is_begun=True)
    cluster.change_pod(pods[2], lambda pod: pod["status"].update(phase="Failed"))
    assert find_words(cluster) == "group team/g: 2 of 3 pods exist"
    cluster.add_pods(make_member(3))
    assert find_group(cluster) == TaskGroup("team/g", 2, is_begun=True)
    cluster.cache.check_consistent()


def test_who_is_being_deleted_is_lost_already(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(2))
    cluster.add_pods(placed := make_member(1, node="a"), make_member(0), make_member(2))
    assert find_group(cluster) == TaskGroup("team/g", 1, is_begun=True)
    cluster.change_pod(placed, lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert find_group(cluster) == TaskGroup("team/g", 2)


def end(cluster: Cluster, pod: Json) -> None:
    """Let a pod be deleted as clients do: it is leaving first, and then gone."""
    cluster.delete_pod(cluster.change_pod(pod, let_leave))


def let_leave(pod: Json) -> None:
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def find_free(cluster: Cluster, uid: str) -> list[int]:
    """Milli-CPUs that are free on each node for the class of a pod."""
    snapshot, placement = cluster.cache.build_snapshot(), cluster.get_class(uid).placement
    free = snapshot.servers.free_kr[:, 0].tolist()
    return [amount + placement.reserved.get(k, (0,))[0] for k, amount in enumerate(free)]


@pytest.mark.parametrize("is_leaving", [False, True])
def test_the_place_of_a_lost_member_is_kept_for_its_group(is_leaving: bool) -> None:  # noqa: FBT001 - a case
    cluster = make_keeping()
    cluster.put_objects(POD_GROUPS, make_gang(2))
    cluster.add_pods(*(pods := [make_member(number, node="a") for number in range(2)]))
    cluster.cache.build_snapshot()
    cluster.add_pods(make_pod("other", requests={"cpu": "1"}))
    (end if is_leaving else Cluster.delete_pod)(cluster, pods[1])
    cluster.add_pods(make_member(2))

    assert find_group(cluster, "uid-m2") == TaskGroup("team/g", 1, is_begun=True)
    assert (find_free(cluster, "uid-other"), find_free(cluster, "uid-m2")) == ([2000, 4000], [3000, 4000])
    cluster.cache.check_consistent()
    assert cluster.cache.assume("uid-m2", "a")
    assert find_free(cluster, "uid-other") == [1000, 4000]  # until it is bound, both count
    cluster.add_pods(make_member(2, node="a"))
    assert find_free(cluster, "uid-other") == [2000, 4000]
    cluster.cache.check_consistent()


def make_keeping() -> Cluster:
    cluster = Cluster(kept_seconds=60.0)
    cluster.add_nodes(make_node("a"), make_node("b"))
    return cluster


def test_a_place_is_kept_for_a_time_also_when_all_members_and_their_pod_group_are_lost() -> None:
    cluster = make_keeping()
    cluster.put_objects(POD_GROUPS, make_gang(2))
    cluster.add_pods(*(pods := [make_member(number, node="a") for number in range(2)]))
    cluster.delete_object(POD_GROUPS, make_gang(2))
    for pod in pods:
        end(cluster, pod)
    cluster.cache.advance_rests(100.0)
    cluster.put_objects(POD_GROUPS, make_gang(2, uid="another"))
    cluster.add_pods(*(make_member(number) for number in (2, 3)), make_pod("other", requests={"cpu": "1"}))
    assert find_group(cluster, "uid-m2") == TaskGroup("team/g", 2, is_begun=True)
    assert (find_free(cluster, "uid-other"), find_free(cluster, "uid-m2")) == ([2000, 4000], [4000, 4000])
    cluster.cache.check_consistent()
    cluster.cache.advance_rests(159.0)
    assert find_free(cluster, "uid-other") == [2000, 4000]
    cluster.cache.advance_rests(160.0)
    assert find_free(cluster, "uid-other") == [4000, 4000]
    assert find_group(cluster, "uid-m2") == TaskGroup("team/g", 2)


def test_places_stay_kept_when_all_members_are_lost_again_before_the_minimum_stands() -> None:
    """A LeaderWorkerSet makes all of its pods again when one is lost, and may do so twice in a row."""
    cluster = make_keeping()
    marks: Json = {"labels": LWS, "annotations": {"leaderworkerset.sigs.k8s.io/size": "3"}, "schedulingGroup": None}
    cluster.add_pods(make_pod("other", requests={"cpu": "1"}))
    for numbers in ((0, 1, 2), (3, 4)):
        cluster.add_pods(*(pods := [make_member(number, node="a", **marks) for number in numbers]))
        leaving = [cluster.change_pod(pod, let_leave) for pod in pods]
        cluster.cache.build_snapshot()
        for pod in leaving:
            cluster.delete_pod(pod)
        assert find_free(cluster, "uid-other") == [1000, 4000]
        cluster.cache.check_consistent()
    cluster.add_pods(*(make_member(number, **marks) for number in range(5, 8)))
    assert find_group(cluster, "uid-m5") == TaskGroup("team/serve-0 (LeaderWorkerSet)", 3, is_begun=True)
    assert find_free(cluster, "uid-m5") == [4000, 4000]
    cluster.cache.advance_rests(0.0)
    cluster.cache.advance_rests(60.0)
    assert find_free(cluster, "uid-other") == [4000, 4000]
    for number in range(5, 8):
        cluster.delete_pod(make_member(number, **marks))
    assert cluster.cache.state.groups.by_key == {}


def test_places_are_kept_while_an_operator_creates_the_pod_group_again() -> None:
    """The new PodGroup is there before the other members are lost."""
    cluster = make_keeping()
    cluster.put_objects(POD_GROUPS, make_gang(3))
    cluster.add_pods(make_pod("other", requests={"cpu": "1"}))
    cluster.add_pods(*(pods := [make_member(number, node="a") for number in range(3)]))
    cluster.delete_pod(pods[0])
    cluster.delete_object(POD_GROUPS, make_gang(3))
    cluster.put_objects(POD_GROUPS, make_gang(3, uid="another"))
    for pod in pods[1:]:
        cluster.delete_pod(pod)
    assert find_free(cluster, "uid-other") == [1000, 4000]


def test_nothing_is_kept_for_members_that_succeeded_or_whose_group_was_never_whole() -> None:
    cluster = make_keeping()
    cluster.put_objects(POD_GROUPS, make_gang(3))
    first, second, third = (make_member(number, node="a") for number in range(3))
    cluster.add_pods(first)
    cluster.delete_pod(first)
    cluster.add_pods(make_pod("other", requests={"cpu": "1"}), *(make_member(n, node="a") for n in range(3)))
    cluster.change_pod(second, lambda pod: pod["status"].update(phase="Succeeded"))
    assert find_free(cluster, "uid-other") == [2000, 4000]
    cluster.change_pod(third, lambda pod: pod["status"].update(phase="Failed"))
    assert find_free(cluster, "uid-other") == [2000, 4000]


def test_a_tenant_keeps_so_many_places_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_places, "MAX_TENANT_PLACES", 2)
    cluster = make_keeping()
    cluster.put_objects(POD_GROUPS, make_gang(3))
    cluster.add_pods(*(pods := [make_member(number, node="a") for number in range(3)]))
    for pod in pods:
        cluster.delete_pod(pod)
    cluster.add_pods(make_pod("other", requests={"cpu": "1"}))
    assert find_free(cluster, "uid-other") == [2000, 4000]


def test_a_pod_group_made_again_with_the_same_name_begins_without_a_past(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(1))
    first = make_member(1, node="a")
    cluster.add_pods(first)
    cluster.change_pod(first, lambda pod: pod["status"].update(phase="Succeeded"))
    cluster.add_pods(make_member(0))
    assert find_group(cluster) is None
    cluster.delete_object(POD_GROUPS, make_gang(1))
    assert find_words(cluster) == "PodGroup team/g does not exist"
    cluster.put_objects(POD_GROUPS, make_gang(1, uid="another"))
    assert find_group(cluster) == TaskGroup("team/g", 1)


def test_after_its_start_a_group_may_go_on_one_by_one(cluster: Cluster) -> None:
    once = {"fairbind.io/gang-after-start": "once"}
    cluster.put_objects(POD_GROUPS, make_gang(2))
    pods = [make_member(number, annotations=once if number else None) for number in range(3)]
    cluster.add_pods(*pods)
    assert find_group(cluster) == TaskGroup("team/g", 2)
    bound = [cluster.change_pod(pod, lambda pod: pod["spec"].update(nodeName="a")) for pod in pods[1:]]
    cluster.delete_pod(bound[0])
    assert find_group(cluster) is None


def test_a_minimum_that_is_raised_acts_from_then_on(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(1))
    cluster.add_pods(make_member(0), make_member(1, node="a"))
    assert find_group(cluster) is None
    cluster.put_objects(POD_GROUPS, make_gang(5))
    assert find_words(cluster) == "group team/g: 2 of 5 pods exist"
    cluster.put_objects(POD_GROUPS, make_gang(2))
    assert find_group(cluster) == TaskGroup("team/g", 1)


def test_a_minimum_that_is_raised_does_not_come_before_other_tenants(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(2))
    cluster.add_pods(*(make_member(number, node=None if number < 3 else "a") for number in range(4)))
    assert find_group(cluster) == TaskGroup("team/g", 1, is_begun=True)
    cluster.add_pods(make_member(4, node="b"))
    cluster.put_objects(POD_GROUPS, make_gang(4))
    assert find_group(cluster) == TaskGroup("team/g", 2)


@pytest.mark.parametrize(("cpu", "comes_first"), [("1", True), ("500m", True), ("2", False)])
def test_a_successor_that_asks_for_more_than_what_was_lost_does_not_come_first(
    cluster: Cluster, cpu: str, *, comes_first: bool
) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(2))
    pods = [make_member(number) for number in range(2)]
    cluster.add_pods(*pods)
    bound = [cluster.change_pod(pod, lambda pod: pod["spec"].update(nodeName="a")) for pod in pods]
    cluster.delete_pod(bound[0])

    cluster.add_pods(make_pod("m2", requests={"cpu": cpu}, **NATIVE))

    assert find_group(cluster, "uid-m2") == TaskGroup("team/g", 1, is_begun=comes_first)


def test_pods_that_ran_before_they_were_a_group_let_it_begin_nowhere(cluster: Cluster) -> None:
    owner = {"kind": "Job", "name": "job", "uid": "uid-job"}
    pods = [make_member(n, schedulingGroup=None, owner=owner, node="a" if n == 1 else None) for n in range(3)]
    cluster.add_pods(*pods)
    cluster.put_objects(JOBS, make_job(annotations={"fairbind.io/gang": "all"}, parallelism=3))
    assert find_group(cluster) == TaskGroup("team/job (Job)", 2)


def test_a_basic_group_has_no_minimum_and_must_exist(cluster: Cluster) -> None:
    cluster.add_pods(make_member(0))
    assert find_words(cluster) == "PodGroup team/g does not exist"
    cluster.put_objects(POD_GROUPS, make_pod_group("g", schedulingPolicy={"basic": {}}))
    assert find_group(cluster) is None


def test_groups_are_of_one_namespace(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(2), make_gang(2, namespace="shop"))
    cluster.add_pods(make_member(0), make_member(1, namespace="shop"))
    assert find_words(cluster) == "group team/g: 1 of 2 pods exist"
    assert find_words(cluster, "uid-m1") == "group shop/g: 1 of 2 pods exist"


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"priority": 7}, "priority"),
        ({"scheduler": "another"}, "schedulerName"),
        ({"preemptionPolicy": "Never"}, "preemptionPolicy"),
    ],
)
def test_members_that_differ_are_not_placed_together(cluster: Cluster, other: Json, word: str) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(2))
    cluster.add_pods(make_member(0), make_member(1, **other))
    assert find_words(cluster) == f"group team/g: its pods differ in {word} (SchedulerError)"


def test_members_that_wait_for_something_else_keep_the_others_waiting(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(2))
    cluster.add_pods(gated := make_member(1, schedulingGates=[{"name": "quota"}]), make_member(0))
    words = "group team/g: 1 of 2 pods that it lacks may be placed, others wait for something else"
    assert find_words(cluster) == words
    cluster.change_pod(gated, lambda pod: pod["spec"].pop("schedulingGates"))
    assert find_group(cluster) == TaskGroup("team/g", 2)
    cluster.cache.back_off("uid-m1")
    assert find_words(cluster) == words
    cluster.cache.resume("uid-m1")
    assert find_group(cluster) == TaskGroup("team/g", 2)


def test_all_members_wait_since_the_group_does(cluster: Cluster) -> None:
    times = ["2026-01-01T00:00:09Z", "2026-01-01T00:00:05Z"]
    for number, created in enumerate(times):
        cluster.add_pods(make_member(number, created=created))
    tasks = cluster.get_class("uid-m0").tasks
    assert {task.queue_time for task in tasks} == {1767225605.0}
    cluster.put_objects(POD_GROUPS, make_gang(2, created="2026-01-01T00:00:01Z"))
    tasks = cluster.get_class("uid-m0").tasks
    assert {task.queue_time for task in tasks} == {1767225601.0}
    cluster.cache.check_consistent()


def test_a_member_that_comes_moves_no_other_where_a_pod_group_says_since_when_they_wait(cluster: Cluster) -> None:
    cluster.put_objects(POD_GROUPS, make_gang(3, created="2026-01-01T00:00:05Z"))
    for number in range(3):
        cluster.add_pods(make_member(number, created=f"2026-01-01T00:00:0{9 - number}Z"))
        assert list(cluster.cache.state.groups.take_reordered()) == []
    assert {task.queue_time for task in cluster.get_class("uid-m0").tasks} == {1767225605.0}


def test_volcano_says_how_many_of_which_role_and_how_much_must_be_free(cluster: Cluster) -> None:
    group = make_pod_group("g", minMember=3, minTaskMember={"head": 1, "worker": 2}, minResources={"cpu": 3})
    cluster.put_objects(VOLCANO_POD_GROUPS, group)
    roles = ["worker", "worker", "worker", "head"]
    pods = [
        make_member(number, schedulingGroup=None, annotations={**VOLCANO, "volcano.sh/task-spec": role})
        for number, role in enumerate(roles)
    ]
    cluster.add_pods(*pods[:3])
    assert find_words(cluster) == "group team/g: 0 of 1 pods of role head exist"
    cluster.add_pods(pods[3])
    assert find_group(cluster) == TaskGroup("team/g", 3, (("head", 1), ("worker", 2)), (3000, 0, 0, 0))
    assert (cluster.get_class("uid-m0").role, cluster.get_class("uid-m3").role) == ("worker", "head")
    cluster.put_objects(VOLCANO_POD_GROUPS, make_pod_group("g", minMember=1, minResources={"example.com/gpu": "1"}))
    assert find_words(cluster) == "group team/g: no node has example.com/gpu, of which its minResources ask for"


@pytest.mark.parametrize(
    ("marks", "name", "lacking"),
    [
        ({"labels": LWS, "annotations": {"leaderworkerset.sigs.k8s.io/size": "2"}}, "serve-0 (LeaderWorkerSet)", 2),
        (
            {"labels": LWS, "annotations": {"leaderworkerset.sigs.k8s.io/size": "2", "fairbind.io/gang": "1"}},
            "serve-0 (LeaderWorkerSet)",
            1,
        ),
        ({"labels": KUEUE, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}, "k (Kueue)", 2),
        (
            {"annotations": {"fairbind.io/gang": "2"}, "owner": {"kind": "ReplicaSet", "name": "rs", "uid": "u"}},
            "rs (ReplicaSet)",
            2,
        ),
    ],
)
def test_pods_alone_say_their_group(cluster: Cluster, marks: Json, name: str, lacking: int) -> None:
    cluster.add_pods(*(make_member(number, schedulingGroup=None, **marks) for number in range(2)))
    assert find_group(cluster) == TaskGroup(f"team/{name}", lacking)


def test_an_exclusive_topology_of_a_leader_worker_set_is_no_group(cluster: Cluster) -> None:
    annotations = {"leaderworkerset.sigs.k8s.io/size": "2", "leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    cluster.add_pods(make_member(0, schedulingGroup=None, labels=LWS, annotations=annotations))
    assert find_group(cluster) is None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"labels": KUEUE}, "kueue.x-k8s.io/pod-group-total-count"),
        ({"labels": LWS}, "leaderworkerset.sigs.k8s.io/size"),
        ({"owner": {"kind": "Set", "name": "s", "uid": "uid-s"}}, "fairbind.io/gang"),
    ],
)
def test_of_several_minimums_that_members_say_the_largest_counts(cluster: Cluster, kind: Json, said: str) -> None:
    """It counts as long as a member says it, so that no fewer start together than any of them asks for."""
    sizes = ("2", "3", "2")
    pods = [make_member(n, schedulingGroup=None, annotations={said: size}, **kind) for n, size in enumerate(sizes)]
    cluster.add_pods(*pods)
    group = find_group(cluster)
    assert group is not None
    assert group.lacking == 3
    cluster.delete_pod(pods[1])
    group = find_group(cluster)
    assert group is not None
    assert group.lacking == 2
    cluster.add_pods(make_member(3, schedulingGroup=None, annotations={said: "4"}, **kind))
    assert find_words(cluster).endswith(": 3 of 4 pods exist")
    cluster.cache.check_consistent()


def test_of_several_topologies_that_members_say_a_required_one_counts(cluster: Cluster) -> None:
    kinds = ("preferred", "a"), ("required", "rack"), ("required", "zone"), ("preferred", "b")
    for number, (kind, key) in enumerate(kinds):
        marks = {"fairbind.io/gang": "4", f"fairbind.io/gang-{kind}-topology": key}
        owner = {"kind": "Set", "name": "s", "uid": "uid-s"}
        cluster.add_pods(make_member(number, schedulingGroup=None, annotations=marks, owner=owner))
    group = find_group(cluster)
    assert group is not None
    assert group.topology is not None
    assert (group.topology.is_required, group.topology.domains.domain_k.tolist()) == (True, [0, 1])


def test_a_job_says_that_its_pods_are_a_group_whatever_comes_first(cluster: Cluster) -> None:
    owner = {"kind": "Job", "name": "job", "uid": "uid-job"}
    cluster.add_pods(*(make_member(number, schedulingGroup=None, owner=owner) for number in range(2)))
    assert find_group(cluster) is None
    job = make_job(annotations={"fairbind.io/gang": "all"}, parallelism=3)
    cluster.put_objects(JOBS, job)
    assert find_words(cluster) == "group team/job (Job): 2 of 3 pods exist"
    cluster.add_pods(make_member(2, schedulingGroup=None, owner=owner))
    assert find_group(cluster) == TaskGroup("team/job (Job)", 3)
    cluster.put_objects(JOBS, make_job(annotations={"fairbind.io/gang": "2"}, parallelism=3))
    assert find_group(cluster) == TaskGroup("team/job (Job)", 2)
    cluster.cache.check_consistent()
    cluster.delete_object(JOBS, job)
    assert find_group(cluster) is None
    cluster.put_objects(JOBS, make_job(parallelism=3))
    assert find_group(cluster) is None


def test_of_all_pods_of_a_job_the_job_must_be_known(cluster: Cluster) -> None:
    owner, annotations = {"kind": "Job", "name": "job", "uid": "uid-job"}, {"fairbind.io/gang": "all"}
    cluster.add_pods(make_member(0, schedulingGroup=None, owner=owner, annotations=annotations))
    assert find_words(cluster).endswith("is known of a Job only, and it does not exist")
    cluster.put_objects(JOBS, make_job(of_pods=annotations, parallelism=5, completions=1))
    assert find_group(cluster) == TaskGroup("team/job (Job)", 1)


def test_of_several_formats_the_first_counts(cluster: Cluster) -> None:
    cluster.put_objects(COSCHEDULING_POD_GROUPS, make_pod_group("label", minMember=1))
    cluster.put_objects(POD_GROUPS, make_gang(1))
    both = make_member(0, labels={GROUP_LABEL: "label", **LWS})
    cluster.add_pods(both, make_member(1, schedulingGroup=None, labels={GROUP_LABEL: "label", **LWS}))
    assert find_group(cluster) == TaskGroup("team/g", 1)
    assert find_group(cluster, "uid-m1") == TaskGroup("team/label", 1)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"yunikorn.apache.org/task-group-name": "g"}, "task groups of YuniKorn: use a PodGroup"),
        ({"pod-group-name": "g"}, "pod groups of KAI: use a PodGroup"),
    ],
)
def test_formats_that_are_not_read_say_what_to_use(cluster: Cluster, annotations: Json, words: str) -> None:
    cluster.add_pods(make_member(0, schedulingGroup=None, annotations=annotations))
    blocked = cluster.get_class("uid-m0").blocked
    assert blocked is not None
    assert blocked.kind is RejectionKind.NOT_SUPPORTED
    assert blocked.subject.startswith(words)


def test_a_minimum_that_is_no_number_is_said(cluster: Cluster) -> None:
    cluster.add_pods(make_member(0, schedulingGroup=None, annotations={"fairbind.io/gang": "many"}))
    blocked = cluster.get_class("uid-m0").blocked
    assert blocked is not None
    assert blocked.kind is RejectionKind.UNREADABLE


def test_a_required_topology_is_the_domain_of_the_members_that_are_placed(cluster: Cluster) -> None:
    constraints = {"topology": [{"key": "rack"}]}
    cluster.put_objects(POD_GROUPS, make_gang(3, schedulingConstraints=constraints))
    cluster.add_pods(*(make_member(number) for number in range(4)))
    group = find_group(cluster)
    assert group is not None
    assert group.topology is not None
    assert (group.topology.is_required, group.topology.domains.domain_k.tolist()) == (True, [0, 1])
    for uid in ("uid-m1", "uid-m2", "uid-m3"):
        assert cluster.cache.assume(uid, "b")
        group, placement = cluster.get_class("uid-m0").group, cluster.get_class("uid-m0").placement
        assert group is None or group.topology is None
        assert placement.eligible_k.tolist() == [False, True]
    cluster.add_nodes(make_node("a", labels={"rack": "2"}))
    assert cluster.get_class("uid-m0").placement.eligible_k.tolist() == [True, True]
    cluster.cache.check_consistent()


def test_a_preferred_topology_is_first_the_domain_of_most_members_that_are_placed(cluster: Cluster) -> None:
    cluster.add_nodes(make_node("c", labels={"rack": "2"}), make_node("d"))
    marks = {"fairbind.io/gang": "6", "fairbind.io/gang-preferred-topology": "rack"}
    owner = {"kind": "Set", "name": "s", "uid": "uid-s"}
    pods = [make_member(number, schedulingGroup=None, annotations=marks, owner=owner) for number in range(6)]
    cluster.add_pods(*pods)

    def find_home() -> list[str] | None:
        task_class = cluster.get_class("uid-m0")
        assert task_class.group is not None
        topology = task_class.group.topology
        assert topology is not None
        assert not topology.is_required
        assert task_class.placement.eligible_k.all()
        names = cluster.cache.build_snapshot().servers.names
        return None if topology.home is None else [names[k] for k in topology.domains.find_members(topology.home)]

    assert find_home() is None
    two = ["b", "c"]
    for number, (node, home) in enumerate((("d", None), ("b", two), ("c", two), ("a", two), ("a", ["a"]))):
        assert cluster.cache.assume(f"uid-m{number + 1}", node)
        assert find_home() == home
    cluster.add_nodes(make_node("d", labels={"rack": "1"}), make_node("c", labels={"rack": "1"}))
    assert find_home() == ["a", "c", "d"]
    cluster.cache.check_consistent()


def test_pods_of_further_scheduler_names_are_placed_and_others_are_not() -> None:
    cluster = Cluster(other_names=frozenset({"volcano"}))
    cluster.add_nodes(make_node("a"))
    cluster.put_objects(POD_GROUPS, make_gang(2))
    cluster.add_pods(make_member(0), make_member(1, scheduler="volcano"), make_pod("x", scheduler="volcano-2"))
    assert find_group(cluster) == TaskGroup("team/g", 2)
    assert cluster.find_class("uid-x") is None


def test_a_scheduler_that_asks_places_groups_itself() -> None:
    cluster = Cluster(asking=frozenset({"default-scheduler"}))
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(make_member(0, scheduler="default-scheduler"))
    assert find_group(cluster) is None
