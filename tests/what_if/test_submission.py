from __future__ import annotations

import re
from typing import Any

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.cluster.objects.captured import LIMIT_RANGES, RunTime, format_time
from fairbind.cluster.objects.convert import convert_pod, parse_time
from fairbind.model import InvalidProblemError
from fairbind.scheduling import MANY_CLASSES
from fairbind.what_if.admission import UNASKED, UNKNOWN
from fairbind.what_if.answers import Submission, answer
from fairbind.what_if.changes import add_nodes, cordon, set_field
from fairbind.what_if.comparison import compute_state
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.remedies import find_change as search_change
from fairbind.what_if.trial import Trial
from what_if.snapshots import make_snapshot, make_tenant, make_two_tenants, submit_to
from what_if.test_comparison import make_job

EMPTY = make_snapshot(nodes=[make_node()], pods=[])


def submit(listed: ListedObjects, manifest: Json, **run_times: list[float]) -> Submission:
    found = answer(listed, listed, submit_to(listed, manifest), run_times).submission
    assert found is not None
    return found


def make_template(**requests: Any) -> Json:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


# --- manifests ---


def test_amounts_may_be_numbers() -> None:
    (pod,) = submit_to(EMPTY, {"kind": "Pod", **make_template(cpu=2, memory="1Gi")}).pods

    assert dict(convert_pod(pod).demand.real) == {"cpu": 2000, "memory": 2**30, "pods": 1}


def test_what_was_there_before_comes_first() -> None:
    """A submission is newer than every pod: the room goes to those who wait already."""
    listed = make_two_tenants(count=8)
    found = submit(listed, make_job("a", count=2))

    assert found.nodes == ()
    assert not found.starts_now


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ([], r"manifest: must be a manifest"),
        ({"kind": "ConfigMap"}, r"manifest: must have a pod template"),
        ({"kind": "DaemonSet", "spec": {"template": make_template()}}, r"kind: must not be DaemonSet"),
        ({"spec": {"replicas": -1, "template": make_template()}}, r"spec\.replicas: must be a whole number"),
        ({"spec": {"replicas": 0, "template": make_template()}}, r"manifest: must ask for 1 to 100000 pods, not 0"),
        ({"spec": {"replicas": "two", "template": make_template()}}, r"spec\.replicas: must be a whole number"),
        ({"spec": {"template": make_template(cpu="much")}}, r"spec\.template: .*requests\[cpu\].*much"),
        ({"spec": {"template": {"spec": {"containers": 7}}}}, r"spec\.template\.spec\.containers: expected"),
        (
            {"spec": {"template": {"spec": {"containers": [], "priority": "high"}}}},
            r"spec\.template\.spec\.priority: expected .*int",
        ),
        ({"metadata": {"name": 7}, **make_template()}, r"metadata\.name: must be text, not 7"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_named(manifest: Any, said: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"^{said}") as caught:
        submit_to(EMPTY, manifest)
    assert "\n" not in str(caught.value)


# --- what becomes of it ---


def test_a_job_that_fits_starts() -> None:
    found = submit(EMPTY, make_job(count=3)).describe()

    assert found == {
        "starts_now": True,
        "pods": 3,
        "starting": 3,
        "nodes": ["node"] * 3,
        "groups": [],
        "reason": None,
        "change": None,
        "wait_seconds": {"median": 0.0, "p10": 0.0, "p90": 0.0},
        "not_applied": [UNASKED, UNKNOWN[LIMIT_RANGES]],
    }


def test_a_job_that_fits_in_part_says_how_far() -> None:
    found = submit(EMPTY, make_job(count=6))

    assert (found.starts_now, len(found.nodes), found.pods) == (False, 4, 6)
    assert found.reason == "0/1 nodes are available: 1 Insufficient cpu."


def find_change(listed: ListedObjects, manifest: Json) -> Json:
    change: Json | None = submit(listed, manifest).describe()["change"]
    assert change is not None
    return change


def test_a_cordon_that_stands_in_the_way_is_named() -> None:
    nodes = [
        make_node("small"),
        make_node("big", allocatable={"cpu": "16", "pods": "9", "memory": "9Gi"}, unschedulable=True),
    ]
    listed = make_snapshot(nodes=nodes, pods=[])
    job = make_job(cpu="8")
    change = find_change(listed, job)

    assert change == {"text": "uncordon node big", "kind": "uncordon", "node": "big", "option": "--uncordon big"}
    assert submit(cordon(listed, "big", is_cordoned=False), job).starts_now


def test_nodes_are_as_few_and_as_small_as_will_do() -> None:
    sizes = {"small": "4", "middle": "8", "large": "32"}
    nodes = [
        make_node(name, allocatable={"cpu": cpu, "memory": f"{cpu}Gi", "pods": "110"}) for name, cpu in sizes.items()
    ]
    full = [make_pod(f"on-{name}", node=name, requests={"cpu": cpu}) for name, cpu in sizes.items()]
    listed = make_snapshot(nodes=nodes, pods=full)
    job = make_job("team", count=3, cpu="3")
    change = find_change(listed, job)

    assert (change["kind"], change["like"], change["count"]) == ("nodes", "small", 3)
    assert not submit(add_nodes(listed, "small", 2), job).starts_now
    assert submit(add_nodes(listed, "small", 3), job).starts_now
    assert find_change(listed, make_job("team", count=3, cpu="15"))["option"] == "--add-nodes like=large,count=2"


def test_nodes_must_do_for_the_older_pods_too() -> None:
    """One core is wanted, but twelve pods of the tenant wait longer, and two nodes of four cores take eight."""
    listed = make_two_tenants(count=12)
    listed.pods = [pod for pod in listed.pods if pod.metadata.namespace == "a"]
    job = make_job("a")
    change = find_change(listed, job)

    assert (change["kind"], change["count"]) == ("nodes", 2)
    assert not submit(add_nodes(listed, "n-1", 1), job).starts_now
    assert submit(add_nodes(listed, "n-1", 2), job).starts_now


def test_a_weight_that_brings_the_turn_is_found() -> None:
    """Room for eight, and b holds half of it with pods that wait too; a larger weight lets all six of a's pods in."""
    listed = make_two_tenants(count=4)
    listed.pods = [pod for pod in listed.pods if pod.metadata.namespace == "b" or pod.metadata.name == "a-0"]
    listed = add_waiting(listed, "b", 6)
    job = make_job("a", count=5)
    change = find_change(listed, job)

    assert change["kind"] == "weight"
    assert change["tenant"] == "a"
    assert submit(set_field(listed, "a", "weight", change["weight"]), job).starts_now
    assert not submit(set_field(listed, "a", "weight", str(int(change["weight"]) - 1)), job).starts_now


def test_the_weight_of_a_namespace_without_a_tenant_is_found_too() -> None:
    listed = make_two_tenants(count=4)
    listed.tenants = []
    listed.pods = [pod for pod in listed.pods if pod.metadata.namespace == "b" or pod.metadata.name == "a-0"]
    listed = add_waiting(listed, "b", 6)
    change = find_change(listed, make_job("a", count=5))

    assert change["option"] == f"--set tenant.ns/a.weight={change['weight']}"
    assert submit(set_field(listed, "ns/a", "weight", change["weight"]), make_job("a", count=5)).starts_now


def test_new_nodes_that_help_have_the_pods_that_belong_to_a_node() -> None:
    """Three of four cores of each are left beside the DaemonSet's pod: two pods of two cores need two nodes."""
    owner = {"kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    agent = make_pod("agent", node="node", requests={"cpu": "1"})
    agent["metadata"]["ownerReferences"] = [owner]
    full = make_pod("full", node="node", requests={"cpu": "3"})
    listed = make_snapshot(nodes=[make_node()], pods=[agent, full])

    assert find_change(listed, make_job(count=2, cpu="2"))["option"] == "--add-nodes like=node,count=2"


def add_waiting(listed: ListedObjects, namespace: str, count: int) -> ListedObjects:
    more = make_snapshot(
        pods=[make_pod(f"more-{n}", namespace=namespace, requests={"cpu": "1", "memory": "1Gi"}) for n in range(count)]
    )
    listed.pods = [*listed.pods, *more.pods]
    return listed


def test_a_toleration_or_a_selector_is_named() -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    tainted = make_snapshot(nodes=[make_node(taints=taints)], pods=[])
    change = find_change(tainted, make_job())

    assert change["text"] == "a toleration of the taint gpu=yes:NoSchedule"
    assert change["taint"] == taints[0]
    toleration = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    assert submit(tainted, make_job(tolerations=[toleration])).starts_now
    assert find_change(EMPTY, make_job(nodeSelector={"no": "where"}))["kind"] == "constraints"


def test_a_smaller_request_is_the_largest_that_fits() -> None:
    change = find_change(EMPTY, make_job(cpu="5"))

    assert (change["kind"], change["resource"], change["request"]) == ("requests", "cpu", 4.0)
    assert change["text"] == "4 of cpu a pod in place of 5"


def test_a_smaller_request_is_written_as_in_a_manifest() -> None:
    listed = make_snapshot(nodes=[make_node(allocatable={"cpu": "4", "memory": "128Gi", "pods": "9"})], pods=[])
    job = {"kind": "Pod", "metadata": {"name": "p", "namespace": "a"}}
    change = find_change(listed, {**job, **make_template(memory="200Gi")})

    assert (change["text"], change["request"]) == ("128Gi of memory a pod in place of 200Gi", 128.0 * 2**30)
    change = find_change(listed, {**job, **make_template(memory="130Gi")})
    assert change["text"] == "130457Mi of memory a pod in place of 130Gi"  # 98 %, in whole MiB


def test_what_no_single_change_helps_has_none() -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    listed = make_snapshot(nodes=[make_node(taints=taints)], pods=[])
    found = submit(listed, make_job(nodeSelector={"no": "where"}))

    assert (found.change, found.wait) == (None, None)


def test_a_search_leaves_no_trace() -> None:
    """Every kind of change is tried here, and afterwards the operator decides what it decided before."""
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    listed = make_two_tenants(count=8)
    odd = [make_node("odd", taints=taints), make_node("away", unschedulable=True), make_node("other")]
    listed.nodes = [*listed.nodes, *make_snapshot(nodes=odd).nodes]
    job = make_job("a", count=30, cpu="3", nodeSelector={"no": "where"})
    job["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    submitted = submit_to(listed, job)
    listed, pods = submitted.listed, submitted.pods
    trial = Trial(listed)
    before = compute_state(trial, listed)
    wait = next(pod.wait for pod in before.waits if pod.uid == pods[0].metadata.uid)
    assert wait is not None
    trial.undo()

    assert search_change(trial, listed, pods, wait, others_start=True) is None
    after = compute_state(trial, listed)
    assert after.describe() == before.describe()
    trial.cache.check_consistent()


def make_separated(others: int) -> ListedObjects:
    """Two nodes of one zone. On the left b keeps so many pods of a away, and they keep b away from the right."""
    nodes = [make_node(name, labels={"zone": "z", "side": name}) for name in ("left", "right")]
    running = [make_pod(f"b{n}", namespace="b", node="right", requests={"cpu": "1"}) for n in range(3)]
    running.append(make_pod("a", namespace="a", node="left", requests={"cpu": "1"}))
    waiting = [
        make_pod(
            f"a{n:03}",
            namespace="a",
            labels={"app": "web"},
            nodeSelector={"side": "left"},
            requests={"cpu": "1", "memory": f"{1000 + n}Mi"},
        )
        for n in range(others)
    ]
    return make_snapshot(nodes=nodes, pods=[*running, *waiting], tenants=[make_tenant("a"), make_tenant("b")])


@pytest.mark.parametrize("others", [MANY_CLASSES // 2, MANY_CLASSES + 1])
def test_what_a_try_decided_leaves_no_trace_however_many_kinds_wait(others: int) -> None:
    """A weight above 3 lets b come first. What b's pod closed to a's in one try is open in the next."""
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone", "namespaces": ["a"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    found = submit(make_separated(others), make_job("b", nodeSelector={"side": "right"}, affinity=affinity))

    assert found.change is not None
    assert (found.change.text, found.wait) == ("weight 4 of tenant b in place of 1", None)


def test_a_user_is_offered_a_weight_of_its_tenant() -> None:
    nodes = [make_node(name, labels={"zone": "z", "side": name}) for name in ("left", "right")]
    running = [make_pod(f"b{n}", namespace="b", node="right", requests={"cpu": "1"}) for n in range(3)]
    running.append(make_pod("a", namespace="a", node="left", requests={"cpu": "1"}))
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone", "namespaces": ["a"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    waiting = make_pod("w", namespace="a", labels={"app": "web"}, nodeSelector={"side": "left"}, requests={"cpu": "1"})
    tenants = [make_tenant("a"), make_tenant("b")]
    tenants[1]["spec"]["users"] = {"label": "user"}
    listed = make_snapshot(nodes=nodes, pods=[*running, waiting], tenants=tenants)
    found = submit(listed, make_job("b", nodeSelector={"side": "right"}, affinity=affinity))
    assert found.change is not None
    assert found.change.text == "weight 4 of tenant b in place of 1"


# --- the wait ---


def make_busy(*ages: int) -> ListedObjects:
    """A node whose four cores are held by pods of these ages in seconds."""
    now = parse_time("2026-01-01T01:00:00Z")
    pods = [
        make_pod(
            f"p{number}",
            namespace="a",
            node="node",
            requests={"cpu": "1"},
            phase="Running",
            status={"startTime": format_time(now - age)},
        )
        for number, age in enumerate(ages)
    ]
    listed = make_snapshot(nodes=[make_node()], pods=pods, tenants=[make_tenant("a"), make_tenant("b")])
    listed.time = now
    return listed


@pytest.mark.slow
def test_equal_run_times_give_the_exact_wait() -> None:
    """They run 600 s and the oldest is 400 s old: a core comes in 200 s, two in 300, all four in 600."""
    listed = make_busy(400, 300, 100, 0)
    listed.run_times = [RunTime("a", 600.0)] * 3

    assert submit(listed, make_job("b")).describe()["wait_seconds"] == {"median": 200.0, "p10": 200.0, "p90": 200.0}
    assert submit(listed, make_job("b", count=2)).describe()["wait_seconds"]["median"] == 300.0
    assert submit(listed, make_job("b", count=4)).describe()["wait_seconds"]["median"] == 600.0


def test_run_times_that_differ_have_a_spread() -> None:
    listed = make_busy(0, 0, 0, 0)
    listed.run_times = [RunTime("a", float(seconds)) for seconds in range(100, 1100, 100)]
    found = submit(listed, make_job("b", count=4)).wait

    assert found is not None
    assert 100 <= found.p10 < found.median < found.p90 <= 1000


def test_only_run_times_beyond_the_age_count() -> None:
    listed = make_busy(400, 400, 400, 400)
    listed.run_times = [RunTime("a", 100.0)] * 9 + [RunTime("a", 500.0)]
    found = submit(listed, make_job("b")).wait

    assert found is not None
    assert (found.p10, found.median, found.p90) == (100.0, 100.0, 100.0)


def test_where_nothing_is_known_there_is_no_estimate() -> None:
    assert submit(make_busy(0, 0, 0, 0), make_job("b")).wait is None


def test_the_admin_may_say_how_long_pods_run() -> None:
    listed = make_busy(0, 0, 0, 0)
    listed.run_times = [RunTime("a", 900.0)]
    found = answer(listed, listed, submit_to(listed, make_job("b")), {"a": [60.0]}).submission

    assert found is not None
    assert found.wait is not None
    assert (found.wait.median, found.known_run_times) == (60.0, {"a": 1})


def test_pods_that_wait_before_it_run_first() -> None:
    """Four pods of b are older: the first round of ends is theirs, with run times of their own."""
    listed = make_busy(0, 0, 0, 0)
    older = make_snapshot(pods=[make_pod(f"old{n}", namespace="b", requests={"cpu": "1"}) for n in range(4)])
    listed.pods = [*listed.pods, *older.pods]
    listed.run_times = [RunTime("a", 600.0), RunTime("b", 50.0)]
    found = submit(listed, make_job("b")).wait

    assert found is not None
    assert found.median == 650.0


def test_a_job_that_may_run_nowhere_never_starts() -> None:
    listed = make_busy(0)
    listed.run_times = [RunTime("a", 60.0)]

    assert submit(listed, make_job("b", cpu="64")).wait is None


def test_the_reason_is_that_of_the_pods_condition() -> None:
    reason = submit(EMPTY, make_job(cpu="64")).reason

    assert reason is not None
    assert re.fullmatch(r"0/1 nodes are available: 1 Insufficient cpu\. no node is large enough, [^.]+\.", reason)
