from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.builders import make_node, make_pod
from fairbind.cli import main, snapshots
from fairbind.cluster.loop.journal import format_record
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_snapshot, make_two_tenants
from what_if.test_replay import record

AWAY = (
    "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    'clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]\nusers: [{name: u, user: {}}]\n'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_two_tenants()), encoding="utf-8")
    return path


def test_json_is_decisions_and_waits(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(file), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found.keys() == {"decisions", "waiting"}
    assert (len(found["decisions"]), len(found["waiting"])) == (8, 4)


def test_the_table_has_the_order_the_reasons_and_who_waits(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(file)]) == 0
    shown = capsys.readouterr().out

    assert re.search(r"^tenant +start +wait\n-+  -+  -+\na +4 +2\nb +4 +2\n", shown, flags=re.MULTILINE)
    assert re.search(r"^a/a-0 +a +4\n    on n-[12][^:]*: a comes next: its weighted share is 0,", shown, re.MULTILINE)
    assert re.search(r"^b/b-4 +b +2\n    0/2 nodes are available", shown, flags=re.MULTILINE)


def test_a_scheduler_may_be_named_beside_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What kubectl lists names no scheduler, and a snapshot may have been written for another one."""
    assert main(["replay", str(file), "--scheduler-name", "default-scheduler", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"decisions": [], "waiting": []}


def test_a_table_has_a_row_for_each_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_two_tenants(count=500, cpu="200")), encoding="utf-8")

    assert main(["replay", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "32 pods start now, and 968 wait.\n" in shown
    assert [int(count) for count in re.findall(r"^[ab]/\S+ +[ab] +(\d+)$", shown, re.MULTILINE)] == [16, 16, 484, 484]
    assert main(["replay", str(path), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["decisions"]) + len(found["waiting"]) == 1000


def test_a_table_stays_short_where_all_pods_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Thousands of classes and of tenants: a person reads some and is told of the rest."""
    pods = [
        make_pod(f"job-{number}", namespace=f"team-{number % 40:02}", requests={"cpu": f"{1000 + number}m"})
        for number in range(200)
    ]
    nodes = [make_node(f"node-{number}", allocatable={"cpu": "40", "pods": "110"}) for number in range(2)]
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_snapshot(nodes=nodes, pods=pods)), encoding="utf-8")

    assert main(["replay", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    start, wait = (int(part.split()[0]) for part in lines[2].removesuffix(" wait.").split(" pods start now, and "))
    assert start + wait == 200
    assert "30 of 40 tenants, most waiting first; -o json has all" in lines
    assert f"and {start - 20} pods of {start - 20} other kinds; -o json has all" in lines
    assert f"and {wait - 20} pods of {wait - 20} other kinds; -o json has all" in lines
    assert len(lines) < 250
    assert max(map(len, lines)) <= 80


def test_a_journal_is_equal_or_the_first_difference_is_status_1(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, other = tmp_path / "journal", tmp_path / "other"
    journal.write_bytes(b"".join(map(format_record, record(make_two_tenants(), 3))) + b"half a line")
    other.write_bytes(b"".join(map(format_record, record(make_two_tenants(policy="first-fit-drfh")))))

    assert main(["replay", str(file), "--journal", str(journal)]) == 0
    shown = capsys.readouterr()
    assert "Journal: all 3 cycles with 8 decisions are equal." in shown.out
    assert shown.err == f"fairbind: {journal}: 1 lines are no cycles, the first is line 4\n"
    assert main(["replay", str(file), "--journal", str(other), "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["journal"]
    assert not found["equal"]
    assert found["difference"].startswith("cycle 1: policy first-fit-drfh")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "nodes: is missing"),
        ("[]", "must be an object"),
        ("{", "must be JSON"),
        ("", "is empty"),
        ('{"nodes": [], "pods": [], "podz": []}', "podz"),
    ],
)
def test_a_file_that_is_no_snapshot_is_one_line_and_status_2(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")

    assert main(["replay", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"fairbind: [^\n]+\n", shown.err)
    assert said in shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", "/nonexistent/file"], "/nonexistent/file"),
        (["snapshot", "-o", "x"], "No such option .*-o"),
        (["snapshot", "--out", "x", "--kubeconfig", "/nonexistent/config"], "/nonexistent/config"),
    ],
)
def test_invalid_words_are_one_line_and_status_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert re.fullmatch(rf"fairbind: [^\n]*{said}[^\n]*\n", capsys.readouterr().err)


def test_no_journal_in_the_file_is_status_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(file), "--journal", str(file)]) == 2
    assert "must be a journal of the operator" in capsys.readouterr().err


def test_a_cluster_that_is_away_is_status_1_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig, target = tmp_path / "config", tmp_path / "out.json"
    kubeconfig.write_text(AWAY, encoding="utf-8")

    assert main(["snapshot", "--kubeconfig", str(kubeconfig), "--out", str(target)]) == 1
    assert re.fullmatch(r"fairbind: tenants\.fairbind\.io: [^\n]*127\.0\.0\.1[^\n]*\n", capsys.readouterr().err)
    assert not target.exists()


def list_nothing_real(*_: Any, **__: Any) -> ListedObjects:
    return make_two_tenants()


def test_a_snapshot_goes_to_a_file_or_to_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(snapshots, "read_objects", list_nothing_real)
    target = tmp_path / "out.json"

    assert main(["snapshot", "--out", str(target)]) == 0
    assert main(["snapshot"]) == 0
    assert target.read_text(encoding="utf-8") == capsys.readouterr().out == format_snapshot(make_two_tenants())
    assert main(["snapshot", "--anonymise"]) == 0
    assert "n-1" not in capsys.readouterr().out
    assert main(["snapshot", "--out", str(tmp_path / "no" / "folder")]) == 2
    assert re.fullmatch(r"fairbind: --out: [^\n]+No such file[^\n]*\n", capsys.readouterr().err)


def test_a_snapshot_is_simulated_with_the_same_bytes_side_by_side(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "--from", str(file), "--run-time", "a=60", "--policy", "ps-dsf", "--policy", "fifo"]
    words += ["--tables", "csv"]
    assert main([*words, "--out", str(tmp_path / "one")]) == 0
    assert main([*words, "--out", str(tmp_path / "two"), "--jobs", "2"]) == 0
    shown = capsys.readouterr().out

    assert "6 of 12 pods have a run time" in shown
    assert "a/a-0" in (tmp_path / "one" / "tasks.csv").read_text(encoding="utf-8")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "SCENARIO: must be there"),
        (["-", "--from", "-"], "--from: must not be standard input"),
        (["scenario.yaml", "--run-time", "a=1"], "--run-time: must stand beside --from"),
        (["--from", "FILE", "--run-time", "a=2000000000"], "--run-time: a: must be at most"),
        (["--from", "/nonexistent/file"], "/nonexistent/file"),
    ],
)
def test_a_simulation_that_makes_no_sense_is_status_2(
    words: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *(str(file) if word == "FILE" else word for word in words)]) == 2
    assert re.fullmatch(rf"fairbind: [^\n]*{said}[^\n]*\n", capsys.readouterr().err)
