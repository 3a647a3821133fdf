from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from cluster.builders import make_node, make_pod
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.journal import CycleRecord, compute_fingerprint
from fairbind.cluster.loop.pacing import MAX_OUTSTANDING
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.scheduling import POLICIES
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.replay import compare_with_journal, describe_replay, replay
from fairbind.what_if.trial import Trial
from what_if.snapshots import make_snapshot, make_tenant, make_two_tenants


def record(listed: ListedObjects, limit: int = MAX_OUTSTANDING) -> list[CycleRecord]:
    """A journal as an operator writes it that decides so many at a time."""
    trial, decider = Trial(listed), Decider()
    trial.operator.fair_shares.follow()
    records: list[CycleRecord] = []
    is_complete = False
    while not is_complete:
        snapshot = trial.cache.build_snapshot()
        report = decider.decide(snapshot, trial.cache.settings, 0.0, RunCycle(limit, explains=True))
        bindings = tuple((bind.task.uid, bind.server) for bind in report.bindings)
        number = len(records) + 1
        records.append(
            CycleRecord(
                number=number,
                time=listed.time + number,
                seconds=0.01,
                policy=report.policy,
                limit=limit,
                explains=True,
                outstanding=0,
                has_more=False,
                world=compute_fingerprint(snapshot),
                bindings=bindings,
                complete=report.complete,
            )
        )
        trial.carry_out(report)
        is_complete = report.complete
    return records


def test_decisions_come_in_their_order_with_reasons() -> None:
    found = describe_replay(replay(make_two_tenants()))

    assert [one["tenant"] for one in found["decisions"]] == ["a", "b"] * 4
    assert {one["node"] for one in found["decisions"]} == {"n-1", "n-2"}
    assert [one["pod"] for one in found["decisions"][:3]] == ["a-0", "b-0", "a-1"]
    assert found["decisions"][2]["reason"] == (
        "a comes next: its weighted share is 0.125, the least with a pod that fits"
    )
    assert [(one["namespace"], one["pod"]) for one in found["waiting"]] == [
        ("a", "a-4"), ("a", "a-5"), ("b", "b-4"), ("b", "b-5"),
    ]  # fmt: skip
    assert all("2 Insufficient cpu" in one["reason"] for one in found["waiting"])
    assert found["decisions"][0].keys() == {"namespace", "pod", "tenant", "node", "reason"}
    assert found["waiting"][0].keys() == {"namespace", "pod", "tenant", "reason"}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_is_replayed(policy: str) -> None:
    found = describe_replay(replay(make_two_tenants(policy=policy)))

    assert (len(found["decisions"]), len(found["waiting"])) == (8, 4)
    assert all(one["reason"] for one in found["decisions"])


def test_more_than_a_cycle_decides_is_decided_all_the_same() -> None:
    count = MAX_OUTSTANDING + 20
    listed = make_snapshot(
        nodes=[make_node(allocatable={"cpu": str(count - 5), "memory": "1Gi", "pods": "1000"})],
        pods=[make_pod(f"p{number}", requests={"cpu": "1"}) for number in range(count)],
    )
    found = describe_replay(replay(listed))

    assert (len(found["decisions"]), len(found["waiting"])) == (count - 5, 5)


def test_gated_and_unsupported_pods_wait_with_their_reasons() -> None:
    pods = [
        make_pod("gated", schedulingGates=[{"name": "example.com/quota"}]),
        make_pod("claimed", resourceClaims=[{"name": "gpu"}]),
        make_pod("foreign", scheduler="other"),
        make_pod("foreign-gated", scheduler="other", schedulingGates=[{"name": "g"}]),
        make_pod("leaving", schedulingGates=[{"name": "g"}]),
    ]
    pods[-1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = describe_replay(replay(make_snapshot(nodes=[make_node()], pods=pods)))

    assert found["decisions"] == []
    assert {one["pod"]: one["reason"] for one in found["waiting"]}.keys() == {"gated", "claimed"}
    reasons = {one["pod"]: one["reason"] for one in found["waiting"]}
    assert reasons["gated"] == "pod has scheduling gates: example.com/quota"
    assert "does not honour yet" in reasons["claimed"]


def test_anti_affinity_of_pods_that_run_counts() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    running = make_pod("running", node="n", labels={"app": "x"}, affinity=affinity)
    nodes = [make_node(name, labels={"kubernetes.io/hostname": name}) for name in ("m", "n")]
    pods = [running, *(make_pod(f"p{number}", labels={"app": "x"}, requests={"cpu": "1"}) for number in range(2))]
    found = describe_replay(replay(make_snapshot(nodes=nodes, pods=pods)))

    assert {one["node"] for one in found["decisions"]} == {"m"}


@pytest.mark.parametrize("limit", [1, 3, MAX_OUTSTANDING])
def test_a_journal_of_the_same_decisions_is_equal(limit: int) -> None:
    listed = make_two_tenants()
    records = record(listed, limit)
    found = compare_with_journal(listed, records)

    assert found.is_equal
    assert (found.cycles, found.decisions, found.changed) == (len(records), 8, None)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_journal_of_every_policy_is_equal(policy: str) -> None:
    listed = make_two_tenants(policy=policy)
    found = compare_with_journal(listed, record(listed))

    assert (found.difference, found.changed, found.decisions) == (None, None, 8)


def test_the_first_other_decision_is_named() -> None:
    listed = make_two_tenants()
    records = record(listed, 3)
    bindings = list(records[1].bindings)
    bindings[1], bindings[2] = bindings[2], bindings[1]
    records[1] = replace(records[1], bindings=tuple(bindings))
    found = compare_with_journal(listed, records)

    assert not found.is_equal
    assert found.difference is not None
    assert found.difference.startswith("cycle 2: decision 2: uid-b-2 to n-")
    assert (found.cycles, found.decisions) == (1, 3)


def test_a_journal_of_another_policy_is_told() -> None:
    found = compare_with_journal(make_two_tenants(), record(make_two_tenants(policy="fifo")))

    assert found.difference == "cycle 1: policy fifo in the journal, best-fit-drfh in the replay"


def test_the_comparison_ends_where_the_cluster_changed() -> None:
    """A cycle that saw a pod more than the snapshot had is no difference: the pod came after it."""
    listed = make_two_tenants()
    records = record(listed, 3)
    records[2] = replace(records[2], world=replace(records[2].world, tasks=records[2].world.tasks + 1))
    found = compare_with_journal(listed, records)

    assert found.is_equal
    assert found.changed == "cycle 3: tasks of the world: 7 in the journal, 6 in the replay"
    assert (found.cycles, found.decisions) == (2, 6)


def test_the_comparison_ends_where_a_pod_came_and_another_one_went() -> None:
    """The counts are the same, so the pod itself says that the world is another one."""
    listed = make_two_tenants()
    records = record(listed, 3)
    bindings = (records[1].bindings[0], ("uid-new", "n-1"), *records[1].bindings[2:])
    records[1] = replace(records[1], bindings=bindings)
    found = compare_with_journal(listed, records)

    assert found.is_equal
    assert found.changed == "cycle 2: uid-new is in the journal, and not in the snapshot"
    assert (found.cycles, found.decisions) == (1, 3)


@pytest.mark.parametrize("cycle", [0, 1])
def test_the_comparison_ends_where_another_exact_answer_guided_the_decisions(cycle: int) -> None:
    """A journal has no exact answers. What they would have changed is no difference."""
    listed = make_two_tenants()
    records = record(listed, 3)
    bindings = tuple(reversed(records[cycle].bindings))
    world = replace(records[cycle].world, targets="0123456789ab")
    records[cycle] = replace(records[cycle], world=world, bindings=bindings)
    found = compare_with_journal(listed, records)

    assert found.is_equal
    assert found.changed is not None
    assert found.changed.startswith(
        f"cycle {cycle + 1}: the exact answer that guided the decisions is not in the journal"
    )
    assert (found.cycles, found.decisions) == (cycle, 3 * cycle)


def test_a_journal_that_never_saw_this_cluster_differs() -> None:
    listed = make_two_tenants()
    other = make_two_tenants(count=5)
    found = compare_with_journal(listed, record(other))

    assert found.difference == "cycle 1: tasks of the world: 10 in the journal, 12 in the replay"


def test_what_was_decided_before_the_snapshot_is_passed_over() -> None:
    """The operator had decided three; then the snapshot was taken."""
    before = make_two_tenants()
    records = record(before, 3)
    trial = Trial(before)
    listed = copy.deepcopy(before)
    nodes = dict(records[0].bindings)
    for pod in listed.pods:
        pod.spec.node_name = nodes.get(pod.metadata.uid)
    listed.time = before.time + 1.5
    found = compare_with_journal(listed, records)

    assert trial.binds == []
    assert found.is_equal
    assert (found.cycles, found.decisions) == (len(records) - 1, 5)


def test_a_tenant_of_more_weight_comes_more_often() -> None:
    """The tests above would pass if all tenants were equal."""
    listed = make_snapshot(
        nodes=[make_node(allocatable={"cpu": "6", "memory": "16Gi", "pods": "110"})],
        pods=[make_pod(f"{t}{n}", namespace=t, requests={"cpu": "1"}) for t in "ab" for n in range(6)],
        tenants=[make_tenant("a", weight=2), make_tenant("b")],
    )
    tenants = [one["tenant"] for one in describe_replay(replay(listed))["decisions"]]

    assert (tenants.count("a"), tenants.count("b")) == (4, 2)
