"""`kubectl fairbind why`: with all rights, with those of one namespace, and about what does not wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.kubectl.served import OWN, USER, serving
from cluster.builders import make_node, make_pod
from fairbind.cli.cluster_listing import Source
from fairbind.cli.kubectl import main
from fairbind.cli.kubectl import why_answer as why_module
from fairbind.cli.kubectl.scope import Scope
from fairbind.cli.kubectl.targets import parse_target
from fairbind.cli.kubectl.terminal import Terminal
from fairbind.cli.kubectl.why_answer import find_why
from fairbind.cli.kubectl.why_text import MOST_GROUPS, format_why
from fairbind.cli.mechanisms.tables import measure
from fairbind.model.errors import FairbindError
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_snapshot, make_tenant
from what_if.test_explanation import make_cluster, make_pods

PODS = "/api/v1/namespaces/team-a/pods"
REPORT = f"/apis/fairbind.io/v1alpha1{OWN}sharereports/fairbind"
MESSAGE = (
    "0/60 nodes are available: 12 Insufficient cpu, 48 node(s) had untolerated taint(s). tenant team-a waits: its "
    "weighted share 0.5 is above 0.25 of team-b, which takes the next free capacity."
)
STATUS = {
    "tenant": "team-a",
    "weightedShare": "0.500",
    "tenantsBefore": 3,
    "updated": "2026-01-01T12:00:00Z",
    "waiting": [
        {
            "pods": 2,
            "example": "train-x",
            "requests": {"cpu": "2"},
            "reason": "Unschedulable",
            "message": MESSAGE,
            "position": 2,
            "expectedStart": {"earliestSeconds": 600, "latestSeconds": 1800},
        }
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_cluster()), encoding="utf-8")
    return str(path)


def show(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["why", *words]) == 0
    return capsys.readouterr().out


def make_own_pod(name: str, message: str = MESSAGE, *, owner: str = "train", **more: Any) -> dict[str, Any]:
    """A pod of team-a as its API server has it, of a Job."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status = {"conditions": [condition]} if message else {}
    pod = make_pod(name, namespace="team-a", requests={"cpu": "2"}, status=status, **more)
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": owner, "controller": True}]
    return pod


def test_a_job_has_nodes_by_reason_who_comes_before_and_what_would_help(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = show(capsys, "a-4", "-n", "a", "-f", file)

    assert "Pod waits: a-4 (cpu 1)" in shown
    assert "0 of 2 nodes can take it:\n    1  Insufficient cpu\n    1  node(s) had untolerated taint" in shown
    assert "Before      c takes the next free capacity: its weighted share is 0, that of a 0.375" in shown
    assert "2 tenants that wait come first; their weighted shares: c 0, b 0.125" in shown
    assert "1 pod of its own tenant goes first" in shown
    assert "Would help  a toleration of the taint gpu=true:NoSchedule" in shown
    assert shown.isascii()


def test_a_limit_is_named_with_the_one_that_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "limited.json"
    limit = [{"resources": {"cpu": "3"}}]
    listed = make_snapshot(
        nodes=[make_node("n-1", allocatable={"cpu": "8", "memory": "8Gi", "pods": "110"})],
        pods=make_pods("a", 3, 1),
        tenants=[make_tenant("a", limit=limit)],
    )
    path.write_text(format_snapshot(listed), encoding="utf-8")
    shown = show(capsys, "a-3", "-n", "a", "-f", str(path))

    assert "1  node(s) at the limit for cpu of tenant a" in shown
    assert "Limit       for cpu of tenant a is reached, whatever is free" in shown
    assert "Before" not in shown
    assert "Would help  a limit of 4 of cpu for tenant a" in shown
    assert "--set tenant.a.limit.cpu=4" in shown


def test_all_that_waits_is_explained_without_a_name(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(capsys, "-A", "-f", file)

    assert shown.startswith("All namespaces: 5 pods wait.\n")
    assert "2 pods wait: a/a-3 and 1 more (cpu 1 each)" in shown
    found = json.loads(show(capsys, "-A", "-f", file, "-o", "json"))
    assert [group["tenant"] for group in found["waiting"]] == ["a", "b", "c"]
    assert {str(group["change"]) for group in found["waiting"]} == {"None"}


def test_lines_are_no_wider_than_the_terminal() -> None:
    found = find_why_of(make_cluster(), "a-4")
    for width in (60, 80):
        lines = format_why(found, Terminal(width))
        assert max(map(measure, lines)) <= width
    assert any("\x1b[1m" in line for line in format_why(found, Terminal(80, has_colours=True)))


def find_why_of(listed: Any, word: str) -> why_module.Why:
    path = Path("cluster.json")
    path.write_text(format_snapshot(listed), encoding="utf-8")
    scope = Scope(Source("why", str(path), None, None, "fairbind-system"), "a", everywhere=False)
    return find_why(scope, parse_target(word), None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_many_kinds_of_pods_are_a_short_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [make_pod(f"p-{n}", namespace="a", requests={"cpu": f"{n + 5}"}) for n in range(300)]
    path = tmp_path / "many.json"
    path.write_text(format_snapshot(make_snapshot(nodes=[make_node("n-1")], pods=pods)), encoding="utf-8")
    lines = show(capsys, "-n", "a", "-f", str(path)).splitlines()

    assert f"and {300 - MOST_GROUPS} more kinds of pods; -o json has all" in lines
    assert len(lines) < 150


def test_what_does_not_wait_says_what_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = make_own_pod("train-old", "", phase="Succeeded")
    ending = make_own_pod("train-end", "", node="n-1", phase="Running")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    other = make_own_pod("train-other", "no nodes", scheduler="default-scheduler")
    pods = [make_own_pod("train-run", "", node="n-1", phase="Running"), ended, ending, other]
    with serving(tmp_path, {PODS: pods, "/api/v1/pods": pods}) as served:
        config = f"--kubeconfig={served.kubeconfig}"
        whole = show(capsys, "job/train", config)
        assert show(capsys, "train-run", config) == "Pod train-run in namespace team-a: runs on n-1.\n"
        assert "has ended (Succeeded)" in show(capsys, "pod/train-old", config)
        assert main(["why", "gone", config]) == 1

    assert "job/train in namespace team-a: 4 pods; 1 runs, 1 waits, 1 is ending, 1 has ended." in whole
    assert "Scheduler   default-scheduler, and not fairbind, places it. no nodes" in whole
    assert capsys.readouterr().err.endswith(
        "kubectl fairbind: namespace team-a: there is no pod, and no controller of pods, named 'gone'\n"
    )


def test_a_member_sees_conditions_and_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [make_own_pod("train-x"), make_own_pod("train-y"), make_own_pod("other-z", "", owner="other")]
    objects = {PODS: pods, REPORT: {"metadata": {"namespace": "team-a"}, "status": STATUS}}
    with serving(tmp_path, objects, only=OWN) as served:
        config = f"--kubeconfig={served.kubeconfig}"
        shown = show(capsys, "job/train", config)
        found = json.loads(show(capsys, "job/train", config, "-o", "json"))
        unseen = show(capsys, "other", config)

    assert "job/train in namespace team-a, tenant team-a: 2 pods; 2 wait." in shown
    assert "2 pods wait: train-x and 1 more (cpu 2 each)" in shown
    assert "0 of 60 nodes can take it:\n    48  node(s) had untolerated taint(s)\n    12  Insufficient cpu" in shown
    assert "tenant team-a waits: its weighted share 0.5 is above 0.25 of team-b" in shown
    assert "Before      3 tenants that wait come before yours, whose weighted share is 0.500" in shown
    assert "You can     tolerate the taint, if you may use these nodes; wait until pods end, or request less" in shown
    assert "Start       between 2026-01-01 12:10 UTC and 2026-01-01 12:30 UTC" in shown
    assert shown.endswith(
        f"Not seen: tenants: forbidden for user {USER}; shown is what the pods' conditions and namespace team-a's "
        "ShareReport say.\n"
    )
    assert found["byConditions"][0]["position"] == 2
    assert "no scheduler has looked at it yet; it names fairbind" in unseen


def test_without_a_report_the_conditions_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, {PODS: [make_own_pod("train-x")]}, only=OWN) as served:
        shown = show(capsys, f"--kubeconfig={served.kubeconfig}")

    assert shown.startswith("Namespace team-a: 1 pod waits.\n")
    assert "namespace team-a has no ShareReport (chart value tenantView.enabled); shown is what the pods'" in shown


def test_another_namespace_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, {}, only=OWN) as served:
        assert main(["why", "x", "-n", "team-b", f"--kubeconfig={served.kubeconfig}"]) == 1

    assert capsys.readouterr().err == f"kubectl fairbind: namespace team-b: pods: forbidden for user {USER}\n"


def test_a_name_is_in_one_namespace(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "a-4", "-A", "-f", file]) == 2
    assert main(["why", "job/", "-f", file]) == 2
    assert "must be the name of a pod or a Job" in capsys.readouterr().err


def test_controllers_are_found_by_owner_and_label(tmp_path: Path) -> None:
    owned = make_own_pod("web-5d8-x", owner="web-5d8")
    owned["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    owned["metadata"]["labels"] = {"pod-template-hash": "5d8"}
    with serving(tmp_path, {PODS: [owned, make_own_pod("train-x")]}) as served:
        scope = Scope(Source("why", None, served.kubeconfig, None, "x"), None, everywhere=False)
        names = {
            word: [pod.metadata.name for pod in find_why(scope, parse_target(word), None).pods]
            for word in ("deployment/web", "rs/web-5d8", "web", "jobs.batch/train")
        }
        with pytest.raises(FairbindError, match="named 'statefulset/web'"):
            find_why(scope, parse_target("sts/web"), None)

    assert names == {
        "deployment/web": ["web-5d8-x"],
        "rs/web-5d8": ["web-5d8-x"],
        "web": ["web-5d8-x"],
        "jobs.batch/train": ["train-x"],
    }


def test_waits_are_estimated_where_few_pods_run(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("c-0", "-n", "c", "-f", file, "--run-time", "a=100", "--run-time", "b=100")

    assert "not estimated (--estimate)" in show(capsys, *words[:5])
    assert "Start       all run in" in show(capsys, *words)
    monkeypatch.setattr(why_module, "MOST_RUNNING", 3)
    assert "not estimated: 4 pods run, more than 3" in show(capsys, *words)


def test_what_starts_now_names_the_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "free.json"
    listed = make_snapshot(nodes=[make_node("n-1")], pods=make_pods("a", 0, 1))
    path.write_text(format_snapshot(listed), encoding="utf-8")

    assert "Pod starts now: a-0 (cpu 1)\n  On          n-1." in show(capsys, "a-0", "-n", "a", "-f", str(path))
