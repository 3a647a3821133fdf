from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cluster.builders import make_node, make_pod
from fairbind.cluster.objects.captured import RunTime
from fairbind.model import InvalidProblemError
from fairbind.scheduling import POLICIES
from fairbind.simulator.driver import simulate
from fairbind.simulator.results import Run
from fairbind.simulator.snapshot_scenario import make_scenario
from fairbind.simulator.workload import draw_workload
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.replay import describe_replay, replay
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot
from simulator.scenarios import SECOND, find_attempts
from what_if.snapshots import make_snapshot, make_tenant, make_two_tenants
from what_if.test_anonymise import make_varied
from what_if.test_comparison import make_node_pod


def run(listed: ListedObjects, *, seed: int = 0, **given: list[float]) -> Run:
    scenario = make_scenario(listed, seed, given)
    return simulate(scenario, draw_workload(scenario), scenario.policies[0])


@pytest.mark.parametrize("policy", sorted(one.id for one in POLICIES.values() if not one.follows_targets))
def test_it_begins_with_what_the_operator_decides_now(policy: str) -> None:
    """Nodes with taints and labels, pods that run, that wait and that are bound by others: as in a replay."""
    listed = parse_snapshot(json.loads(format_snapshot(make_varied(1, policy))))
    listed.run_times = [RunTime(one.metadata.name, 60.0) for one in listed.namespaces]
    decided = describe_replay(replay(listed))["decisions"]
    runs = {f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in listed.pods if pod.spec.node_name}
    began = {
        task: attempts[0][3]
        for task, attempts in find_attempts(run(listed)).items()
        if attempts[0][1] == 0 and task not in runs
    }

    assert len(decided) > 5
    assert began == {f"{one['namespace']}/{one['pod']}": one["node"] for one in decided}


def test_pods_end_after_their_run_times_and_others_follow() -> None:
    """Eight of twelve run at once; each takes 60 s."""
    attempts = find_attempts(run(make_two_tenants(), a=[60.0], b=[60.0]))
    starts = sorted(one[0][1] or 0.0 for one in attempts.values())

    assert starts == [0.0] * 8 + [60.0] * 4
    assert {one[0][2] for one in attempts.values()} == {60.0, 120.0}


def test_tenants_above_others_and_users_are_as_in_the_cluster() -> None:
    """Six pods each; those of a are of two users, and both tenants are below another one without namespaces."""
    listed = make_two_tenants()
    for number, pod in enumerate(pod for pod in listed.pods if pod.metadata.namespace == "a"):
        pod.metadata.labels = {"user": f"u{number % 2}"}
    for tenant in listed.tenants:
        tenant["spec"] |= {"parent": "top"}
    listed.tenants[0]["spec"]["users"] = {"label": "user"}
    listed.tenants.append({"metadata": {"name": "top"}, "spec": {}})
    scenario = make_scenario(listed, 0, {"a": [60.0], "b": [60.0]})
    result = simulate(scenario, draw_workload(scenario), scenario.policies[0])

    assert [spec.name for spec in scenario.tenants] == ["a", "b", "top"]
    assert {entry.tenant for entry in scenario.workload} == {"a", "b"}
    running = {row.tenant: row.running for row in result.shares if row.time == 0}
    assert running["top"] == running["a"] + running["b"] == 8


def test_its_nodes_are_divided_into_slots() -> None:
    """A node of four cores has 14 slots, and a pod of one core takes four of them: three fit, not four."""
    listed = make_two_tenants()
    listed.pods[0].spec.node_name = "n-2"
    scenario = make_scenario(listed, 0, {"a": [60.0], "b": [60.0]})
    attempts = find_attempts(simulate(scenario, draw_workload(scenario), "slots"))

    assert sorted(one[0][1] or 0.0 for one in attempts.values()) == [0.0] * 6 + [60.0] * 6
    assert {name[0] for name, one in attempts.items() if one[0][1] == 0.0} == {"a", "b"}
    assert sum(name[0] == "a" for name, one in attempts.items() if one[0][1] == 0.0) == 3
    assert attempts["a/a-0"][0][3] == "n-2"


def test_a_pod_that_runs_has_only_the_rest_before_it() -> None:
    status = {"startTime": "2026-01-01T00:00:00Z"}
    pods = [
        make_pod("runs", namespace="a", node="node", phase="Running", requests={"cpu": "4"}, status=status),
        make_pod("waits", namespace="a", requests={"cpu": "4"}),
    ]
    listed = make_snapshot(nodes=[make_node()], pods=pods, tenants=[make_tenant("a")])
    listed.time += 40
    found = find_attempts(run(listed, a=[100.0]))

    assert found["a/runs"] == [(0.0, 0.0, 60.0, "node")]
    assert found["a/waits"] == [(0.0, 60.0, 160.0, "node")]


def test_what_has_no_run_time_never_ends_and_that_is_said() -> None:
    listed = make_two_tenants()
    scenario = make_scenario(listed, 0, {"a": [60.0]})
    result = simulate(scenario, draw_workload(scenario), "best-fit-drfh")

    assert scenario.notes == ("6 of 12 pods have a run time, drawn from known ones; the others never end",)
    assert {row.tenant for row in result.tasks if row.end is not None} == {"a"}


def test_run_times_are_drawn_from_the_known_ones_by_the_seed() -> None:
    listed = make_two_tenants(count=4)
    lengths = {
        seed: [row.end for row in run(listed, seed=seed, a=[10.0, 20.0, 30.0], b=[40.0]).tasks] for seed in (1, 1, 2)
    }

    assert lengths[1] == [row.end for row in run(listed, seed=1, a=[10.0, 20.0, 30.0], b=[40.0]).tasks]
    assert lengths[1] != lengths[2]
    assert {end for ends in lengths.values() for end in ends} == {10 * SECOND, 20 * SECOND, 30 * SECOND, 40 * SECOND}


def test_pods_of_others_hold_their_room_for_ever() -> None:
    pods = [
        make_pod("system", namespace="kube-system", node="node", scheduler="default-scheduler", requests={"cpu": "3"}),
        *(make_pod(f"p{number}", namespace="a", requests={"cpu": "1"}) for number in range(3)),
        make_pod("gated", namespace="a", schedulingGates=[{"name": "g"}]),
    ]
    listed = make_snapshot(nodes=[make_node()], pods=pods, tenants=[make_tenant("a")])
    attempts = find_attempts(run(listed, a=[10.0]))

    assert sorted(one[0][1] or 0.0 for one in attempts.values()) == [0.0, 10.0, 20.0]


def test_pods_that_belong_to_a_node_neither_end_nor_move() -> None:
    """They name the scheduler too, as in a snapshot for kube-scheduler; still only web is a task."""
    agents = [make_node_pod(f"agent-{n}", f"n-{n}") for n in (1, 2)]
    web = make_pod("web", namespace="a", node="n-1", requests={"cpu": "1"})
    listed = make_snapshot(nodes=[make_node("n-1"), make_node("n-2")], pods=[*agents, web], tenants=[make_tenant("a")])
    scenario = make_scenario(listed, 0, {"a": [60.0]})

    assert [pod.waiting.name for entry in scenario.workload for pod in entry.pods or ()] == ["web"]
    assert scenario.start is not None
    assert {pod.metadata.name for pod in scenario.start.pods} == {"agent-1", "agent-2"}


@pytest.mark.parametrize("policy", ["ps-dsf", "fifo", "drf"])
def test_another_policy_keeps_the_other_settings(policy: str) -> None:
    listed = make_snapshot(
        nodes=[make_node("in", labels={"pool": "p"}), make_node("out")],
        pods=[make_pod(f"p{number}", requests={"cpu": "1"}) for number in range(8)],
        policy={"policy": "tsf", "nodeSelector": {"pool": "p"}},
    )
    scenario = replace(make_scenario(listed, 0, {}), policies=(policy,))
    result = simulate(scenario, draw_workload(scenario), policy)

    assert {row.server for row in result.tasks} == {"in", None}


def test_a_cluster_without_pods_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"^pods: must have at least one"):
        make_scenario(make_snapshot(nodes=[make_node()], pods=[]), 0, {})
