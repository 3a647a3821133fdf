"""Commands that look at a cluster whose operator has several scheduler names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.kubectl.served import serving
from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.cli import main
from fairbind.cli.kubectl import main as plugin
from fairbind.what_if.anonymise import anonymise
from fairbind.what_if.changes import remove_node
from fairbind.what_if.comparison import count_more
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot
from fairbind.what_if.trial import Trial
from what_if.snapshots import make_snapshot, make_tenant

BOTH = ("--scheduler-name", "fairbind", "--scheduler-name", "volcano")
NODES = [make_node(name, allocatable={"cpu": "4", "memory": "16Gi", "pods": "110"}) for name in ("n-1", "n-2")]
PODS = [
    make_pod("own", namespace="a", requests={"cpu": "1"}),
    make_pod("runs", namespace="b", requests={"cpu": "1"}, node="n-1", phase="Running", schedulerName="volcano"),
    make_pod("ray", namespace="b", requests={"cpu": "1"}, schedulerName="volcano"),
    make_pod("gated", namespace="b", schedulerName="volcano", schedulingGates=[{"name": "wait"}]),
    make_pod("other", namespace="b", requests={"cpu": "1"}, schedulerName="default-scheduler"),
]
LISTS: dict[str, list[Json]] = {
    "/api/v1/nodes": NODES,
    "/api/v1/pods": PODS,
    "/api/v1/namespaces/b/pods": [pod for pod in PODS if pod["metadata"]["namespace"] == "b"],
    "/api/v1/namespaces": [make_namespace(name) for name in "ab"],
}


def make_cluster(*names: str) -> ListedObjects:
    listed = make_snapshot(nodes=NODES, pods=PODS, tenants=[make_tenant("a"), make_tenant("b")])
    if names:
        listed.set_names(names)
    return listed


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_cluster()), encoding="utf-8")
    return str(path)


def read(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_pods_of_all_names_are_decided(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [each["pod"] for each in read(capsys, "replay", file)["decisions"]] == ["own"]
    found = read(capsys, "replay", file, *BOTH)
    assert sorted(each["pod"] for each in found["decisions"]) == ["own", "ray"]
    assert [each["pod"] for each in found["waiting"]] == ["gated"]


def test_the_variable_may_have_several_names(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRBIND_SCHEDULER_NAME", "fairbind volcano")
    assert len(read(capsys, "replay", file)["decisions"]) == 2


def test_all_commands_take_several_names(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(capsys, "what-if", file, *BOTH)["before"]["starts"][1]["pod"] == "ray"
    assert read(capsys, "audit", file, *BOTH)["tenants"]["b"]["backlogged"]
    assert not read(capsys, "audit", file)["tenants"]["b"]["backlogged"]
    assert plugin(["top", "-f", file, *BOTH, "-o", "json"]) == 0
    rows = {row["name"]: row["pending"] for row in json.loads(capsys.readouterr().out)["tenants"]}
    assert rows == {"a": 1, "b": 2}
    assert plugin(["why", "ray", "-n", "b", "-f", file, *BOTH, "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["waiting"]) == 1
    assert main(["simulate", "--from", file, *BOTH, "-o", "json"]) == 0
    assert '"decisions": 3,' in capsys.readouterr().out


def test_a_file_keeps_the_names() -> None:
    listed = make_cluster("fairbind", "volcano", "fairbind")
    assert (listed.scheduler_name, listed.other_names) == ("fairbind", ("volcano",))
    again = parse_snapshot(json.loads(format_snapshot(listed)))
    assert (again.scheduler_name, again.other_names) == ("fairbind", ("volcano",))
    assert "otherSchedulerNames" not in format_snapshot(make_cluster())
    hidden = anonymise(listed)
    assert (hidden.other_names, sum(map(hidden.is_ours, hidden.pods))) == (("volcano",), 4)


def test_pods_of_all_names_wait_again_when_their_node_goes() -> None:
    listed = remove_node(make_cluster("fairbind", "volcano"), "n-1")
    assert [pod.metadata.name for pod in listed.pods if pod.spec.node_name is None and listed.is_ours(pod)] == [
        *("own", "runs", "ray", "gated")
    ]


def test_a_tenant_that_only_waits_under_another_name_is_asked_about() -> None:
    listed = make_cluster("fairbind", "volcano")
    listed.pods = [pod for pod in listed.pods if pod.metadata.name != "runs"]
    assert count_more(Trial(listed), listed).keys() == {"a", "b"}


def test_a_hint_names_the_scheduler_only_when_no_pod_waits_for_any(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(file)
    listed = make_cluster("other", "volcano")
    path.write_text(format_snapshot(listed), encoding="utf-8")
    assert main(["replay", file]) == 0
    assert capsys.readouterr().err == ""
    listed.set_names(["other"])
    path.write_text(format_snapshot(listed), encoding="utf-8")
    assert main(["replay", file]) == 0
    assert "no pod waits for other" in capsys.readouterr().err


def test_who_may_not_list_what_describes_groups_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, LISTS, without=("podgroups", "jobs")) as served:
        kubeconfig = f"--kubeconfig={served.kubeconfig}"
        assert main(["replay", kubeconfig, *BOTH, "-o", "json"]) == 0
        shown = capsys.readouterr()
        assert len(json.loads(shown.out)["decisions"]) == 2
        assert shown.err.startswith("fairbind: not seen: podgroups.scheduling.k8s.io cannot be listed: 403 ")
        assert "; jobs cannot be listed: 403 " in shown.err
        for words in (["top"], ["why", "ray", "-n", "b"]):
            assert plugin([*words, kubeconfig, *BOTH, "-o", "json"]) == 0
            shown = capsys.readouterr()
            assert "jobs cannot be listed: 403 " in json.loads(shown.out)["notSeen"]
            assert shown.err == ""
        assert main(["snapshot", kubeconfig, *BOTH]) == 0
        assert parse_snapshot(json.loads(capsys.readouterr().out)).other_names == ("volcano",)
