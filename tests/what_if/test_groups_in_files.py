"""Groups of pods in snapshot files: what a file says decides what the cluster's objects decided, also anonymised."""

from __future__ import annotations

import json

from cluster.builders import Json, make_gang, make_job, make_node, make_pod, make_pod_group
from fairbind.cluster.objects.group_marks import GROUP_LABEL
from fairbind.what_if.anonymise import anonymise
from fairbind.what_if.listed_objects import ListedObjects, build_cache
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot


def make_list() -> Json:
    owner = {"kind": "Job", "name": "train", "uid": "uid-train"}
    roles = {"scheduling.k8s.io/group-name": "ray", "volcano.sh/task-spec": "head"}
    lws = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    pods = [
        *(make_pod(f"native-{n}", schedulingGroup={"podGroupName": "gang"}) for n in range(2)),
        *(make_pod(f"label-{n}", labels={GROUP_LABEL: "gang-2"}) for n in range(2)),
        *(make_pod(f"ray-{n}", annotations=roles) for n in range(2)),
        *(make_pod(f"job-{n}", owner=owner) for n in range(2)),
        *(make_pod(f"lws-{n}", labels=lws, annotations={"leaderworkerset.sigs.k8s.io/size": "2"}) for n in range(2)),
        *(
            make_pod(f"own-{n}", annotations={"fairbind.io/gang": "2"}, owner={**owner, "kind": "Set"})
            for n in range(2)
        ),
        make_pod("missing", labels={GROUP_LABEL: "nothing"}),
    ]
    objects = [
        *({"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods),
        {"apiVersion": "v1", "kind": "Node", **make_node("n")},
        {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", **make_gang(2, "gang")},
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", **make_pod_group("gang-2", minMember=2)},
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            **make_pod_group("ray", minMember=2, minTaskMember={"head": 2}, minResources={"cpu": 2}),
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            **make_job("train", annotations={"fairbind.io/gang": "all"}, parallelism=2),
        },
        {"apiVersion": "batch/v1", "kind": "Job", **make_job("plain", parallelism=2)},
    ]
    return {"kind": "List", "items": objects}


def describe(listed: ListedObjects) -> list[tuple[object, ...]]:
    """What each class is told, in order, without names."""
    classes = build_cache(listed).build_snapshot().task_classes
    return sorted(
        (
            len(each.tasks),
            each.blocked is not None,
            each.group is not None and (each.group.lacking, each.group.least_free_r, len(each.group.lacking_of_role)),
        )
        for each in classes
    )


def test_a_file_says_which_pods_are_placed_together() -> None:
    listed = parse_snapshot(make_list())
    told = describe(listed)
    assert [each for each in told if each[1]] == [(1, True, False)]
    assert len([each for each in told if each[2]]) == 6
    again = parse_snapshot(json.loads(format_snapshot(listed)))
    assert (describe(again), describe(anonymise(listed))) == (told, told)
    assert "plain" not in format_snapshot(listed)
