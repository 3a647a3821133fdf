"""``fairbind snapshot`` of a live cluster, replayed: it decides what the operator then does."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from e2e.objects import make_name
from e2e.operators import PROGRAM
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods, make_mixed_pods
from fairbind.cluster.loop.journal import parse_journal
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

PODS_OF_TENANT = 24
SECRET = "hunter2"


def run(*words: str, status: int = 0) -> str:
    done = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (status, ""), done.stdout
    return done.stdout


def find_nodes(api: Api, spaces: list[str]) -> dict[tuple[str, str], str]:
    """Where the API says that pods are bound."""
    return {
        (space, pod["metadata"]["name"]): pod["spec"]["nodeName"]
        for space in spaces
        for pod in api.items(f"/api/v1/namespaces/{space}/pods")
        if pod["spec"].get("nodeName")
    }


def find_versions(api: Api, spaces: list[str]) -> set[tuple[str, str]]:
    """Who is there, in which version."""
    return {
        (pod["metadata"]["uid"], pod["metadata"]["resourceVersion"])
        for space in spaces
        for pod in api.items(f"/api/v1/namespaces/{space}/pods")
    }


def test_a_replayed_snapshot_decides_what_the_operator_then_does(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    policy: Callable[..., None],
    tmp_path: Path,
) -> None:
    """Four tenants want twice what there is, on nodes of two kinds.

    A replay has an exact answer before its first cycle, and the operator after its first ones: so nothing is guided.
    """
    policy(guided=False)
    api, file, journal = cluster.api, tmp_path / "cluster.json", tmp_path / "journal"
    large, small = {"cpu": "8", "memory": "16Gi", "pods": "110"}, {"cpu": "4", "memory": "24Gi", "pods": "110"}
    nodes([make_node(make_name("n"), allocatable=kind) for kind in (large, large, small, small)])
    spaces = [namespace() for _ in range(4)]
    names = [tenant(namespaces=[space], weight=str(1 + number % 2)) for number, space in enumerate(spaces)]
    for space in spaces:
        pods = make_mixed_pods(PODS_OF_TENANT)
        for pod in pods:
            pod["metadata"]["annotations"] = {"example.com/note": SECRET}
            pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": SECRET}]
        create_pods(api, space, pods)

    run("snapshot", f"--kubeconfig={cluster.kubeconfig}", "--out", str(file))
    run("snapshot", f"--kubeconfig={cluster.kubeconfig}", "--out", str(tmp_path / "other.json"), "--anonymise")
    found = json.loads(run("replay", str(file), "-o", "json"))
    expected = {(one["namespace"], one["pod"]): one["node"] for one in found["decisions"]}
    assert SECRET not in file.read_text(encoding="utf-8")
    assert 10 < len(expected) < 4 * PODS_OF_TENANT
    assert not any(space in (tmp_path / "other.json").read_text(encoding="utf-8") for space in spaces)

    versions = find_versions(api, spaces)
    asked = ["what-if", f"--kubeconfig={cluster.kubeconfig}", "--set", f"tenant.{names[0]}.weight=4", "-o", "json"]
    answer = json.loads(run(*asked))
    assert {(one["namespace"], one["pod"]): one["node"] for one in answer["before"]["starts"]} == expected
    assert answer["after"]["tenants"][names[0]]["weight"] == 4.0
    assert "Recommended: " in run("advise", f"--kubeconfig={cluster.kubeconfig}")
    assert find_versions(api, spaces) == versions  # nothing was written

    operator(f"--journal={journal}")
    wait_for(
        lambda: sum(count_bound(api, space) for space in spaces) >= len(expected), describe="the operator to decide"
    )
    assert find_nodes(api, spaces) == expected
    wait_for(lambda: len(read_bindings(journal)) >= len(expected), describe="the journal to be written")
    uids = {
        pod["metadata"]["uid"]: (pod["metadata"]["namespace"], pod["metadata"]["name"])
        for space in spaces
        for pod in api.items(f"/api/v1/namespaces/{space}/pods")
    }
    assert [uids[uid] for uid, _ in read_bindings(journal)] == list(expected)  # the same order, too
    compared: dict[str, Any] = json.loads(run("replay", str(file), "--journal", str(journal), "-o", "json"))["journal"]
    assert (compared["equal"], compared["decisions"]) == (True, len(expected))


def read_bindings(journal: Path) -> list[tuple[str, str]]:
    """The decisions of a journal, in their order."""
    records, _ = parse_journal(journal.read_bytes().splitlines() if journal.exists() else [])
    return [binding for record in records for binding in record.bindings]
