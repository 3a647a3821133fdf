from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairbind.cli import main
from fairbind.simulator.snapshot_file import format_snapshot
from simulator.snapshots import make_two_tenants

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: a}
spec:
  parallelism: 3
  template:
    spec:
      containers: [{name: main, image: secret, resources: {requests: {cpu: 2, memory: 1Gi}}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_two_tenants()), encoding="utf-8")
    return str(path)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return str(path)


def test_json_has_before_after_and_the_submission(file: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", file, "--set", "tenant.a.weight=2", "--submit", job, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found.keys() == {"before", "after", "submit"}
    assert found["before"].keys() == found["after"].keys() == {"starts", "waits", "tenants"}
    assert found["submit"].keys() == {
        *("starts_now", "pods", "starting", "nodes", "reason", "change", "wait_seconds"),
    }
    assert (found["before"]["tenants"]["a"]["weight"], found["after"]["tenants"]["a"]["weight"]) == (1.0, 2.0)
    assert (found["before"]["tenants"]["a"]["pending"], found["after"]["tenants"]["a"]["pending"]) == (6, 9)
    assert (found["submit"]["starts_now"], found["submit"]["pods"]) == (False, 3)


def test_without_a_submission_it_is_null(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", file, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["submit"] is None
    assert found["before"] == found["after"]


def test_all_changes_go_together(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--add-nodes", "like=n-1,count=2", "--remove-node", "n-1", "--cordon", "n-2", "--uncordon", "n-2"]
    assert main(["what-if", file, *words, "--policy", "ps-dsf", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert {start["node"] for start in found["after"]["starts"]} == {"n-1-new-0", "n-1-new-1", "n-2"}


def test_the_table_says_what_changes(file: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", file, "--set", "tenant.a.weight=3", "--submit", job, "--run-time", "a=60"]) == 0
    shown = capsys.readouterr().out

    assert "Now 8 pods start and 4 wait; after the changes 8 pods start and 7 wait." in shown
    assert re.search(r"^a +1 -> 3 +0 +6 -> 9 +0\.500 -> 0\.750 ", shown, flags=re.MULTILINE)
    assert re.search(r"^a/a-4 +a +n-[12]$", shown, flags=re.MULTILINE)
    assert re.search(r"^b/b-3 +b +0/2 nodes are available", shown, flags=re.MULTILINE)
    assert "Submitted: 0 of 3 pods of tenant a start now." in shown


def test_a_job_that_starts_is_one_line(file: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", file, "--add-nodes", "like=n-1,count=9", "--submit", job]) == 0
    assert re.search(
        r"^Submitted: all 3 pods of tenant a start now, on n-[^\n]+\.$", capsys.readouterr().out, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "tenant.a=2"], r"tenant\.a=2.* must be as tenant\.a\.weight=2"),
        (["--set", "tenant.c.weight=2"], r'--set: "c" is no Tenant here'),
        (["--set", "tenant.a.weight=-1"], r"tenant\.a\.weight must be"),
        (["--add-nodes", "n-1"], r"n-1.* must be as like=gpu-1,count=10"),
        (["--add-nodes", "like=n-1,count=-3"], r"must be as like="),
        (["--add-nodes", "like=n-7"], r'--add-nodes: "n-7" is no node here'),
        (["--remove-node", "n-7"], r"--remove-node"),
        (["--cordon", "n-7"], r"--cordon"),
        (["--policy", "psdsf"], r"--policy: .*ps-dsf"),
        (["--submit", "/nonexistent/job"], r"/nonexistent/job"),
        (["--run-time", "a"], r"must be as a=600"),
        (["--context", "x"], r"FILE: must be left out"),
        (["more"], r"more"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(
    words: list[str], said: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", file, *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(rf"fairbind: [^\n]*{said}[^\n]*\n", shown.err), shown.err


def test_a_manifest_without_pods_is_one_line(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "map.yaml"
    manifest.write_text("kind: ConfigMap\ndata: {}\n", encoding="utf-8")

    assert main(["what-if", file, "--submit", str(manifest)]) == 2
    assert re.fullmatch(r"fairbind: manifest: must have a pod template[^\n]*\n", capsys.readouterr().err)
