from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.model import InvalidProblemError
from fairbind.scheduling import POLICIES
from fairbind.what_if.answers import answer
from fairbind.what_if.changes import add_nodes, cordon, remove_node, set_field, set_policy
from fairbind.what_if.comparison import State, compute_state
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot
from fairbind.what_if.trial import Trial
from what_if.snapshots import make_snapshot, make_tenant, make_two_tenants, submit_to


def look(listed: ListedObjects) -> State:
    return compute_state(Trial(listed), listed)


def make_job(namespace: str = "a", *, count: int = 1, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    template = {"spec": {"containers": [container], **spec}}
    meta = {"name": "job", "namespace": namespace}
    return {"kind": "Job", "metadata": meta, "spec": {"parallelism": count, "template": template}}


def count_starts(state: State) -> dict[str, int]:
    tenants = [bind.tenant for bind in state.starts]
    return {tenant: tenants.count(tenant) for tenant in sorted(set(tenants))}


def test_the_state_is_described_as_documented() -> None:
    found = look(make_two_tenants()).describe()

    assert found.keys() == {"starts", "waits", "tenants"}
    assert found["starts"][0] == {"namespace": "a", "pod": "a-0", "tenant": "a", "node": found["starts"][0]["node"]}
    assert found["waits"][0].keys() == {"namespace", "pod", "tenant", "reason"}
    assert found["tenants"]["a"] == {
        "weight": 1.0,
        "dominant_share": 0.5,
        "fair_share": pytest.approx(0.5),
        "running": 0,
        "pending": 6,
        "could_run_more": 0,
    }


def test_inner_tenants_are_told_with_all_that_is_below_them() -> None:
    listed = make_two_tenants()
    listed.tenants = [make_tenant("team", namespaces=[], weight=3), make_tenant("a", parent="team"), make_tenant("b")]
    found = look(parse_snapshot(json.loads(format_snapshot(listed)))).describe()

    assert found["inner_tenants"] == {
        "team": {
            "weight": 3.0,
            "dominant_share": 0.75,
            "fair_share": pytest.approx(0.75),
            "running": 0,
            "pending": 6,
            "could_run_more": None,
        }
    }
    assert (found["tenants"]["a"]["path"], "path" in found["tenants"]["b"]) == ("team/a", False)


def test_counts_are_of_before_and_shares_of_after_the_decisions() -> None:
    pods = [make_pod("runs", node="n", requests={"cpu": "1"}), make_pod("waits", requests={"cpu": "1"})]
    state = look(make_snapshot(nodes=[make_node("n")], pods=pods, tenants=[make_tenant("team")]))
    found = state.tenants["team"]

    assert (found.running, found.pending, found.dominant_share, found.could_run_more) == (1, 1, 0.5, 2)


def test_a_policy_without_a_mechanism_has_no_fair_shares() -> None:
    assert look(make_two_tenants(policy="fifo")).tenants["a"].fair_share is None


def test_a_tenant_without_pods_could_run_nothing_that_is_known() -> None:
    listed = make_snapshot(nodes=[make_node()], pods=[make_pod()], tenants=[make_tenant("idle")])

    assert look(listed).tenants["idle"].could_run_more is None


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf", "first-fit-drfh", "fifo", "drfh"])
def test_what_a_tenant_could_run_more_is_what_starts_when_it_is_submitted(policy: str) -> None:
    """Nodes differ, one is tainted, one cordoned, one outside the selector of the pods."""
    kinds: list[tuple[str, Json, Json]]
    kinds = [("4", {}, {}), ("7", {}, {}), ("9", {"taints": [{"key": "x", "effect": "NoSchedule"}]}, {})]
    kinds += [("8", {"unschedulable": True}, {}), ("16", {}, {"pool": "other"})]
    nodes = [
        make_node(
            f"n{n}", allocatable={"cpu": cpu, "memory": "64Gi", "pods": "5"}, labels={"pool": "p", **labels}, **more
        )
        for n, (cpu, more, labels) in enumerate(kinds)
    ]
    pod = make_pod("runs", namespace="a", node="n0", requests={"cpu": "1500m"}, nodeSelector={"pool": "p"})
    listed = make_snapshot(nodes=nodes, pods=[pod], tenants=[make_tenant("a")], policy={"policy": policy})
    more = look(listed).tenants["a"].could_run_more

    assert more == 1 + 4
    job = make_job(count=more + 1, cpu="1500m", nodeSelector={"pool": "p"})
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].pop("memory")
    submission = answer(listed, listed, submit_to(listed, job), {}).submission
    assert submission is not None
    assert len(submission.nodes) == more


def test_a_host_port_is_had_once_a_node() -> None:
    ports = [{"name": "main", "ports": [{"hostPort": 80, "containerPort": 80}]}]
    pod = make_pod("runs", namespace="a", node="n0", requests={"cpu": "1"})
    pod["spec"]["containers"] = ports
    listed = make_snapshot(nodes=[make_node(f"n{n}") for n in range(4)], pods=[pod])

    assert look(listed).tenants["ns/a"].could_run_more == 3


def test_claims_of_one_pod_are_not_those_of_its_likes() -> None:
    """A claim of its own would be made for each; that of the pod that runs is not there for others."""
    pod = make_pod("runs-0", namespace="a", node="n0", requests={"cpu": "1"})
    pod["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-runs-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ]

    assert look(make_snapshot(nodes=[make_node("n0")], pods=[pod])).tenants["ns/a"].could_run_more == 3


# --- changes ---


def test_a_weight_moves_room_from_one_tenant_to_another() -> None:
    listed = make_two_tenants()
    before, after = look(listed), look(set_field(listed, "a", "weight", "3"))

    assert count_starts(before) == {"a": 4, "b": 4}
    assert count_starts(after) == {"a": 6, "b": 2}
    assert after.tenants["a"].weight == 3.0


def test_new_nodes_have_all_but_the_name_and_what_runs() -> None:
    labels = {"kubernetes.io/hostname": "gpu-1", "pool": "gpu"}
    taints = [
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ]
    model = make_node("gpu-1", labels=labels, taints=taints, unschedulable=True, ready=False)
    taken = make_node("gpu-1-new-1")
    listed = add_nodes(make_snapshot(nodes=[model, taken], pods=[make_pod(node="gpu-1")]), "gpu-1", 2)
    new = listed.nodes[2:]

    assert [node.metadata.name for node in new] == ["gpu-1-new-0", "gpu-1-new-2"]
    assert new[0].metadata.labels == {"kubernetes.io/hostname": "gpu-1-new-0", "pool": "gpu"}
    assert [taint.key for taint in new[0].spec.taints or ()] == ["gpu"]
    assert new[0].status.allocatable == listed.nodes[0].status.allocatable
    assert count_starts(look(add_nodes(make_two_tenants(), "n-1", 1))) == {"a": 6, "b": 6}


def test_pods_of_a_node_that_goes_wait_again() -> None:
    pods = [
        make_pod("ours", namespace="a", node="n-1", requests={"cpu": "1"}),
        make_pod("daemon", namespace="a", node="n-1", scheduler="default-scheduler"),
        make_pod("stays", namespace="a", node="n-2", requests={"cpu": "3"}),
    ]
    listed = make_snapshot(nodes=[make_node("n-1"), make_node("n-2")], pods=pods, tenants=[make_tenant("a")])
    state = look(remove_node(listed, "n-1"))

    assert [(bind.task.name, bind.server) for bind in state.starts] == [("a/ours", "n-2")]
    assert (state.tenants["a"].running, state.tenants["a"].pending) == (1, 1)


def make_node_pod(name: str, node: str, *, kind: str = "DaemonSet", waits: bool = False, cpu: str = "1") -> Json:
    """A pod that belongs to its node; its controller pins it there."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    pod = make_pod(name, namespace="a", node=None if waits else node, requests={"cpu": cpu})
    pod["spec"]["affinity"] = {"nodeAffinity": required}
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": "agent", "uid": "u", "controller": True}]
    return pod


def test_pods_that_belong_to_a_node_go_with_it() -> None:
    """One of a DaemonSet, one that is still on its way, and a static pod; the others of the DaemonSet stay."""
    own = [
        make_node_pod("agent-1", "n-1"),
        make_node_pod("late-1", "n-1", waits=True),
        make_node_pod("static-1", "n-1", kind="Node"),
        make_node_pod("agent-2", "n-2"),
        make_node_pod("late-2", "n-2", waits=True),
    ]
    web = make_pod("web", namespace="a", node="n-1", requests={"cpu": "1"})
    listed = make_snapshot(nodes=[make_node("n-1"), make_node("n-2")], pods=[*own, web])
    again = parse_snapshot(json.loads(format_snapshot(listed)))  # the file says so, too

    for one in (listed, again):
        after = remove_node(one, "n-1")
        assert {pod.metadata.name for pod in after.pods} == {"agent-2", "late-2", "web"}
        assert {bind.task.name for bind in look(after).starts} == {"a/late-2", "a/web"}


def test_new_nodes_have_the_pods_that_belong_to_each_node() -> None:
    own = [make_node_pod("agent-1", "n-1"), make_node_pod("static-1", "n-1", kind="Node")]
    full = make_pod("web", namespace="a", node="n-1", requests={"cpu": "2"})
    waiting = [make_pod(f"w-{n}", namespace="a", requests={"cpu": "1"}) for n in range(9)]
    listed = make_snapshot(nodes=[make_node("n-1")], pods=[*own, full, *waiting])
    after = add_nodes(listed, "n-1", 2)

    assert len({pod.metadata.uid for pod in after.pods}) == len(after.pods) == len(listed.pods) + 4
    assert len(look(after).starts) == 2 * 2  # of four cores, two are taken on each


def test_a_namespace_without_a_tenant_gets_one_with_the_weight() -> None:
    listed = make_two_tenants()
    listed.tenants = [tenant for tenant in listed.tenants if tenant["metadata"]["name"] == "b"]
    for name in ("a", "ns/a"):
        after = look(set_field(listed, name, "weight", "3"))

        assert count_starts(after) == {"b": 2, "ns/a": 6}
        assert (after.tenants["ns/a"].weight, sorted(after.tenants)) == (3.0, ["b", "ns/a"])


def test_a_namespace_of_all_without_a_tenant_gets_out_of_them() -> None:
    listed = make_two_tenants()
    listed.tenants, listed.policies = (
        [],
        [{"metadata": {"name": "default"}, "spec": {"policy": "best-fit-drfh", "unclaimedNamespaces": "together"}}],
    )

    assert count_starts(look(listed)) == {"ns/*": 8}
    assert count_starts(look(set_field(listed, "a", "weight", "3"))) == {"ns/*": 2, "ns/a": 6}


def test_a_cordoned_node_takes_nothing_new() -> None:
    listed = cordon(make_two_tenants(), "n-1", is_cordoned=True)

    assert {bind.server for bind in look(listed).starts} == {"n-2"}
    assert {bind.server for bind in look(cordon(listed, "n-1", is_cordoned=False)).starts} == {"n-1", "n-2"}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_another_policy_keeps_what_all_policies_share(policy: str) -> None:
    listed = make_snapshot(
        nodes=[make_node(labels={"pool": "p"})],
        pods=[make_pod(requests={"cpu": "1"})],
        policy={"policy": "alpha-pf-vds", "alphaPfVds": {"alpha": "3"}, "nodeSelector": {"pool": "p"}},
    )
    state = look(set_policy(listed, policy))

    assert state.policy == policy
    assert len(state.starts) == 1
    assert set_policy(listed, policy).policies[0]["spec"]["nodeSelector"] == {"pool": "p"}


def test_a_cluster_without_a_policy_object_may_get_one() -> None:
    assert look(set_policy(make_snapshot(nodes=[make_node()], pods=[make_pod()]), "tsf")).policy == "tsf"


def test_changes_leave_the_objects_as_they_are() -> None:
    listed = make_two_tenants()
    text, kept = format_snapshot(listed), copy.deepcopy(listed)
    changed = set_field(listed, "a", "weight", "2")
    changed = cordon(remove_node(add_nodes(changed, "n-1", 3), "n-2"), "n-1", is_cordoned=True)
    changed = set_policy(changed, "ps-dsf")
    answer(listed, changed, submit_to(changed, make_job(count=20)), {})

    assert format_snapshot(listed) == text
    assert listed == kept


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda listed: set_field(listed, "aa", "weight", "2"),
            r'--set: "aa" is no Tenant and no namespace without one here.*\ba\b',
        ),
        (lambda listed: set_field(listed, "a", "weight", "0"), r"--set: tenant\.a\.weight must be .* not '0'"),
        (lambda listed: set_field(listed, "a", "weight", "nan"), r"--set: tenant\.a\.weight must be .* not 'nan'"),
        (lambda listed: set_policy(listed, "ps-dfs"), r'--policy: "ps-dfs" is no policy here.*ps-dsf'),
        (lambda listed: add_nodes(listed, "n-3", 1), r'--add-nodes: "n-3" is no node here.*n-[12]'),
        (lambda listed: add_nodes(listed, "n-1", 0), r"--add-nodes: count must be .* not 0"),
        (lambda listed: remove_node(listed, "n1"), r'--remove-node: "n1" is no node here.*n-1'),
        (lambda listed: cordon(listed, "x", is_cordoned=True), r'--cordon: "x" is no node here'),
    ],
)
def test_changes_that_make_no_sense_are_named(change: Any, said: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"^{said}"):
        change(make_two_tenants())


def test_two_tenants_with_namespaces_that_do_not_exist_yet() -> None:
    """A submission into a namespace that the cluster lacks is of the tenant that claims the name."""
    listed = make_snapshot(
        nodes=[make_node()], pods=[make_pod()], namespaces=[make_namespace("team")], tenants=[make_tenant("new")]
    )
    submission = answer(listed, listed, submit_to(listed, make_job("new")), {}).submission

    assert submission is not None
    assert (submission.tenants, submission.starts_now) == (("new",), True)
