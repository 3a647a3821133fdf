"""`kubectl fairbind top`: with all rights, with those of one namespace, in a terminal and in a pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.kubectl.served import OWN, USER, serving
from cluster.builders import make_namespace, make_node, make_pod
from fairbind.cli.kubectl import main
from fairbind.cli.kubectl.tenant_rows import TenantRow, TenantRows, compute_tenant_rows
from fairbind.cli.kubectl.terminal import Terminal, find_terminal
from fairbind.cli.kubectl.top_answer import MOST_ROWS, format_top
from fairbind.cli.mechanisms.tables import measure
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_snapshot, make_tenant

REPORTS = "/apis/fairbind.io/v1alpha1/sharereports"
REPORT = {
    "metadata": {"name": "fairbind", "namespace": "team-a"},
    "status": {
        "tenant": "team-a",
        "claimed": True,
        "weight": "2",
        "policy": "drf",
        "held": {"cpu": "3"},
        "dominantShare": "0.375",
        "weightedShare": "0.188",
        "fairShare": "0.500",
        "dominantResource": "cpu",
        "running": 3,
        "pending": 4,
        "tenantsBefore": 1,
    },
}


def make_cluster() -> ListedObjects:
    """Eight cores: team-a has 3 and wants 4 more, team-b has 1 and wants 1 more, an unclaimed namespace has 4."""

    def pods(namespace: str, running: int, waiting: int) -> list[dict[str, Any]]:
        return [
            make_pod(
                f"{namespace}-{number}",
                namespace=namespace,
                requests={"cpu": "1"},
                created=f"2026-01-01T00:0{number}:00Z",
                node="n-1" if number < running else None,
                phase="Running" if number < running else "Pending",
            )
            for number in range(running + waiting)
        ]

    listed = make_snapshot(
        nodes=[make_node("n-1", allocatable={"cpu": "8", "memory": "64Gi", "pods": "110"})],
        pods=[*pods("team-a", 3, 4), *pods("team-b", 1, 1), *pods("stray", 4, 0)],
        tenants=[make_tenant("team-a", weight=2), make_tenant("team-b")],
        policy={"policy": "drf"},
    )
    listed.time = 1767225600.0 + 3600  # an hour after the first pods
    return listed


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_cluster()), encoding="utf-8")
    return str(path)


def show(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["top", *words]) == 0
    return capsys.readouterr().out


def test_shares_are_of_what_the_cluster_has(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(show(capsys, "-f", file, "-o", "json"))

    assert (found["policy"], found["notSeen"], found["used"]["cpu"]) == ("drf", None, 1.0)
    rows = {row["name"]: row for row in found["tenants"]}
    assert list(rows) == ["team-a", "team-b", "ns/stray"]  # those below their fair shares first
    assert [rows[name]["dominantShare"] for name in rows] == [0.375, 0.125, 0.5]
    assert [rows[name]["fairShare"] for name in rows] == pytest.approx([0.5, 0.25, 0.25])
    assert [rows[name]["wantedShare"] for name in rows] == [0.875, 0.25, 0.5]
    assert [rows[name]["claimed"] for name in rows] == [True, True, False]
    assert [rows[name]["oldestWaitSeconds"] for name in rows] == [3600 - 180, 3600 - 60, None]
    assert rows["team-a"]["held"]["cpu"] == 3.0


def test_a_namespace_shows_its_own_tenant(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "team-b" not in show(capsys, "-f", file, "-n", "team-a")
    assert main(["top", "-f", file, "-n", "gone"]) == 1
    assert capsys.readouterr().err == "kubectl fairbind: --namespace: there is no namespace 'gone'\n"


def test_a_namespace_shows_the_users_of_its_tenant() -> None:
    listed = make_cluster()
    listed.tenants[0]["spec"]["users"] = {"label": "user"}
    for number, pod in enumerate(listed.pods):
        pod.metadata.labels = {"user": f"u{number % 2}"}
    rows = compute_tenant_rows(listed, "team-a").rows
    assert sorted(row.name for row in rows) == ["u0@team-a", "u1@team-a"]


def test_a_tenant_below_another_one_stands_there_by_its_path_where_that_is_short() -> None:
    listed = make_cluster()
    listed.tenants += [make_tenant("lab", namespaces=[]), make_tenant("a-name-of-22-characters", namespaces=[])]
    for tenant, parent in zip(listed.tenants, ("lab", "a-name-of-22-characters"), strict=False):
        tenant["spec"]["parent"] = parent
    found = compute_tenant_rows(listed, None)
    paths = {row["name"]: row.get("path") for row in found.describe()["tenants"]}
    assert paths == {"team-a": "lab/team-a", "team-b": "a-name-of-22-characters/team-b", "ns/stray": None}
    words = [line.split()[0] for line in format_top(found, Terminal(None)) if line]
    assert {"lab/team-a", "team-b", "ns/stray"} <= set(words)


def test_a_pipe_gets_neither_bars_nor_colours(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(capsys, "-f", file)

    assert shown.isascii()
    assert "\x1b" not in shown
    assert "ns/stray *" in shown
    assert "* no Tenant claims the namespace" in shown


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_gets_bars_of_its_width(width: int) -> None:
    found = compute_tenant_rows(make_cluster(), None)

    lines = format_top(found, Terminal(width))
    table = lines[lines.index("") + 1 : lines.index("") + 6]
    assert max(map(measure, lines)) <= width
    assert any("\N{FULL BLOCK}" in line for line in table) == (width > 60)
    ascii_only = format_top(found, Terminal(width, is_unicode=False))
    assert "\n".join(ascii_only).isascii()


def test_yellow_means_below_the_fair_share() -> None:
    lines = format_top(compute_tenant_rows(make_cluster(), None), Terminal(100, has_colours=True))

    assert [line.split()[0] for line in lines if "\x1b[33m" in line and "%" in line] == ["team-a", "team-b"]
    assert [line.split()[0] for line in lines if "\x1b[32m" in line] == ["ns/stray"]


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdout", Screen())

    assert find_terminal({}).has_colours
    assert not find_terminal({"NO_COLOR": "1"}).has_colours
    assert not find_terminal({"TERM": "dumb"}).has_colours
    assert find_terminal({"NO_COLOR": ""}).has_colours


def test_many_tenants_are_a_short_answer() -> None:
    rows = tuple(
        TenantRow(f"t-{n}", True, 1.0, 0.001, 0.001, 0.001, "cpu", 1, 0, None, {}, f"t-{n}") for n in range(2000)
    )
    lines = format_top(TenantRows("drf", rows, 0.0, {}), Terminal(80))

    assert len(lines) < MOST_ROWS + 10
    assert f"and {2000 - MOST_ROWS} more tenants; -o json has all" in lines


def test_a_member_of_a_namespace_sees_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"/apis/fairbind.io/v1alpha1{OWN}sharereports/fairbind"
    with serving(tmp_path, {path: REPORT}, only=OWN) as served:
        shown = show(capsys, f"--kubeconfig={served.kubeconfig}")
        found = json.loads(show(capsys, f"--kubeconfig={served.kubeconfig}", "-o", "json"))

    assert "team-a  37.5%  50.0%       -  cpu     4       -" in shown
    assert f"Not seen: tenants: forbidden for user {USER}; shown is what namespace team-a's ShareReport says." in shown
    assert found["tenants"][0]["held"] == {"cpu": "3"}


def test_a_reader_of_all_namespaces_sees_all_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"metadata": {"namespace": "stray"}, "status": {"tenant": "ns/stray", "claimed": False}}
    twice = {"metadata": {"namespace": "team-a2"}, "status": REPORT["status"]}
    with serving(tmp_path, {REPORTS: [REPORT, twice, other]}, only="sharereports") as served:
        found = json.loads(show(capsys, f"--kubeconfig={served.kubeconfig}", "-A", "-o", "json"))

    assert [row["name"] for row in found["tenants"]] == ["team-a", "ns/stray"]
    assert found["notSeen"].endswith("shown is what the ShareReports say")


def test_without_rights_and_report_one_line_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, {}, only=OWN) as served:
        assert main(["top", f"--kubeconfig={served.kubeconfig}"]) == 1

    assert capsys.readouterr().err == (
        f"kubectl fairbind: tenants: forbidden for user {USER}; "
        "namespace team-a has no ShareReport (chart value tenantView.enabled)\n"
    )


def test_a_user_may_be_impersonated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = {"/api/v1/namespaces": [make_namespace("team-a")]}
    with serving(tmp_path, lists) as served:
        show(capsys, f"--kubeconfig={served.kubeconfig}", "--as", "ada", "--as-group", "g-1", "--as-group", "g-2")
        assert {headers["Impersonate-User"] for headers in served.headers} == {"ada"}
        assert main(["audit", f"--kubeconfig={served.kubeconfig}", "--as", "ben"]) == 0
        assert served.headers[-1]["Impersonate-User"] == "ben"
        assert main(["top", f"--kubeconfig={served.kubeconfig}", "--as-group", "g-1"]) == 2

    assert "--as-group: must stand beside --as" in capsys.readouterr().err
