"""Groups of pods on a real API server: they start whole, stay whole, and their turn comes."""

from __future__ import annotations

import datetime as dt
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from e2e.objects import make_name, make_pod
from e2e.starvation import ENDED_AT_ONCE, SMALL
from e2e.waiting import never, wait_for
from e2e.workloads import (
    count_bound,
    create_object,
    create_pods,
    delete_pods,
    find_bound,
    find_condition,
    find_waiting,
    list_pods,
)
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

WHOLE_SECONDS = 20.0
"""From the first member that is bound to the last."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD_GROUP = "scheduling.x-k8s.io/pod-group"


def make_eight_cores(count: int) -> list[Json]:
    allocatable = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    return [make_node(make_name("n"), allocatable=allocatable) for _ in range(count)]


@pytest.fixture
def node(nodes: MakeNodes) -> str:
    """One node of eight cores."""
    (name,) = nodes(make_eight_cores(1))
    return name


@pytest.fixture
def mine(node: str, namespace: MakeNamespace, tenant: MakeTenant) -> str:  # noqa: ARG001 - the node is there
    """The namespace of a tenant, beside the node."""
    space = namespace()
    tenant(namespaces=[space])
    return space


@pytest.fixture
def other(namespace: MakeNamespace, tenant: MakeTenant) -> str:
    """The namespace of another tenant, which holds nothing, and so comes first by its share."""
    space = namespace()
    tenant(namespaces=[space])
    return space


def make_members(group: str, count: int, cpu: str, *, total: int | None = None) -> list[Json]:
    """Return pods that say themselves to which group they belong, and how many these are."""
    pods = [
        make_pod({"cpu": cpu, "memory": "64Mi"}, labels={"kueue.x-k8s.io/pod-group-name": group}) for _ in range(count)
    ]
    for pod in pods:
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(total or count)
    return pods


def list_messages(api: Api, namespace: str) -> list[str]:
    """Why each of the pods waits."""
    return [find_condition(pod).get("message", "") for pod in find_waiting(api, namespace)]


def check_together(pods: list[Json]) -> None:
    """Check that the last member was bound soon after the first."""
    times = [dt.datetime.fromisoformat(find_condition(pod)["lastTransitionTime"]).timestamp() for pod in pods]
    assert max(times) - min(times) <= WHOLE_SECONDS


def test_a_group_of_whole_nodes_starts_among_small_pods_that_come_and_go(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes(make_eight_cores(3))
    small, large = namespace(), namespace()
    tenant(namespaces=[small])
    waiting = tenant(namespaces=[large])
    running, random = operator(), Random(1)
    create_pods(api, small, [make_pod(SMALL) for _ in range(300)])
    wait_for(lambda: count_bound(api, small) == 48, describe="the small pods to fill all nodes")
    create_pods(api, large, make_members("g", 2, "7500m"))
    wait_for(
        lambda: running.metrics().total("fairbind_reserved", tenant=waiting, resource="cpu") >= 15, describe="a set"
    )
    wait_for(
        lambda: all("of 2" in message for message in list_messages(api, large)),
        describe=lambda: f"both members to be told what the group lacks, not {list_messages(api, large)}",
    )

    def let_some_end() -> bool:
        ending = random.sample(sorted(pod["metadata"]["name"] for pod in find_bound(api, small)), ENDED_AT_ONCE)
        delete_pods(api, small, ending)
        assert count_bound(api, large) != 1 or wait_for(lambda: count_bound(api, large) == 2, timeout=WHOLE_SECONDS)
        return count_bound(api, large) == 2

    wait_for(let_some_end, describe="the group to start", pause=1.0)
    check_together(list_pods(api, large))


def test_a_group_waits_until_all_members_exist(api: Api, mine: str, operator: StartOperator) -> None:
    operator()
    create_pods(api, mine, make_members("g", 2, "1", total=3))
    wait_for(
        lambda: ["2 of 3 pods exist" in message for message in list_messages(api, mine)] == [True, True],
        describe=lambda: f"both to be told that a member is missing, not {list_messages(api, mine)}",
    )
    assert count_bound(api, mine) == 0

    create_pods(api, mine, make_members("g", 1, "1", total=3))

    wait_for(lambda: count_bound(api, mine) == 3, describe="all three to start")
    check_together(list_pods(api, mine))


def test_the_place_of_a_lost_member_is_kept_for_its_replacement(
    api: Api, mine: str, other: str, operator: StartOperator
) -> None:
    operator()
    members = create_pods(api, mine, make_members("g", 4, "2"))
    wait_for(lambda: count_bound(api, mine) == 4, describe="the group to start")
    create_pods(api, other, [make_pod({"cpu": "2", "memory": "64Mi"}) for _ in range(3)])
    wait_for(lambda: len(find_waiting(api, other)) == 3, describe="the others to wait")

    delete_pods(api, mine, members[:1])
    never(lambda: count_bound(api, other), 3.0, "another tenant took the place of a lost member")
    create_pods(api, mine, make_members("g", 1, "2", total=4))

    wait_for(
        lambda: count_bound(api, mine) == 4,
        describe=lambda: f"the group to be whole again, not {list_messages(api, mine)}",
    )
    assert count_bound(api, other) == 0


def test_the_next_leader_completes_a_group_of_which_a_part_is_bound(
    api: Api, node: str, mine: str, other: str, operator: StartOperator
) -> None:
    """As when a leader died between two bindings."""
    members = create_pods(api, mine, make_members("g", 4, "2"))
    create_pods(api, other, [make_pod({"cpu": "2", "memory": "64Mi"}) for _ in range(3)])
    for name in members[:2]:
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        api.post(f"/api/v1/namespaces/{mine}/pods/{name}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})

    operator()

    wait_for(lambda: count_bound(api, mine) == 4, describe="the rest of the group to be bound")
    assert count_bound(api, other) == 0


def test_the_pods_of_a_job_with_the_annotation_start_together(
    api: Api, mine: str, nodes: MakeNodes, operator: StartOperator
) -> None:
    """Four pods of 3 cores do not fit on a node of 8, and do on two."""
    operator()
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": {"fairbind.io/gang": "all"}},
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "template": {
                "spec": {
                    **make_pod({"cpu": "3", "memory": "64Mi"})["spec"],
                    "restartPolicy": "Never",
                }
            },
        },
    }
    create_object(api, f"/apis/batch/v1/namespaces/{mine}/jobs", job)
    wait_for(
        lambda: len(list_pods(api, mine)) == 4 and all("2 of 4" in message for message in list_messages(api, mine)),
        describe=lambda: f"all pods to be told what the group lacks, not {list_messages(api, mine)}",
    )
    assert count_bound(api, mine) == 0

    nodes(make_eight_cores(1))

    wait_for(lambda: count_bound(api, mine) == 4, describe="the group to start")


def install_pod_groups(api: Api, group: str = "scheduling.x-k8s.io", version: str = "v1alpha1") -> None:
    """Install the kind of the coscheduling plugin, or another one of its name, as far as it matters."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": group,
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    wait_for(lambda: create_object(api, CRDS, crd), describe="the kind to be made")


def test_a_kind_that_is_installed_later_is_read(api: Api, mine: str, operator: StartOperator) -> None:
    operator()
    create_pods(api, mine, [make_pod({"cpu": "1", "memory": "64Mi"}, labels={POD_GROUP: "g"}) for _ in range(2)])
    wait_for(
        lambda: all("PodGroup" in message for message in list_messages(api, mine)),
        describe=lambda: f"the pods to be told that their PodGroup is missing, not {list_messages(api, mine)}",
    )
    install_pod_groups(api)
    try:
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"minMember": 2},
        }
        path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{mine}/podgroups"
        wait_for(lambda: create_object(api, path, group), describe="the PodGroup to be made")
        wait_for(lambda: count_bound(api, mine) == 2, describe="the group to start")
    finally:
        api.delete(f"{CRDS}/podgroups.scheduling.x-k8s.io")


def test_a_successor_is_told_when_others_of_the_minimum_are_missing(
    api: Api, mine: str, operator: StartOperator
) -> None:
    operator()
    members = create_pods(api, mine, make_members("g", 4, "2"))
    wait_for(lambda: count_bound(api, mine) == 4, describe="the group to start")
    delete_pods(api, mine, members[:2])

    create_pods(api, mine, make_members("g", 1, "2", total=4))

    wait_for(
        lambda: ["3 of 4 pods exist" in message for message in list_messages(api, mine)] == [True],
        describe=lambda: f"the successor to be told, not {list_messages(api, mine)}",
    )


def test_a_group_that_stood_once_goes_on_below_its_minimum_where_it_says_so(
    api: Api, mine: str, operator: StartOperator
) -> None:
    operator()

    def create(count: int) -> list[str]:
        pods = make_members("g", count, "2", total=4)
        for pod in pods:
            pod["metadata"]["annotations"]["fairbind.io/gang-after-start"] = "once"
        return create_pods(api, mine, pods)

    members = create(3)
    wait_for(
        lambda: ["3 of 4 pods exist" in message for message in list_messages(api, mine)] == [True] * 3,
        describe=lambda: f"the group to wait before it stood, not {list_messages(api, mine)}",
    )
    members += create(1)
    wait_for(lambda: count_bound(api, mine) == 4, describe="the group to start")
    delete_pods(api, mine, members[:2])

    (successor,) = create(1)

    wait_for(
        lambda: successor in [pod["metadata"]["name"] for pod in find_bound(api, mine)],
        describe=lambda: f"the successor to start, not {list_messages(api, mine)}",
    )
    assert count_bound(api, mine) == 3


@pytest.fixture
def undoing(cluster: Cluster) -> Iterator[None]:
    """The chart with the right to evict pods of groups that cannot be completed."""
    cluster.install_chart({"operator": {"enabled": False}, "groups": {"undo": True}})
    yield
    cluster.install_chart({"operator": {"enabled": False}})


def bind_half(api: Api, space: str, node: str) -> tuple[str, str]:
    """Make a group of which one member alone has room, and bind it, as a leader that died before the next binding.

    Returns the names of the one that is bound and the one that waits.
    """
    first, second = create_pods(api, space, make_members("g", 2, "5"))
    wait_for(
        lambda: all("1 of 2 fit" in message for message in list_messages(api, space) or [""]),
        describe=lambda: f"the group to wait, not {list_messages(api, space)}",
    )
    binding = {"metadata": {"name": first}, "target": {"kind": "Node", "name": node}}
    api.post(f"/api/v1/namespaces/{space}/pods/{first}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    return first, second


@pytest.mark.usefixtures("undoing")
def test_a_group_that_cannot_be_completed_is_undone_once_no_budget_forbids_it(
    api: Api, node: str, mine: str, operator: StartOperator
) -> None:
    running = operator("--undo-groups", "--undo-groups-after=2")
    budgets = f"/apis/policy/v1/namespaces/{mine}/poddisruptionbudgets"
    selector = {"matchExpressions": [{"key": "kueue.x-k8s.io/pod-group-name", "operator": "Exists"}]}
    api.post(budgets, {"metadata": {"name": "all"}, "spec": {"minAvailable": "100%", "selector": selector}})
    first, second = bind_half(api, mine, node)
    name = "fairbind_group_evictions_total"
    wait_for(lambda: running.metrics().total(name, result="blocked") > 0, describe="the budget to forbid it")
    assert {pod["metadata"]["name"] for pod in find_bound(api, mine)} == {first}
    assert running.metrics().total(name, result="evicted") == 0

    api.delete(f"{budgets}/all")

    wait_for(lambda: [pod["metadata"]["name"] for pod in list_pods(api, mine)] == [second], describe="the member to go")
    assert running.metrics().total(name, result="evicted") == 1
    assert running.metrics().total(name, result="failed") == 0
    events = f"/apis/events.k8s.io/v1/namespaces/{mine}/events"
    wait_for(
        lambda: [event["note"] for event in api.items(events) if event["reason"] == "GroupUndone"],
        describe="the event of the member",
    )
    create_pods(api, mine, make_members("g", 1, "3", total=2))
    wait_for(lambda: count_bound(api, mine) == 2, describe="the group to start whole with a smaller member")
    check_together(list_pods(api, mine))


def test_without_undoing_a_group_that_cannot_be_completed_keeps_its_members_and_says_so(
    api: Api, node: str, mine: str, operator: StartOperator
) -> None:
    running = operator("--undo-groups-after=1")
    bind_half(api, mine, node)
    wait_for(
        lambda: any("1 pod of it keeps its node; groups.undo" in message for message in list_messages(api, mine)),
        describe=lambda: f"the other member to be told, not {list_messages(api, mine)}",
    )
    assert count_bound(api, mine) == 1
    assert running.metrics().total("fairbind_group_evictions_total") == 0


@pytest.mark.usefixtures("undoing")
def test_a_group_that_was_whole_once_keeps_its_members_whatever_it_lost(
    api: Api, mine: str, operator: StartOperator
) -> None:
    operator("--undo-groups", "--undo-groups-after=1", "--kept-place-seconds=0")
    members = create_pods(api, mine, make_members("g", 2, "4"))
    wait_for(lambda: count_bound(api, mine) == 2, describe="the group to start")
    delete_pods(api, mine, members[:1])
    create_pods(api, mine, make_members("g", 1, "5", total=2))
    wait_for(lambda: len(find_waiting(api, mine)) == 1, describe="the successor, which is too large, to wait")

    never(lambda: count_bound(api, mine) != 1, 5.0, "the member that is left was evicted")


@pytest.fixture
def queueing(cluster: Cluster) -> Iterator[None]:
    """The chart with the right to patch PodGroups of Volcano."""
    cluster.install_chart({"operator": {"enabled": False}, "groups": {"volcanoInqueue": True}})
    yield
    cluster.install_chart({"operator": {"enabled": False}})


@pytest.mark.usefixtures("queueing")
def test_a_job_of_volcano_is_told_to_make_its_pods(api: Api, namespace: MakeNamespace, operator: StartOperator) -> None:
    """Its controller waits for the phase; a PodGroup of another owner keeps its own."""
    space = namespace()
    running = operator("--volcano-inqueue")
    install_pod_groups(api, "scheduling.volcano.sh", "v1beta1")
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{space}/podgroups"
    try:
        for name, owner in (("job", "batch.volcano.sh/v1alpha1"), ("other", "batch/v1")):
            reference = {"apiVersion": owner, "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
            group = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name, "ownerReferences": [reference] if name == "job" else []},
                "spec": {"minMember": 2},
                "status": {"phase": "Pending"},
            }
            wait_for(partial(create_object, api, path, group), describe="the PodGroup to be made")
        wait_for(lambda: api.get(f"{path}/job")["status"]["phase"] == "Inqueue", describe="the phase of the Job")
        assert api.get(f"{path}/other")["status"]["phase"] == "Pending"
        assert running.metrics().total("fairbind_part_failures_total", part="volcano_phases") == 0
    finally:
        api.delete(f"{CRDS}/podgroups.scheduling.volcano.sh")
