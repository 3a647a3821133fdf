"""Fake nodes beside real ones in one cluster: both fill up, each kind of kubelet plays only its own pods."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from e2e.objects import make_name
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, list_pods
from kind.fakes import FAKE_TOLERATION, LINUX, start_fakes
from kind.judge import Picture, check_shares, find_refusals, is_running, wait_calm
from kind.owners import RESEARCH, make_kind_pod
from localplane.client import call_many

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant
    from kind.release import Release
    from kindcluster.cluster import Cluster

FAKE_NODES = 500
ANYWHERE = 1970
REAL_ONLY = 30
PLAY_SECONDS = 600.0
SHAPES = (
    {"cpu": "1", "memory": "2Gi"},
    {"cpu": "500m", "memory": "4Gi"},
    {"cpu": "2", "memory": "1Gi"},
    {"cpu": "250m", "memory": "512Mi"},
)


def make_mixed(tolerations: list[Json], count: int) -> list[Json]:
    """Return pods of four shapes that may go anywhere."""
    return [make_kind_pod(SHAPES[number % len(SHAPES)], tolerations=tolerations) for number in range(count)]


def clear(api: Api, namespace: str, fakes: set[str]) -> None:
    """Delete all pods, with grace only where there is something to end; one by one, because a collection takes long."""
    pods = [(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in list_pods(api, namespace)]
    delete_pods(api, namespace, [name for name, node in pods if node in fakes])
    real = [f"/api/v1/namespaces/{namespace}/pods/{name}" for name, node in pods if node not in fakes]
    call_many(real, api.delete)
    wait_for(lambda: not list_pods(api, namespace), PLAY_SECONDS, "no pods", pause=1.0)


def find_containers(pod: Json) -> list[str]:
    """Return the identities that a container runtime gave the pod's containers."""
    statuses = pod["status"].get("containerStatuses") or []
    return [status["containerID"] for status in statuses if status.get("containerID")]


def read_nodes(api: Api, names: list[str]) -> dict[str, Json]:
    """Return what only its own kubelet may say of each node."""
    nodes = {node["metadata"]["name"]: node for node in api.items("/api/v1/nodes")}
    fields = ("nodeInfo", "addresses", "allocatable")
    return {name: {field: nodes[name]["status"][field] for field in fields} for name in names}


@pytest.mark.nightly
def test_two_thousand_pods_on_fake_and_real_nodes(
    kind_cluster: Cluster,
    fairbind_installed: Release,
    api: Api,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    tmp_path: Path,
) -> None:
    wait_calm(api)
    real = kind_cluster.nodes()
    before = read_nodes(api, real)
    one, two = namespace(), namespace()
    names = [tenant(namespaces=[one]), tenant(namespaces=[two], weight=2)]
    folder = tmp_path / make_name("fake")
    folder.mkdir()
    with start_fakes(kind_cluster, api, folder, FAKE_NODES) as fakes:
        started = time.monotonic()
        small = {"cpu": "20m", "memory": "32Mi"}
        create_pods(api, one, [make_kind_pod(small, nodeSelector={LINUX: "linux"}) for _ in range(REAL_ONLY)])
        for space in (one, two):
            create_pods(api, space, make_mixed([FAKE_TOLERATION, RESEARCH], ANYWHERE // 2))

        def are_all_running() -> bool:
            paths = [f"/api/v1/namespaces/{space}/pods" for space in (one, two)]
            waiting = [pod for path in paths for pod in api.items(path, fieldSelector="status.phase!=Running")]
            assert not waiting, f"{len(waiting)} do not run, {waiting[0]['metadata']['name']} for example"
            return True

        wait_for(are_all_running, PLAY_SECONDS, "all to run", pause=2.0)
        print(f"{ANYWHERE + REAL_ONLY} pods run after {time.monotonic() - started:.0f} s")
        assert [pod for space in (one, two) for pod in list_pods(api, space) if not is_running(pod)] == []
        judge_places(api, [one, two], real, fakes)
        assert Picture.take(api).find_overcommitted() == []
        assert find_refusals(api, one, two) == []
        shares = check_shares(api, *names)
        assert sum(status["running"] for status in shares.values()) == ANYWHERE + REAL_ONLY
        assert read_nodes(api, real) == before
        for space in (one, two):
            clear(api, space, set(fakes))
    for name, status in check_shares(api, *names).items():
        assert status["running"] == 0, name
    assert fairbind_installed.metrics().total("fairbind_cycle_errors_total") == 0


def judge_places(api: Api, spaces: list[str], real: list[str], fakes: list[str]) -> None:
    """Check that whoever must run for real does, and that nobody played the other's pods."""
    pods = [pod for space in spaces for pod in list_pods(api, space)]
    on_real = [pod for pod in pods if pod["spec"]["nodeName"] in set(real)]
    on_fake = [pod for pod in pods if pod["spec"]["nodeName"] in set(fakes)]
    assert len(on_real) + len(on_fake) == len(pods)
    assert len(on_real) >= REAL_ONLY
    assert len({pod["spec"]["nodeName"] for pod in on_fake}) > FAKE_NODES // 10
    assert all(find_containers(pod) for pod in on_real)
    assert not any(find_containers(pod) for pod in on_fake)
    picky = [pod for pod in pods if (pod["spec"].get("nodeSelector") or {}).get(LINUX) == "linux"]
    assert len(picky) == REAL_ONLY
    assert {pod["spec"]["nodeName"] for pod in picky} <= set(real)
