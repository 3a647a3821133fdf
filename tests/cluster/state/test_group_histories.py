"""Random histories of groups: after any of them the state is what is computed from nothing of what is there.

Members, PodGroups and Jobs come, change and go in any order. The other side of the comparison is a plain loop over all
pods, which knows which of them have succeeded since their PodGroup is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_job, make_node, make_pod, make_pod_group, make_quota
from fairbind.cluster.objects.decode import (
    COSCHEDULING_POD_GROUPS,
    JOBS,
    POD_GROUPS,
    QUOTAS,
    VOLCANO_POD_GROUPS,
    ResourceType,
)
from fairbind.model import RejectionKind

STEPS = 90
NAMESPACES = ("team", "shop")
FORMATS: dict[str, tuple[ResourceType[Any], Callable[[int], Json]]] = {
    "native": (POD_GROUPS, lambda minimum: {"schedulingPolicy": {"gang": {"minCount": minimum}} if minimum else {}}),
    "volcano": (VOLCANO_POD_GROUPS, lambda minimum: {"minMember": minimum}),
    "label": (COSCHEDULING_POD_GROUPS, lambda minimum: {"minMember": minimum}),
}
MARKS: dict[str, Callable[[], Json]] = {
    "native": lambda: {"schedulingGroup": {"podGroupName": "native"}},
    "volcano": lambda: {"annotations": {"scheduling.k8s.io/group-name": "volcano"}},
    "label": lambda: {"labels": {"scheduling.x-k8s.io/pod-group": "label"}},
    "job": lambda: {"owner": {"kind": "Job", "name": "job", "uid": "uid-job"}},
    "plain": dict,
}


class History:
    """One history.

    pods: as they are, by UID. groups: PodGroups and Jobs, by namespace and name. ended: what succeeded, by namespace,
    mark and UID.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.cluster = Cluster(kept_seconds=5.0)
        self.cluster.add_nodes(make_node("a", allocatable={"cpu": "99", "pods": "99"}), make_node("b"))
        self.pods: dict[str, tuple[str, str, Json]] = {}
        self.groups: dict[tuple[str, str], tuple[int, Json]] = {}
        self.ended: dict[tuple[str, str], set[str]] = {}
        self.uids: dict[tuple[str, str], str] = {}
        self.made = 0

    def step(self) -> None:
        act = self.draw.choice([self.add, self.add, self.place, self.place, self.end, self.delete, self.leave])
        self.draw.choice([act, act, act, self.change_group, self.drop_group, self.change_quota, self.pass_time])()

    def add(self) -> None:
        self.made += 1
        mark, namespace = self.draw.choice([*MARKS]), self.draw.choice(NAMESPACES)
        requests = {"cpu": self.draw.choice(("1", "2"))}
        pod = make_pod(f"p{self.made}", namespace=namespace, requests=requests, **MARKS[mark]())
        self.pods[pod["metadata"]["uid"]] = namespace, mark, pod
        self.cluster.add_pods(pod)

    def change(self, wanted: Callable[[Json], bool], change: Callable[[Json], Any]) -> tuple[str, str, Json] | None:
        found = [(uid, each) for uid, each in self.pods.items() if wanted(each[2])]
        if not found:
            return None
        uid, (namespace, mark, pod) = self.draw.choice(found)
        self.pods[uid] = namespace, mark, self.cluster.change_pod(pod, change)
        return self.pods[uid]

    def place(self) -> None:
        self.change(is_waiting, lambda pod: pod["spec"].update(nodeName="a"))

    def leave(self) -> None:
        self.change(is_placed, lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))

    def end(self) -> None:
        phase = self.draw.choice(("Succeeded", "Failed"))
        found = self.change(is_placed, lambda pod: pod["status"].update(phase=phase))
        if found is not None and phase == "Succeeded":
            namespace, mark, pod = found
            if mark != "job" or (namespace, mark) in self.groups:
                self.ended.setdefault((namespace, mark), set()).add(pod["metadata"]["uid"])

    def delete(self) -> None:
        if self.pods:
            uid = self.draw.choice([*self.pods])
            self.cluster.delete_pod(self.pods.pop(uid)[2])

    def change_group(self) -> None:
        namespace, name = self.draw.choice(NAMESPACES), self.draw.choice([*FORMATS, "job"])
        minimum, known = self.draw.randint(0, 4), self.groups.get((namespace, name))
        if name == "job":
            made = make_job("job", namespace=namespace, annotations={"fairbind.io/gang": str(max(minimum, 1))})
            self.groups[namespace, name] = max(minimum, 1), made
            self.cluster.put_objects(JOBS, made)
            return
        self.made += 1
        uid = f"group-{self.made}" if known is None else known[1]["metadata"]["uid"]
        resource_type, make_spec = FORMATS[name]
        made = make_pod_group(name, namespace=namespace, uid=uid, **make_spec(minimum))
        if self.uids.get((namespace, name), uid) != uid:
            self.ended.pop((namespace, name), None)
        self.uids[namespace, name] = uid
        self.groups[namespace, name] = minimum, made
        self.cluster.put_objects(resource_type, made)

    def drop_group(self) -> None:
        if self.groups:
            namespace, name = self.draw.choice([*self.groups])
            made = self.groups.pop((namespace, name))[1]
            self.cluster.delete_object(JOBS if name == "job" else FORMATS[name][0], made)

    def change_quota(self) -> None:
        hard = {"requests.cpu": self.draw.choice(("0", "1", "2"))}
        made = make_quota(self.draw.choice("qr"), namespace=self.draw.choice(NAMESPACES), hard=hard)
        if self.draw.random() < 0.7:
            self.cluster.put_objects(QUOTAS, made)
        else:
            self.cluster.delete_object(QUOTAS, made)

    def pass_time(self) -> None:
        self.cluster.cache.advance_rests(float(self.made))

    def check(self) -> None:
        self.forget_gone()
        for namespace in NAMESPACES:
            for mark in MARKS:
                members = [pod for of, said, pod in self.pods.values() if (of, said) == (namespace, mark)]
                self.check_group(namespace, mark, members)

    def forget_gone(self) -> None:
        """A group of which nothing is left has no past."""
        for key in list(self.ended):
            has_pods = any(
                (of, said) == key and (not has_ended(pod) or pod["status"]["phase"] == "Succeeded")
                for of, said, pod in self.pods.values()
                if "deletionTimestamp" not in pod["metadata"] or has_ended(pod)
            )
            if not has_pods and (key not in self.groups or key[1] == "job"):
                del self.ended[key]

    def check_group(self, namespace: str, mark: str, members: list[Json]) -> None:
        waiting = [pod for pod in members if is_waiting(pod)]
        if not waiting:
            return
        told = self.cluster.get_class(waiting[0]["metadata"]["uid"])
        group = self.groups.get((namespace, mark))
        if group is None and mark in FORMATS:
            assert told.blocked is not None
            assert told.blocked.subject.endswith("does not exist")
            return
        placed, ended = sum(map(is_placed, members)), len(self.ended.get((namespace, mark), ()))
        minimum = 0 if group is None else group[0]
        lacking = max(minimum - placed - ended, 0)
        if minimum and lacking > len(waiting):
            assert told.blocked is not None
            assert told.blocked.kind is RejectionKind.GANG_INCOMPLETE
            return
        assert told.blocked is None
        assert (0 if told.group is None else told.group.lacking) == lacking


def has_ended(pod: Json) -> bool:
    return pod["status"]["phase"] in {"Succeeded", "Failed"}


def is_there(pod: Json) -> bool:
    return not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def is_waiting(pod: Json) -> bool:
    return is_there(pod) and "nodeName" not in pod["spec"]


def is_placed(pod: Json) -> bool:
    return is_there(pod) and "nodeName" in pod["spec"]


@pytest.mark.parametrize("seed", range(24))
def test_after_any_history_classes_are_told_what_is_computed_from_nothing(seed: int) -> None:
    history = History(seed)
    looks = random.Random(-seed)
    for _ in range(STEPS):
        history.step()
        if looks.random() < 0.4:
            history.check()
            history.cluster.cache.check_consistent()
