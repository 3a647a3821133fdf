"""The snapshot's running tasks: which pods are among them, what they say, and that unchanged ones cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, read_pod
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.group_marks import GROUP_LABEL
from fairbind.model import RunningTask

NEW_YEAR = 1767225600.0


def find_running(cache: ClusterCache) -> dict[str, RunningTask]:
    return {task.uid: task for tasks in cache.build_snapshot().running.values() for task in tasks}


def read_running(**pod: Any) -> RunningTask:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"))
    cluster.add_pods(make_pod("p", node="n1", **pod))
    (task,) = find_running(cluster.cache).values()
    return task


def test_a_bound_pod_is_one_with_all_that_it_holds() -> None:
    ports = [{"hostPort": 80}]
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}, "ports": ports}
    task = read_running(priority=7, containers=[container])

    assert (task.uid, task.tenant, task.server, task.priority) == ("uid-p", "ns/team", "n1", 7)
    assert task.demand_r == (2000, 0, 0, 1)
    assert task.share_demand_r == (2000, 16 * 2**20, 0, 1)
    assert task.keys
    assert task.group is None


@pytest.mark.parametrize(
    ("status", "start"), [({}, NEW_YEAR), ({"startTime": "2026-01-01T01:00:00Z"}, NEW_YEAR + 3600)]
)
def test_it_starts_when_its_kubelet_takes_it_and_until_then_when_it_was_made(status: Json, start: float) -> None:
    assert read_running(status=status).start == start


@pytest.mark.parametrize(
    ("pod", "group"),
    [
        ({}, None),
        ({"labels": {GROUP_LABEL: "job"}}, "team/job"),
        ({"schedulingGroup": {"podGroupName": "gang"}}, "team/gang"),
        ({"schedulingGroup": {"podGroupName": "gang"}, "labels": {GROUP_LABEL: "job"}}, "team/gang"),
        ({"schedulingGroup": {}, "labels": {GROUP_LABEL: "job"}}, "team/job"),
        ({"schedulingGroup": {"podGroupName": 7}}, None),
    ],
)
def test_its_group_is_what_its_spec_says_or_else_its_label(pod: dict[str, Any], group: str | None) -> None:
    assert read_running(**pod).group == group


def test_only_pods_of_tenants_that_hold_something_are_among_them() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"))
    cluster.add_pods(
        make_pod("bound", node="n1"),
        make_pod("waiting"),
        make_pod("gated", schedulingGates=[{"name": "g"}]),
        make_pod("finished", node="n1", phase="Succeeded"),
        make_pod("system", namespace="kube-system", node="n1", scheduler="default-scheduler"),
        make_pod("elsewhere", node="unheard-of"),
    )
    assert set(find_running(cluster.cache)) == {"uid-bound", "uid-elsewhere"}

    cluster.cache.assume("uid-waiting", "n1")
    assert find_running(cluster.cache)["uid-waiting"].server == "n1"
    cluster.cache.forget("uid-waiting")
    cluster.delete_pod(make_pod("bound", node="n1"))
    assert set(find_running(cluster.cache)) == {"uid-elsewhere"}


def test_keys_of_system_pods_are_fixed() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"), make_node("n2"))
    port: Json = {"name": "main", "ports": [{"hostPort": 80}]}
    system = make_pod("s", namespace="kube-system", node="n1", scheduler="default-scheduler", containers=[port])
    cluster.add_pods(system, make_pod("p", node="n2", containers=[port]))
    servers = cluster.cache.build_snapshot().servers

    assert set(servers.taken_keys) == {0, 1}
    assert servers.fixed_keys == {0: servers.taken_keys[0]}

    cluster.delete_pod(system)
    assert cluster.cache.build_snapshot().servers.fixed_keys == {}


def test_a_pod_that_starts_changes_the_snapshot_and_wakes_nobody() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"))
    pod = make_pod("p", node="n1")
    cluster.add_pods(pod)
    before, changes = cluster.cache.build_snapshot(), cluster.changes

    cluster.change_pod(pod, lambda pod: pod["status"].update(startTime="2026-01-01T01:00:00Z"))

    assert before.running["n1"][0].start == NEW_YEAR
    assert find_running(cluster.cache)["uid-p"].start == NEW_YEAR + 3600
    assert cluster.changes == changes
    cluster.cache.check_consistent()
    snapshot = cluster.cache.build_snapshot()
    cluster.change_pod(pod, lambda pod: pod["status"].update(startTime="2026-01-01T01:00:00Z", message="well"))
    assert cluster.cache.build_snapshot() is snapshot


def test_a_start_is_told_also_while_something_else_is_still_to_be_looked_at() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"))
    pod, member = make_pod("p", node="n1"), make_pod("m", labels={GROUP_LABEL: "g"})
    cluster.add_pods(pod, member)
    cluster.cache.build_snapshot()
    cluster.delete_pod(member)  # its group has changed, and nobody has asked for a snapshot since

    cluster.change_pod(pod, lambda pod: pod["status"].update(startTime="2026-01-01T01:00:00Z"))

    assert find_running(cluster.cache)["uid-p"].start == NEW_YEAR + 3600
    cluster.cache.check_consistent()


def test_of_many_pods_only_those_are_made_anew_that_changed() -> None:
    cluster = Cluster()
    nodes = [f"n{number}" for number in range(20)]
    cluster.add_nodes(*map(make_node, nodes))
    cluster.add_pods(*(make_pod(f"{name}-{n}", node=name, requests={"cpu": "1"}) for name in nodes for n in range(3)))
    before = cluster.cache.build_snapshot()

    cluster.add_pods(make_pod("more", node="n7"))

    after = cluster.cache.build_snapshot()
    assert {name for name in nodes if after.running[name] is not before.running[name]} == {"n7"}
    assert len(before.running["n7"]) == 3
    assert all(task in after.running["n7"] for task in before.running["n7"])
    vectors = {id(task.demand_r) for tasks in before.running.values() for task in tasks}
    assert len(vectors) == 1


def test_a_new_resource_makes_the_vectors_longer() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n1"))
    cluster.add_pods(make_pod("p", node="n1", requests={"gpu.io/x": "1"}))
    assert find_running(cluster.cache)["uid-p"].demand_r == (0, 0, 0, 1)

    cluster.add_nodes(make_node("n2", allocatable={"gpu.io/x": "4"}))

    assert find_running(cluster.cache)["uid-p"].demand_r == (0, 0, 0, 1, 1)
    cluster.cache.check_consistent()


def test_facts_of_a_pod_say_when_it_started() -> None:
    assert read_pod(make_pod(status={"startTime": "nonsense"})).start == NEW_YEAR


def test_snapshots_keep_what_they_said() -> None:
    cluster, draw = Cluster(), Random(1)
    told: list[tuple[Mapping[str, tuple[RunningTask, ...]], dict[str, list[str]]]] = []
    held: dict[str, list[str]] = {}
    for step in range(200):
        node = f"n{draw.randrange(40):03}"
        if node in held and draw.random() < 0.6:
            for name in held.pop(node):
                cluster.delete_pod(make_pod(name, node=node))
        else:
            held.setdefault(node, []).append(f"p{step:03}")
            cluster.add_pods(make_pod(f"p{step:03}", node=node))
        running = cluster.cache.build_snapshot().running
        told.append((running, {name: list(pods) for name, pods in held.items()}))

    for running, pods in told:
        assert {node: [task.uid for task in tasks] for node, tasks in running.items()} == {
            node: [f"uid-{name}" for name in names] for node, names in pods.items()
        }
        assert len(running) == len(pods)
        assert ("n000" in running, "none" in running) == ("n000" in pods, False)
