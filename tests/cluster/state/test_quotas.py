"""Who waits for pods that do not exist is told the quota that refuses them, and hears when it does so no more."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, make_pod_group, make_quota
from fairbind.cluster.objects.decode import POD_GROUPS, QUOTAS
from fairbind.cluster.state import quotas

GANG: Json = {"schedulingPolicy": {"gang": {"minCount": 3}}}
MISSING = "group team/g: 2 of 3 pods exist"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_nodes(make_node("a", allocatable={"cpu": "99", "pods": "99"}))
    cluster.put_objects(POD_GROUPS, make_pod_group("g", **GANG))
    cluster.add_pods(make_member("m0"), make_member("m1"))
    return cluster


def make_member(name: str, group: str = "g", cpu: str = "2") -> Json:
    requests = {"cpu": cpu, "memory": "1Gi"}
    return make_pod(name, namespace="team", requests=requests, schedulingGroup={"podGroupName": group})


def find_words(cluster: Cluster, uid: str = "uid-m0") -> str:
    blocked = cluster.get_class(uid).blocked
    assert blocked is not None
    return blocked.subject


@pytest.mark.parametrize(
    ("hard", "used", "refuses"),
    [
        ({"pods": "2"}, {"pods": "2"}, True),
        ({"count/pods": "2"}, {"count/pods": "3"}, True),
        ({"pods": "3"}, {"pods": "2"}, False),
        ({"requests.cpu": "5"}, {"requests.cpu": "4"}, True),
        ({"cpu": "6"}, {"cpu": "4"}, False),
        ({"cpu": "9", "requests.cpu": "5"}, {"cpu": "4", "requests.cpu": "4"}, True),
        ({"requests.memory": "2500Mi"}, {"requests.memory": "2Gi"}, True),
        ({"requests.nvidia.com/gpu": "0"}, {}, False),
        ({"limits.cpu": "0", "count/jobs.batch": "0"}, {}, False),
        ({"pods": "nonsense"}, {}, False),
    ],
)
def test_a_quota_is_named_where_it_has_no_room_for_one_more_like_those_that_wait(
    cluster: Cluster, hard: dict[str, str], used: dict[str, str], *, refuses: bool
) -> None:
    cluster.put_objects(QUOTAS, make_quota("q", hard=hard, used=used))
    assert find_words(cluster) == MISSING + "; quota q refuses more" * refuses


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "shop"},
        {"scopes": ["BestEffort"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}},
    ],
)
def test_quotas_of_others_and_of_some_pods_only_are_not_named(cluster: Cluster, other: dict[str, Any]) -> None:
    cluster.put_objects(QUOTAS, make_quota("q", hard={"pods": "0"}, **other))
    assert find_words(cluster) == MISSING


def test_it_is_not_named_where_a_smaller_pod_would_be_taken(cluster: Cluster) -> None:
    cluster.put_objects(QUOTAS, make_quota("q", hard={"requests.cpu": "1"}))
    assert find_words(cluster) == MISSING + "; quota q refuses more"
    cluster.put_objects(POD_GROUPS, make_pod_group("g", schedulingPolicy={"gang": {"minCount": 4}}))
    cluster.add_pods(make_member("small", cpu="1"))
    assert find_words(cluster) == "group team/g: 3 of 4 pods exist"


def test_changes_of_quotas_are_heard(cluster: Cluster) -> None:
    assert find_words(cluster) == MISSING
    full = make_quota("q", hard={"pods": "2"}, used={"pods": "2"})
    before = cluster.changes
    cluster.put_objects(QUOTAS, full)
    assert cluster.changes > before
    assert find_words(cluster) == MISSING + "; quota q refuses more"
    cluster.put_objects(QUOTAS, make_quota("q", hard={"pods": "9"}, used={"pods": "2"}))
    assert find_words(cluster) == MISSING
    full = make_quota("q", hard={"pods": "2"}, used={"pods": "2"})
    cluster.put_objects(QUOTAS, full, make_quota("a", hard={"pods": "0"}))
    assert find_words(cluster) == MISSING + "; quota a refuses more"
    cluster.delete_object(QUOTAS, make_quota("a"))
    assert find_words(cluster) == MISSING + "; quota q refuses more"


def test_where_all_pods_exist_quotas_are_not_heard_of(cluster: Cluster) -> None:
    cluster.add_pods(make_member("m2"))
    assert cluster.get_class("uid-m0").blocked is None
    before = cluster.changes
    cluster.put_objects(QUOTAS, make_quota("q", hard={"pods": "0"}))
    assert cluster.changes == before


def test_so_many_groups_of_a_namespace_hear_of_a_change(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_GROUPS_FOLLOWED", 1)
    cluster.put_objects(POD_GROUPS, make_pod_group("h", **GANG))
    cluster.add_pods(make_member("other", "h"))
    assert [find_words(cluster), find_words(cluster, "uid-other")] == [MISSING, "group team/h: 1 of 3 pods exist"]

    cluster.put_objects(QUOTAS, make_quota("q", hard={"pods": "0"}))
    assert find_words(cluster).endswith("q refuses more")
    assert find_words(cluster, "uid-other") == "group team/h: 1 of 3 pods exist"
    cluster.add_pods(make_member("another", "h"))
    assert find_words(cluster, "uid-other") == "group team/h: 2 of 3 pods exist; quota q refuses more"
