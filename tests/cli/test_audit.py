from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.cli import main
from fairbind.cli.audit import MOST_ROWS, describe_report, format_report
from fairbind.model.overview import ClusterOverview, TenantOverview
from fairbind.scheduling.fair_shares.audit import AuditReport, Cause, Finding
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_snapshot, make_tenant, make_two_tenants

ENVY = Finding("b", "a", 0.0, 0.75, Cause.HISTORY)
LATER = "2026-01-01T01:00:00Z"
ALONE = Finding("b", None, 0.0, 0.5, Cause.INDIVISIBLE)


def make_overview(*, fair_share: float | None = 0.5) -> ClusterOverview:
    rich = TenantOverview("a", 1.0, 0.75, "cpu", 0.75, {}, 9, {}, fair_share=fair_share)
    poor = TenantOverview("b", 2.5, 0.0, None, 0.0, {}, 0, {"queued": 3}, backlogged=True, fair_share=fair_share)
    error = None if fair_share is None else 0.5
    return ClusterOverview({"cpu": 12.0}, {"cpu": 9.0}, 1, (rich, poor), 0.5, share_error=error)


def test_the_table_says_who_holds_what_and_every_finding() -> None:
    lines = format_report("tsf", make_overview(), AuditReport((ENVY,), (ALONE,), 2))

    assert lines[0] == "Policy tsf; 2 tenants that want something; dominant shares."
    words = [line.split() for line in lines]
    assert ["a", "1", "0.750", "0.500", "no"] in words
    assert ["b", "2.5", "0.000", "0.500", "yes"] in words
    assert ["b", "a", "history", "0.000", "0.750"] in words
    assert ["b", "its", "own", "indivisible_tasks", "0.000", "0.500"] in words


def test_the_table_says_when_there_is_nothing() -> None:
    lines = format_report("fifo", make_overview(fair_share=None), AuditReport((), (), 2))

    assert [line for line in lines if line.endswith(": no tenant.")] == [
        "Envy: who could run more with what another holds: no tenant.",
        "Sharing incentive: who could run more in a cluster of its own: no tenant.",
    ]
    assert [line.split()[3] for line in lines if line.endswith((" no", " yes"))] == ["-", "-"]


def test_the_table_is_cut_and_says_so() -> None:
    lines = format_report("tsf", make_overview(), AuditReport((ENVY,) * (MOST_ROWS + 7), (), 2))

    assert sum("history" in line for line in lines) == MOST_ROWS
    assert "and 7 more; -o json has all" in lines


def test_of_many_tenants_those_are_shown_that_are_worst_off() -> None:
    tenants = tuple(
        TenantOverview(f"t{number:02}", 1.0, number / 100, "cpu", 0.1, {}, 1, {}, fair_share=0.5)
        for number in range(40)[::-1]
    )
    overview = ClusterOverview({"cpu": 12.0}, {"cpu": 9.0}, 1, tenants, 0.5)
    lines = format_report("tsf", overview, AuditReport((), (), 40))

    assert [line.split()[0] for line in lines[4:34]] == [f"t{number:02}" for number in range(30)]
    assert lines[34] == "30 of 40 tenants, the worst off first; -o json has all"


def test_json_has_everything_in_full() -> None:
    report = AuditReport((ENVY,) * (MOST_ROWS + 7), (ALONE,), 2)
    found = json.loads(json.dumps(describe_report("tsf", make_overview(), report), allow_nan=False))

    assert (found["policy"], found["compared"], found["shareError"]) == ("tsf", 2, 0.5)
    assert found["tenants"]["b"] == {"weight": 2.5, "dominantShare": 0.0, "fairShare": 0.5, "backlogged": True}
    assert len(found["envy"]) == MOST_ROWS + 7
    assert found["envy"][0] == {"tenant": "b", "envied": "a", "has": 0.0, "couldHave": 0.75, "cause": "history"}
    assert "envied" not in found["sharingIncentiveViolations"][0]


def test_inner_tenants_stand_there_by_path_with_all_that_is_below_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = make_two_tenants()
    listed.tenants = [make_tenant("team", namespaces=["own"]), make_tenant("a", parent="team"), make_tenant("b")]
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(listed), encoding="utf-8")

    assert main(["audit", str(path)]) == 0
    shown = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in shown if line[-1:] == ["0.500"]] == [
        ["b", "1", "0.000", "0.500"],
        ["team", "1", "0.000", "0.500"],
        ["team/a", "1", "0.000", "0.500"],
    ]
    assert main(["audit", str(path), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["innerTenants"]["team"]["fairShare"] == pytest.approx(0.5)
    assert (found["tenants"]["a"]["parent"], "parent" in found["tenants"]["b"]) == ("team", False)


def test_json_of_a_policy_without_fairness_says_null() -> None:
    found = describe_report("fifo", make_overview(fair_share=None), AuditReport((), (), 2))

    assert found["shareError"] is None
    assert found["tenants"]["a"]["fairShare"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kubeconfig", "/nonexistent/config"], "/nonexistent/config"),
        (["--output", "xml"], "xml"),
        (["--namespace", "No Such Name"], "--namespace"),
        (["more"], "more: no such file"),
        (["one", "more"], "more"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_status_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"fairbind: [^\n]+\n", shown.err)
    assert said in shown.err


def test_a_cluster_that_is_away_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        'clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]\nusers: [{name: u, user: {}}]\n'
    )
    assert main(["audit", "--kubeconfig", str(kubeconfig)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"fairbind: tenants\.fairbind\.io: [^\n]*127\.0\.0\.1[^\n]*\n", shown.err)


def test_a_context_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        'clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]\nusers: [{name: u, user: {}}]\n'
    )

    assert main(["audit", "--kubeconfig", str(kubeconfig), "--context", "elsewhere"]) == 2
    assert re.fullmatch(r"fairbind: kubeconfig [^\n]*elsewhere[^\n]*\n", capsys.readouterr().err)


def test_a_snapshot_is_audited_as_a_cluster_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_two_tenants()), encoding="utf-8")

    assert main(["audit", str(path), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["tenants"].keys()) == ("best-fit-drfh", {"a", "b"})
    assert found["sharingIncentiveViolations"]
    assert main(["audit", str(path), "--scheduler-name", "other", "-o", "json"]) == 0
    assert not json.loads(capsys.readouterr().out)["sharingIncentiveViolations"]  # nothing waits for that one
    assert main(["audit", str(path), "--context", "x"]) == 2
    assert "FILE: must be left out beside --context" in capsys.readouterr().err
    assert main(["problem", str(path), "-o", "json"]) == 0
    assert [tenant["name"] for tenant in json.loads(capsys.readouterr().out)["tenants"]] == ["a", "b"]


def make_group(number: int, cpu: str) -> Json:
    marks = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    return make_pod(f"m{number}", namespace="a", requests={"cpu": cpu}, labels=labels, annotations=marks, created=LATER)


def test_what_is_free_and_too_scattered_for_a_group_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six cores stay free, two on each node, when the pods without a group have started."""
    names = ("n-1", "n-2", "n-3")
    nodes = [make_node(name, labels={"name": name}, allocatable={"cpu": "3", "pods": "9"}) for name in names]
    single = [make_pod(f"on-{n}", namespace="a", requests={"cpu": "1"}, nodeSelector={"name": n}) for n in names]
    path = tmp_path / "cluster.json"
    for cpu, scattered in (("3", {"cpu": 6.0}), ("4", {})):
        pods = [make_group(0, cpu), make_group(1, cpu), *single]
        path.write_text(format_snapshot(make_snapshot(nodes=nodes, pods=pods)), encoding="utf-8")
        assert main(["audit", str(path), "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)["scattered"]
        assert {resource: amount for resource, amount in found.items() if resource == "cpu"} == scattered
        assert main(["audit", str(path)]) == 0
        told = "Free, but too scattered for a group that waits: 6 cpu" in capsys.readouterr().out
        assert told == bool(scattered)


def test_it_does_not_load_the_library_that_runs_the_operator() -> None:
    program = "import sys; import fairbind.cli.audit; sys.exit('kopf' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], timeout=300, check=False).returncode == 0
