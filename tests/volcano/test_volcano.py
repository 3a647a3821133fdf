"""Volcano and fairbind on one cluster: each starts the groups of the pods that name it."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from e2e.objects import make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods, find_condition, find_waiting

if TYPE_CHECKING:
    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace

pytestmark = pytest.mark.needs_tools

GROUPS = "/apis/scheduling.volcano.sh/v1beta1"
SIZE = 3
FITS, TOO_LARGE = {"cpu": "100m"}, {"cpu": "900"}
FAIRBIND, VOLCANO = "fairbind-system:fairbind", "volcano-system:volcano-scheduler"


def create_groups(api: Api, namespace: str, scheduler: str) -> None:
    """Create a group that fits and one that fits nowhere, both with PodGroups of Volcano's."""
    for name, requests in {"fits": FITS, "waits": TOO_LARGE}.items():
        group = {"metadata": {"name": name}, "spec": {"minMember": SIZE, "queue": "bench-00"}}
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        api.post(f"{GROUPS}/namespaces/{namespace}/podgroups", {**kind, **group})
        pods = [make_pod(requests, scheduler_name=scheduler) for _ in range(SIZE)]
        for pod in pods:
            pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = name
        create_pods(api, namespace, pods)


def has_judged(api: Api, namespace: str) -> bool:
    """Tell whether the one group runs and all pods of the other have been judged."""
    judged = [pod for pod in find_waiting(api, namespace) if find_condition(pod).get("reason") == "Unschedulable"]
    return count_bound(api, namespace) == len(judged) == SIZE


def find_writes(cluster: Cluster, namespace: str) -> dict[str, set[str]]:
    """Return which resources in a namespace each service account has written, by the end of its name."""
    assert cluster.plane is not None
    found: dict[str, set[str]] = defaultdict(set)
    for line in cluster.plane.audit_log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        place = event.get("objectRef", {})
        if place.get("namespace") == namespace and event["verb"] in {"create", "update", "patch", "delete"}:
            account = event["user"]["username"].removeprefix("system:serviceaccount:")
            found[account].add("/".join(filter(None, (place["resource"], place.get("subresource")))))
    return found


def test_each_starts_its_own_pods_and_fairbind_writes_nothing_that_is_volcanos(
    cluster: Cluster, api: Api, namespace: MakeNamespace
) -> None:
    ours, theirs = namespace(), namespace()

    create_groups(api, ours, "fairbind")
    create_groups(api, theirs, "volcano")
    wait_for(lambda: count_bound(api, theirs) == SIZE, describe="Volcano to start a group")
    wait_for(lambda: has_judged(api, ours), describe="fairbind to start one group and judge the other")

    in_ours, in_theirs = find_writes(cluster, ours), find_writes(cluster, theirs)
    assert {"pods/binding", "pods/status"} <= in_ours[FAIRBIND] <= {"pods/binding", "pods/status", "events"}
    assert in_theirs[FAIRBIND] == set()
    assert "pods/binding" in in_theirs[VOLCANO]
    # Volcano writes the status of every PodGroup, whoever starts its pods.
    assert in_ours[VOLCANO] <= {"podgroups", "events"}
