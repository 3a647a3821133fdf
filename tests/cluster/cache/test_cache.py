from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, read_node, read_pod
from fairbind.cluster.cache.listeners import PodListeners
from fairbind.cluster.classes.window import MAX_TENANT_PLACEMENTS
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.cluster.objects.requests import DEFAULT_SHARE, make_demand
from fairbind.model import MAX_AMOUNT, Fit, InvariantError, PolicySettings, Targets
from fairbind.scheduling import run_cycle
from rejections import UNREADABLE

MEMORY = DEFAULT_SHARE["memory"]


@pytest.fixture
def cluster() -> Cluster:
    filled = Cluster()
    filled.add_nodes(make_node("a"), make_node("b"))
    return filled


def test_a_waiting_pod_is_a_task_with_its_turn(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("p", priority=7, created="2026-01-01T00:00:09Z", requests={"cpu": "1"}))
    task_class = cluster.get_class("uid-p")
    (task,) = task_class.tasks
    assert (task.uid, task.name, task.priority, task.queue_time) == ("uid-p", "team/p", 7, 1767225609.0)
    assert task_class.demand_r == (1000, 0, 0, 1)
    assert task_class.share_demand_r == (1000, MEMORY, 0, 1)


def test_tasks_of_a_class_are_in_their_turn(cluster: Cluster) -> None:
    cluster.add_pods(
        make_pod("late", created="2026-01-01T00:00:02Z"),
        make_pod("b", created="2026-01-01T00:00:01Z"),
        make_pod("a", created="2026-01-01T00:00:01Z"),
        make_pod("urgent", created="2026-01-01T00:00:09Z", priority=1),
    )
    names = [task.name for task in cluster.get_class("uid-a").tasks]
    assert names == ["team/urgent", "team/a", "team/b", "team/late"]


@pytest.mark.parametrize(
    "pod",
    [
        make_pod("x", scheduler="default-scheduler"),
        make_pod("x", node="a"),
        make_pod("x", phase="Succeeded"),
        make_pod("x", phase="Failed"),
        make_pod("x", schedulingGates=[{"name": "wait"}]),
        {**make_pod("x"), "metadata": {**make_pod("x")["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_pods_that_are_not_ours_to_place_do_not_wait(cluster: Cluster, pod: Json) -> None:
    cluster.add_pods(pod)
    assert cluster.find_class("uid-x") is None


def test_a_bound_pod_holds_its_demand_until_it_finishes(cluster: Cluster) -> None:
    pod = make_pod("p", node="a", scheduler="another", requests={"cpu": "1"})
    cluster.add_pods(pod)
    assert cluster.get_allocated("ns/team") == {"cpu": 1000, "memory": MEMORY, "pods": 1}
    assert cluster.get_free("a") == {"cpu": 3000, "memory": 8 * 2**30, "ephemeral-storage": 0, "pods": 109}
    cluster.change_pod(pod, lambda p: p["status"].update(phase="Succeeded"))
    assert cluster.get_allocated("ns/team") == {}
    assert cluster.get_free("a")["cpu"] == 4000
    assert cluster.cache.find_pod("uid-p") is None


def test_a_terminating_pod_holds_until_it_is_gone(cluster: Cluster) -> None:
    pod = make_pod("p", node="a", requests={"cpu": "1"})
    cluster.add_pods(pod)
    pod = cluster.change_pod(pod, lambda p: p["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert cluster.get_free("a")["cpu"] == 3000
    cluster.delete_pod(pod)
    assert cluster.get_free("a")["cpu"] == 4000


def test_a_resize_changes_what_a_pod_holds(cluster: Cluster) -> None:
    pod = make_pod("p", node="a", requests={"cpu": "1"}, phase="Running")
    cluster.add_pods(pod)
    status = [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]
    cluster.change_pod(pod, lambda p: p["status"].update(containerStatuses=status))
    assert cluster.get_free("a")["cpu"] == 1000
    cluster.cache.check_consistent()


def test_an_assumed_pod_holds_its_room_at_once(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("p", requests={"cpu": "1"}))
    changes = cluster.changes
    assert cluster.cache.assume("uid-p", "a")
    assert cluster.find_class("uid-p") is None
    assert cluster.get_free("a")["cpu"] == 3000
    assert cluster.get_allocated("ns/team")["cpu"] == 1000
    assert cluster.changes == changes
    cluster.cache.check_consistent()


def test_an_assumption_that_is_confirmed_changes_nothing_and_wakes_nobody(cluster: Cluster) -> None:
    pod = make_pod("p", requests={"cpu": "1"})
    cluster.add_pods(pod)
    cluster.cache.assume("uid-p", "a")
    snapshot, changes = cluster.cache.build_snapshot(), cluster.changes
    cluster.change_pod(pod, lambda p: p["spec"].update(nodeName="a"))
    assert cluster.cache.build_snapshot() is snapshot
    assert cluster.changes == changes
    record = cluster.cache.find_pod("uid-p")
    assert record is not None
    assert (record.node, record.assumed) == ("a", None)


def test_a_forgotten_assumption_gives_its_room_back(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("p", requests={"cpu": "1"}))
    cluster.cache.assume("uid-p", "a")
    changes = cluster.changes
    cluster.cache.forget("uid-p")
    assert cluster.changes == changes + 1
    assert cluster.get_free("a")["cpu"] == 4000
    assert cluster.get_class("uid-p").tasks[0].uid == "uid-p"
    cluster.cache.check_consistent()


def test_a_postponed_pod_waits_until_it_is_resumed(cluster: Cluster) -> None:
    pod = make_pod("p", requests={"cpu": "1"})
    cluster.add_pods(pod)
    cluster.cache.assume("uid-p", "a")
    cluster.cache.forget("uid-p", postponed=True)
    assert cluster.find_class("uid-p") is None
    assert cluster.get_free("a")["cpu"] == 4000
    assert not cluster.cache.assume("uid-p", "a")
    assert cluster.cache.queries.build_overview().tenants[0].pending == {"queued": 1}
    cluster.change_pod(pod)
    assert cluster.find_class("uid-p") is None
    cluster.cache.resume("uid-p")
    assert cluster.find_class("uid-p") is not None
    cluster.cache.check_consistent()


def test_what_the_api_says_wins_over_an_assumption(cluster: Cluster) -> None:
    pod = make_pod("p", requests={"cpu": "1"})
    cluster.add_pods(pod)
    cluster.cache.assume("uid-p", "a")
    cluster.change_pod(pod, lambda p: p["spec"].update(nodeName="b"))
    assert (cluster.get_free("a")["cpu"], cluster.get_free("b")["cpu"]) == (4000, 3000)
    cluster.cache.forget("uid-p")
    assert cluster.get_free("b")["cpu"] == 3000
    cluster.cache.check_consistent()


def test_an_update_that_does_not_say_where_the_pod_is_keeps_the_assumption(cluster: Cluster) -> None:
    pod = make_pod("p", requests={"cpu": "1"})
    cluster.add_pods(pod)
    cluster.cache.assume("uid-p", "a")
    condition = {"type": "PodScheduled", "status": "False", "message": "0/2"}
    cluster.change_pod(pod, lambda p: p["status"].update(conditions=[condition]))
    assert cluster.find_class("uid-p") is None
    cluster.cache.pods.replace([read_pod(pod)])
    assert cluster.find_class("uid-p") is None
    assert cluster.get_free("a")["cpu"] == 3000


def test_an_assumed_pod_that_is_being_deleted_or_gone_holds_nothing(cluster: Cluster) -> None:
    pods = [make_pod("p", requests={"cpu": "1"}), make_pod("q", requests={"cpu": "1"})]
    cluster.add_pods(*pods)
    for uid in ("uid-p", "uid-q"):
        assert cluster.cache.assume(uid, "a")
    cluster.delete_pod(pods[0])
    cluster.change_pod(pods[1], lambda p: p["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert cluster.get_free("a")["cpu"] == 4000
    cluster.cache.forget("uid-p")
    cluster.cache.forget("uid-q")
    assert cluster.find_class("uid-q") is None
    cluster.cache.check_consistent()


def test_only_pods_that_wait_can_be_assumed(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("bound", node="b"), make_pod("gated", schedulingGates=[{"name": "x"}]), make_pod("p"))
    assert not cluster.cache.assume("uid-bound", "a")
    assert not cluster.cache.assume("uid-gated", "a")
    assert not cluster.cache.assume("uid-unknown", "a")
    assert cluster.cache.assume("uid-p", "a")
    assert not cluster.cache.assume("uid-p", "a")


def test_old_versions_repetitions_and_unknown_deletions_change_nothing(cluster: Cluster) -> None:
    old = make_pod("p", requests={"cpu": "1"})
    cluster.add_pods(old)
    new = cluster.change_pod(old, lambda p: p["spec"].update(nodeName="a"))
    changes = cluster.changes
    cluster.add_pods(old, new, new)
    cluster.cache.pods.delete(read_pod(old))
    cluster.delete_pod(make_pod("never-seen"))
    assert cluster.get_free("a")["cpu"] == 3000
    assert cluster.changes == changes
    cluster.cache.check_consistent()


def test_a_late_repetition_does_not_bring_a_deleted_pod_back(cluster: Cluster) -> None:
    pod = make_pod("p", node="a", requests={"cpu": "1"})
    cluster.add_pods(pod)
    cluster.delete_pod(pod)
    cluster.add_pods(pod)
    assert cluster.cache.find_pod("uid-p") is None


def test_a_new_list_finds_what_was_deleted_added_and_changed(cluster: Cluster) -> None:
    stays, goes, moves = make_pod("stays"), make_pod("goes", node="a"), make_pod("moves")
    cluster.add_pods(stays, goes, moves)
    moved: Json = {**moves, "spec": {**moves["spec"], "nodeName": "b"}}
    cluster.cache.pods.replace([read_pod(p) for p in (stays, moved, make_pod("new"))])
    assert cluster.cache.find_pod("uid-goes") is None
    assert cluster.find_class("uid-new") is not None
    assert cluster.get_free("b")["pods"] == 109
    assert cluster.get_free("a")["pods"] == 110
    cluster.cache.check_consistent()


def test_a_list_wins_even_when_the_cluster_went_back_in_time(cluster: Cluster) -> None:
    new = make_pod("p", node="a")
    new["metadata"]["resourceVersion"] = "1000000000"
    cluster.add_pods(new)
    cluster.cache.pods.replace([], "5")
    old = make_pod("q", node="a")
    old["metadata"]["resourceVersion"] = "6"
    cluster.add_pods(old)
    assert cluster.cache.find_pod("uid-p") is None
    assert cluster.cache.find_pod("uid-q") is not None


def test_a_pod_on_a_node_that_is_not_there_counts_when_the_node_comes(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("p", node="later", requests={"cpu": "1"}))
    assert cluster.get_allocated("ns/team") == {}
    cluster.add_nodes(make_node("later"))
    assert cluster.get_allocated("ns/team")["cpu"] == 1000
    assert cluster.get_free("later")["cpu"] == 3000
    cluster.cache.check_consistent()


def test_a_node_that_goes_and_comes_back_has_its_pods_still(cluster: Cluster) -> None:
    node = make_node("c")
    cluster.add_nodes(node)
    cluster.add_pods(make_pod("p", node="c", requests={"cpu": "1"}))
    cluster.cache.nodes.replace([read_node(make_node("a")), read_node(make_node("b"))])
    assert cluster.cache.build_snapshot().servers.names == ("a", "b")
    assert cluster.get_allocated("ns/team") == {}
    cluster.add_nodes(make_node("c"))
    assert cluster.get_allocated("ns/team")["cpu"] == 1000
    assert cluster.get_free("c")["cpu"] == 3000
    cluster.cache.check_consistent()


def test_what_shares_are_measured_by_follows_nodes_and_what_belongs_to_no_tenant() -> None:
    cluster = Cluster()
    daemon = make_pod(
        "d", namespace="kube-system", scheduler="default-scheduler", node="a", requests={"cpu": "1"}, phase="Running"
    )

    def find_cpu() -> int:
        scale = cluster.cache.skip_snapshot()
        return scale.total_r[scale.resources.index("cpu")]

    cluster.add_nodes(make_node("a"))
    assert find_cpu() == 4000
    cluster.add_pods(daemon)
    assert find_cpu() == 3000
    cluster.add_nodes(make_node("b"))
    assert find_cpu() == 7000
    cluster.delete_pod(daemon)
    assert find_cpu() == 8000
    cluster.add_nodes(make_node("b", unschedulable=True, ready=False))
    assert find_cpu() == cluster.cache.build_snapshot().total_r[0]


@pytest.mark.parametrize("allocatable", [{}, {"cpu": "-4", "memory": "lots", "pods": "-1"}])
def test_a_node_that_offers_nothing_or_nonsense_offers_nothing(allocatable: dict[str, str]) -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a", allocatable=allocatable), make_node("b"))
    assert cluster.get_capacity("a") == {"cpu": 0, "memory": 0, "ephemeral-storage": 0, "pods": 0}
    assert cluster.cache.build_snapshot().total_r == (4000, 8 * 2**30, 0, 110)


def test_a_node_without_amounts_at_all_offers_nothing() -> None:
    node = make_node("a")
    del node["status"]
    cluster = Cluster()
    cluster.add_nodes(node)
    assert not cluster.cache.build_snapshot().servers.usable_k.any()


def test_totals_are_exact_beyond_64_bits() -> None:
    cluster = Cluster()
    cluster.add_nodes(*(make_node(f"n{i}", allocatable={"memory": "1Ei", "pods": "1"}) for i in range(2000)))
    assert cluster.cache.build_snapshot().total_r[1] == 2000 * MAX_AMOUNT


def test_a_node_whose_pods_ask_for_more_than_64_bits_is_overcommitted_and_nothing_breaks(cluster: Cluster) -> None:
    cluster.add_pods(*(make_pod(f"p{i}", node="a", requests={"memory": "1Ei"}) for i in range(1500)))
    assert cluster.get_free("a")["memory"] == -MAX_AMOUNT
    assert cluster.get_allocated("ns/team")["memory"] == 1500 * MAX_AMOUNT
    assert cluster.cache.queries.build_overview().tenants[0].dominant_share == 1.0


def test_of_nodes_that_are_not_usable_what_is_held_there_counts_in_shares_and_totals(cluster: Cluster) -> None:
    """A node that is cordoned under a running pod changes no share of the others, and its pods are not free."""
    cluster.add_nodes(make_node("c", unschedulable=True), make_node("d", ready=False))
    assert find_totals(cluster) == (8000, 0)
    pod = make_pod("p", node="c", requests={"cpu": "1"})
    cluster.add_pods(pod)
    assert find_totals(cluster) == (9000, 1000)
    cluster.add_pods(make_pod("more", node="c", requests={"cpu": "100"}))
    assert find_totals(cluster) == (12_000, 101_000)  # and never more than the node has
    cluster.delete_pod(pod)
    cluster.add_nodes(make_node("c"))
    assert find_totals(cluster) == (12_000, 100_000)
    cluster.cache.check_consistent()


@pytest.mark.parametrize("away", ["it is not there", "it is outside"])
def test_what_is_held_where_fairbind_does_not_place_counts_nowhere(cluster: Cluster, away: str) -> None:
    """Shares, totals, Jain's index and the classes are about the same nodes."""
    cluster.cache.set_policy(PolicySettings(server_selector=(("pool", "shared"),)))
    cluster.add_nodes(*(make_node(name, labels={"pool": "shared"}) for name in "ab"))
    if away == "it is outside":
        cluster.add_nodes(make_node("far", labels={"pool": "other"}))
    for team in ("x", "y"):
        cluster.add_pods(make_pod(f"{team}-near", namespace=team, node="a", requests={"cpu": "1"}))
        cluster.add_pods(make_pod(f"{team}-waits", namespace=team, requests={"cpu": "3"}))
    cluster.add_pods(*(make_pod(f"g{i}", namespace="x", node="far", requests={"cpu": "3"}) for i in range(5)))
    overview = cluster.cache.queries.build_overview()
    assert (overview.capacity["cpu"], overview.allocated["cpu"], overview.jain_index) == (8.0, 2.0, 1.0)
    assert sum(each.allocated.get("cpu", 0.0) for each in overview.classes) == 2.0
    assert {tenant.name: (tenant.dominant_share, tenant.running) for tenant in overview.tenants} == {
        "ns/x": (1 / 8, 6),
        "ns/y": (1 / 8, 1),
    }
    cluster.cache.check_consistent()
    cluster.add_nodes(make_node("far", labels={"pool": "shared"}))
    assert cluster.get_allocated("ns/x")["cpu"] == 16_000
    cluster.cache.set_policy(PolicySettings())
    assert cluster.get_allocated("ns/x")["cpu"] == 16_000
    cluster.cache.check_consistent()


def test_time_behind_the_gates_of_others_is_no_time_of_ours() -> None:
    """A pod's scheduling begins when the last gate of another was seen gone; time behind our own gate is our time."""
    now = 1_767_225_600.0
    cluster = Cluster(wall_clock=lambda: now)
    other, own = {"name": "example.com/quota"}, {"name": FAIRBIND_GATE}
    pod = make_pod("p", schedulingGates=[other, own])
    cluster.add_pods(pod, make_pod("q"))

    def find_ready(uid: str) -> float:
        record = cluster.cache.find_pod(uid)
        assert record is not None
        return record.ready_since - 1_767_225_600.0

    now += 8.0
    pod = cluster.change_pod(pod, lambda pod: pod["spec"].update(schedulingGates=[own]))
    now += 8.0
    pod = cluster.change_pod(pod, lambda pod: pod["spec"].update(schedulingGates=[]))
    assert (find_ready("uid-p"), find_ready("uid-q")) == (8.0, 0.0)


def find_totals(cluster: Cluster) -> tuple[int, int]:
    """The cluster's CPUs that count, and those that the team holds."""
    total = cluster.cache.build_snapshot().total_r[0]
    assert cluster.cache.skip_snapshot().total_r[0] == total
    return total, cluster.get_allocated("ns/team").get("cpu", 0)


def test_totals_hold_nodes_that_are_ready_and_that_no_waiting_pod_may_use(cluster: Cluster) -> None:
    """As docs/concepts.md says: capacity that no tenant can use makes shares of totals smaller."""
    before = cluster.cache.build_snapshot().total_r[0]
    cluster.add_nodes(make_node("database", taints=[{"key": "database", "value": "", "effect": "NoSchedule"}]))
    cluster.add_pods(make_pod("p"))
    snapshot = cluster.cache.build_snapshot()
    [waiting] = snapshot.task_classes

    assert not waiting.placement.eligible_k[snapshot.servers.names.index("database")]
    assert snapshot.total_r[0] == before + 4000


def test_resources_of_nodes_become_axes_and_go_with_the_last_of_them(cluster: Cluster) -> None:
    gpu = {"cpu": "1", "pods": "10", "nvidia.com/gpu": "2", "hugepages-2Mi": "0"}
    cluster.add_nodes(make_node("g", allocatable=gpu))
    cluster.add_pods(make_pod("p", node="g", requests={"nvidia.com/gpu": "1"}))
    snapshot = cluster.cache.build_snapshot()
    assert snapshot.resources == ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-2Mi", "nvidia.com/gpu")
    assert snapshot.counts_r == (True, True, True, False, True, True)
    assert cluster.get_free("g")["nvidia.com/gpu"] == 1
    cluster.cache.nodes.replace([read_node(make_node("a"))])
    assert cluster.cache.build_snapshot().resources == ("cpu", "memory", "ephemeral-storage", "pods")
    cluster.cache.check_consistent()


def test_the_policy_chooses_what_counts_and_unknown_names_are_ignored(cluster: Cluster) -> None:
    cluster.cache.set_policy(PolicySettings(fairness_resources=("memory", "moon")))
    assert cluster.cache.build_snapshot().counts_r == (False, True, False, False)
    assert cluster.cache.queries.unknown_fairness_resources == ("moon",)
    cluster.cache.set_policy(PolicySettings(fairness_resources=("moon",)))
    assert cluster.cache.build_snapshot().counts_r == (True, True, True, False)


def test_storage_counts_for_shares_and_not_for_fit_unless_the_policy_chooses_it(cluster: Cluster) -> None:
    storage = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    cluster.add_nodes(make_node("a", allocatable=storage))
    cluster.add_pods(make_pod("p", node="a", requests={"ephemeral-storage": "50Gi"}))
    (tenant,) = cluster.cache.queries.build_overview().tenants
    assert (tenant.dominant_resource, tenant.dominant_share) == ("ephemeral-storage", 0.5)
    assert cluster.cache.build_snapshot().fits_r == (True, True, False, False)
    cluster.cache.set_policy(PolicySettings(fairness_resources=("ephemeral-storage",)))
    assert cluster.cache.build_snapshot().counts_r == (False, False, True, False)
    assert cluster.cache.build_snapshot().fits_r is None


def test_the_fit_of_the_policy_is_that_of_the_snapshot(cluster: Cluster) -> None:
    cluster.add_nodes(make_node("a"))
    assert cluster.cache.build_snapshot().fit is Fit.DOMINANT_RESOURCE
    cluster.cache.set_policy(PolicySettings(fit=Fit.COSINE))
    assert cluster.cache.build_snapshot().fit is Fit.COSINE


def test_targets_of_the_last_policys_mechanism_do_not_count_for_the_next(cluster: Cluster) -> None:
    targets = Targets("ceei", ("cpu",), {"team": (0.5,)})
    cluster.cache.set_policy(PolicySettings("ceei"))
    cluster.cache.set_targets(targets)
    assert cluster.cache.build_snapshot().targets is targets
    cluster.cache.set_policy(PolicySettings("drbf"))
    assert cluster.cache.build_snapshot().targets is None
    cluster.cache.set_policy(PolicySettings("ceei"))
    assert cluster.cache.build_snapshot().targets is targets


def test_no_task_is_there_twice_when_a_tenant_comes_to_have_very_many_queues_or_to_have_fewer(cluster: Cluster) -> None:
    count = MAX_TENANT_PLACEMENTS + 2
    cluster.add_nodes(*(make_node(f"n{n}", labels={"x": str(n)}) for n in range(count)))
    pods = [make_pod(f"p{n}", nodeSelector={"x": str(n)}) for n in range(count)]
    for n, pod in enumerate(pods, 1):
        cluster.add_pods(pod)
        if n >= MAX_TENANT_PLACEMENTS:
            assert list_tasks(cluster) == sorted(f"uid-p{i}" for i in range(n))
    for n in reversed(range(MAX_TENANT_PLACEMENTS - 2, count)):
        cluster.delete_pod(pods[n])
        assert list_tasks(cluster) == sorted(f"uid-p{i}" for i in range(n))
    cluster.cache.check_consistent()


def list_tasks(cluster: Cluster) -> list[str]:
    return sorted(task.uid for task_class in cluster.cache.build_snapshot().task_classes for task in task_class.tasks)


def test_nothing_is_remade_that_did_not_change(cluster: Cluster) -> None:
    cluster.add_pods(*(make_pod(f"p{i}", requests={"cpu": str(i)}) for i in range(1, 3)))
    before = cluster.cache.build_snapshot()
    assert cluster.cache.build_snapshot() is before
    cluster.cache.assume("uid-p1", "a")
    after = cluster.cache.build_snapshot()
    assert after.task_classes[0] is before.task_classes[1]
    assert after.servers.capacity_kr is before.servers.capacity_kr
    assert after.servers.class_k is before.servers.class_k
    assert before.servers.free_kr[0, 0] == 4000
    assert after.servers.free_kr[0, 0] == 3000
    assert after.task_classes[0].placement is before.task_classes[0].placement


def test_snapshots_are_read_only(cluster: Cluster) -> None:
    snapshot = cluster.cache.build_snapshot()
    with pytest.raises(ValueError, match="read-only"):
        snapshot.servers.free_kr[0, 0] = 1


def test_servers_are_classed_by_capacity_and_by_who_may_use_them() -> None:
    cluster = Cluster()
    gpu = {"key": "gpu", "effect": "NoSchedule"}
    cluster.add_nodes(
        make_node("a"),
        make_node("b", allocatable={"cpu": "4.01", "memory": "8Gi", "pods": "110"}),
        make_node("c", taints=[gpu]),
        make_node("d", allocatable={"cpu": "5", "memory": "8Gi", "pods": "110"}),
    )

    def find_classes() -> list[str]:
        servers = cluster.cache.build_snapshot().servers
        return [servers.class_names[index] for index in servers.class_k.tolist()]

    assert find_classes() == ["a", "a", "a", "d"]
    pod = make_pod("p")
    cluster.add_pods(pod)
    assert find_classes() == ["a", "a", "c", "d"]
    cluster.cache.set_policy(PolicySettings(server_class_tolerance=0.0))
    assert find_classes() == ["a", "b", "c", "d"]
    cluster.delete_pod(pod)
    assert find_classes() == ["a", "b", "a", "d"]
    cluster.cache.check_consistent()


def test_a_pod_that_cannot_be_read_waits_with_its_reason_and_stops_nobody(cluster: Cluster) -> None:
    broken = make_pod("broken", requests={"cpu": "1"}, tolerations="all")
    cluster.add_pods(broken, make_pod("whole"))
    assert cluster.get_class("uid-broken").blocked == UNREADABLE
    record = cluster.cache.find_pod("uid-broken")
    assert record is not None
    assert record.unsupported is not None
    assert "tolerations" in record.unsupported
    assert cluster.get_class("uid-whole").blocked is None
    cluster.change_pod(broken, lambda p: p["spec"].update(nodeName="a"))
    assert cluster.get_free("a")["cpu"] == 3000


def test_a_whole_cycle_fits_into_the_mirror(cluster: Cluster) -> None:
    cluster.add_pods(*(make_pod(f"p{i}", requests={"cpu": "1"}) for i in range(10)))
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    assert len(report.bindings) == 8
    for bind in report.bindings:
        assert cluster.cache.assume(bind.task.uid, bind.server)
    cluster.cache.note_waits(report.waits)
    assert cluster.get_free("a")["cpu"] == cluster.get_free("b")["cpu"] == 0
    (tenant,) = cluster.cache.queries.build_overview().tenants
    assert (tenant.running, tenant.pending, tenant.dominant_share) == (8, {"insufficient": 2}, 1.0)
    cluster.cache.check_consistent()


def test_a_book_that_is_wrong_is_found(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("p", node="a", requests={"cpu": "1"}))
    cluster.cache.state.servers.states["a"].hold(make_demand({"cpu": 1}), system=False)
    cluster.cache._snapshot = None
    with pytest.raises(InvariantError, match="free_kr are"):
        cluster.cache.check_consistent()


def overview_of(cluster: Cluster, tenant: str) -> Any:
    return next(t for t in cluster.cache.queries.build_overview().tenants if t.name == tenant)


def test_the_overview_counts_in_units_that_people_read(cluster: Cluster) -> None:
    cluster.add_pods(make_pod("p", node="a", requests={"cpu": "1500m", "memory": "1Gi"}), make_pod("q", node="gone"))
    overview = cluster.cache.queries.build_overview()
    assert overview.capacity == {"cpu": 8.0, "memory": 16 * 2.0**30, "ephemeral-storage": 0.0, "pods": 220.0}
    assert overview.allocated == {"cpu": 1.5, "memory": 2.0**30, "ephemeral-storage": 0.0, "pods": 1.0}
    tenant = overview_of(cluster, "ns/team")
    assert tenant.allocated == {"cpu": 1.5, "memory": 2.0**30, "pods": 1.0}
    assert (tenant.running, tenant.pending, tenant.backlogged) == (2, {}, False)
    assert tenant.dominant_resource == "cpu"
    assert tenant.dominant_share == pytest.approx(1500 / 8000)
    assert tenant.virtual_dominant_shares == {"a": pytest.approx(1500 / 8000)}
    assert overview.server_classes == 1


def test_the_overview_tells_why_pods_wait(cluster: Cluster) -> None:
    cluster.add_pods(
        *(make_pod(f"running-{node}", node=node, requests={"cpu": "1"}) for node in "ab"),
        make_pod("large", requests={"cpu": "4"}),
        make_pod("too-large", requests={"cpu": "64"}),
        make_pod("nowhere", nodeSelector={"no": "such"}),
        make_pod("claims", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
        make_pod("gated", schedulingGates=[{"name": "g"}]),
        make_pod("missing", requests={"moon": "1"}),
    )
    assert overview_of(cluster, "ns/team").pending == {"queued": 2, "ineligible": 3, "gated": 1}
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    cluster.cache.note_waits(report.waits)
    tenant = overview_of(cluster, "ns/team")
    assert tenant.pending == {"insufficient": 1, "ineligible": 4, "gated": 1}
    assert tenant.backlogged
    cluster.cache.note_waits(())
    assert overview_of(cluster, "ns/team").pending == {"queued": 2, "ineligible": 3, "gated": 1}


def test_only_tenants_with_pods_that_may_go_somewhere_are_backlogged(cluster: Cluster) -> None:
    cluster.add_pods(
        make_pod("nowhere", namespace="x", nodeSelector={"no": "such"}),
        make_pod("claims", namespace="y", volumes=[{"name": "v", "ephemeral": {}}]),
        make_pod("gated", namespace="z", schedulingGates=[{"name": "g"}]),
        make_pod("large", namespace="w", requests={"cpu": "4"}),
        make_pod("too-large", namespace="v", requests={"cpu": "64"}),
    )
    backlogged = {t.name for t in cluster.cache.queries.build_overview().tenants if t.backlogged}
    assert backlogged == {"ns/w"}
    assert cluster.cache.queries.build_overview().jain_index == 1.0


def test_a_pod_that_its_kubelet_refused_is_told_once_and_only_if_it_is_ours() -> None:
    told: list[str] = []
    cluster = Cluster(listeners=PodListeners(rejection=told.append))
    cluster.add_nodes(make_node("n1"))
    refused = {"phase": "Failed", "reason": "OutOfcpu"}
    ours, foreign = make_pod("ours", node="n1"), make_pod("foreign", node="n1", scheduler="default-scheduler")
    cluster.add_pods(ours, foreign, make_pod("from before", node="n1", status=refused))
    assert told == []
    for pod in (ours, foreign):
        changed = cluster.change_pod(pod, lambda pod: pod["status"].update(refused))
        cluster.change_pod(changed)
    assert told == ["resources"]
