"""What is written into PodGroups of Kubernetes, and when it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.builders import Cluster, Json, make_gang, make_node, make_pod, make_pod_group, next_version
from fairbind.cluster.cache.group_conditions import list_group_conditions
from fairbind.cluster.objects.decode import POD_GROUPS
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError
from fairbind.kube.observer import SilentObserver
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.due_writes import WRITES_PER_LOOK
from fairbind.kube.writers.group_status import GroupStatusWriter
from fairbind.model import PolicySettings
from fairbind.scheduling import run_cycle


class Scene:
    """A cluster, and an API server that remembers what is written and tells the cluster."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.add_nodes(make_node("a"))
        self.groups: dict[str, Json] = {}
        self.writes: list[tuple[str, Json]] = []
        self.fault: ApiError | None = None
        self.leads = True
        self.now = 0.0
        self.writer = GroupStatusWriter(
            self,
            lambda: list_group_conditions(self.cluster.cache.state),
            lambda: self.leads,
            lambda: True,
            PartFailures(SilentObserver()),
            clock=lambda: self.now,
            wall_clock=lambda: 1767225600.5,
        )

    def put(self, *groups: Json) -> None:
        for group in groups:
            self.groups[group["metadata"]["name"]] = group
            self.cluster.put_objects(POD_GROUPS, group)

    async def request(self, method: str, path: str, **rest: Any) -> bytes:
        assert (method, rest["content_type"]) == ("PATCH", "application/strategic-merge-patch+json")
        if not rest["guard"]():
            raise NotAllowedError(path)
        if self.fault is not None:
            raise self.fault
        patch = msgspec.json.decode(rest["body"])
        name = path.split("/")[7]
        self.writes.append((name, patch["status"]["conditions"][0]))
        group = self.groups[name]
        assert patch["metadata"] == {"uid": group["metadata"]["uid"]}
        self.put(
            {**group, "status": patch["status"], "metadata": {**group["metadata"], "resourceVersion": next_version()}}
        )
        return b"{}"

    async def look(self) -> list[tuple[str, str, str]]:
        """Let a cycle look at what waits, then write; returns what was written: name, status and reason."""
        snapshot = self.cluster.cache.build_snapshot()
        self.cluster.note_waits(run_cycle(snapshot, PolicySettings(), 0.0).waits)
        self.writes.clear()
        await self.writer.look()
        return sorted((name, said["status"], said["reason"]) for name, said in self.writes)


def make_member(number: int, group: str = "g", **more: Any) -> Json:
    return make_pod(f"{group}-{number}", schedulingGroup={"podGroupName": group}, requests={"cpu": "3"}, **more)


async def test_a_group_says_whether_its_minimum_was_placed_and_true_is_final() -> None:
    scene = Scene()
    scene.put(make_gang(2))
    scene.cluster.add_pods(make_member(0))
    assert await scene.look() == [("g", "False", "Unschedulable")]
    assert scene.writes[0][1]["message"] == "group team/g: 1 of 2 pods exist"
    assert scene.writes[0][1]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert await scene.look() == []
    scene.cluster.add_pods(make_member(1))
    assert await scene.look() == [("g", "False", "Unschedulable")]
    assert "group team/g: 1 of 2 fit; short of 1 x {cpu: 3}" in scene.writes[0][1]["message"]
    assert await scene.look() == []
    placed = [make_member(number, node="a") for number in range(2)]
    scene.cluster.add_pods(*placed)
    assert await scene.look() == [("g", "True", "Scheduled")]
    for pod in placed:
        scene.cluster.delete_pod(pod)
    scene.cluster.add_pods(make_member(3))
    assert await scene.look() == []


async def test_a_group_without_a_minimum_is_scheduled_with_its_first_pod() -> None:
    scene = Scene()
    scene.put(make_pod_group("g", schedulingPolicy={"basic": {}}))
    scene.cluster.add_pods(make_member(0), make_member(1))
    scene.cluster.add_pods(make_pod("full", node="a", requests={"cpu": "4"}))
    assert await scene.look() == [("g", "False", "Unschedulable")]
    scene.cluster.add_pods(make_member(1, node="a"))
    assert await scene.look() == [("g", "True", "Scheduled")]


@pytest.mark.parametrize("policy", [{"gang": {"minCount": 2}}, {"basic": {}}])
async def test_a_group_whose_pods_ended_before_anybody_looked_is_scheduled(policy: Json) -> None:
    scene = Scene()
    scene.put(make_pod_group("g", schedulingPolicy=policy), make_gang(2, "others"))
    placed = [make_member(number, node="a") for number in range(2)]
    theirs = [make_member(number, "others", node="a", scheduler="default-scheduler") for number in range(2)]
    scene.cluster.add_pods(*placed, *theirs)
    for pod in (*placed, *theirs):
        scene.cluster.change_pod(pod, lambda each: each["status"].update(phase="Succeeded"))
    scene.cluster.delete_pod(placed[0])
    assert await scene.look() == [("g", "True", "Scheduled")]
    scene.cluster.cache.check_consistent()


async def test_members_that_differ_are_an_error_of_the_group() -> None:
    scene = Scene()
    scene.put(make_gang(2))
    scene.cluster.add_pods(make_member(0), make_member(1, priority=7))
    assert await scene.look() == [("g", "False", "SchedulerError")]


async def test_the_generation_is_said_where_there_is_one() -> None:
    scene = Scene()
    group = make_gang(2)
    group["metadata"]["generation"] = 3
    scene.put(group)
    scene.cluster.add_pods(make_member(0))
    await scene.look()
    assert scene.writes[0][1]["observedGeneration"] == 3


async def test_nothing_is_written_for_groups_of_others_or_by_who_does_not_lead() -> None:
    scene = Scene()
    scene.put(make_gang(2, "g"), make_gang(2, "others"), make_gang(2, "empty"))
    scene.cluster.add_pods(make_member(0), make_member(0, "others", scheduler="default-scheduler"))
    scene.leads = False
    assert await scene.look() == []
    scene.leads = True
    assert await scene.look() == [("g", "False", "Unschedulable")]


async def test_so_many_are_written_at_a_time_and_after_a_failure_none_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    for number in range(2 * WRITES_PER_LOOK):
        scene.put(make_gang(2, f"g{number}"))
        scene.cluster.add_pods(make_member(0, f"g{number}"))
    seen = 0
    for _ in range(60):
        written = await scene.look()
        assert len(written) <= WRITES_PER_LOOK
        seen += len(written)
        scene.now += 1.0
    assert seen == 2 * WRITES_PER_LOOK
    scene.put(make_gang(2, "late"))
    scene.cluster.add_pods(make_member(0, "late"))
    scene.fault = ApiError(403, "Forbidden", "cannot patch")
    assert await scene.look() == []
    assert "A PodGroup's condition could not be written" in caplog.text
    scene.fault = None
    assert await scene.look() == []
    scene.now += 600.0
    assert await scene.look() == [("late", "False", "Unschedulable")]
