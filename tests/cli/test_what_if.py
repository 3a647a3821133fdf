from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from fairbind.cli import main
from fairbind.cluster.objects.dry_run import DryRun
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.what_if.changes import set_field
from fairbind.what_if.snapshot_file import format_snapshot
from fairbind.what_if.submission import ONE_POD, Manifests, make_trial_pod
from what_if.snapshots import make_tenant, make_two_tenants

if TYPE_CHECKING:
    from fairbind.cli.cluster_listing import Source

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
        *("starts_now", "pods", "starting", "nodes", "groups", "reason", "change", "wait_seconds", "not_applied"),
    }
    assert (found["before"]["tenants"]["a"]["weight"], found["after"]["tenants"]["a"]["weight"]) == (1.0, 2.0)
    assert (found["before"]["tenants"]["a"]["pending"], found["after"]["tenants"]["a"]["pending"]) == (6, 9)
    assert (found["submit"]["starts_now"], found["submit"]["pods"]) == (False, 3)


def test_the_table_has_inner_tenants_by_path_and_says_who_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = make_two_tenants()
    listed.tenants = [make_tenant("team", namespaces=[]), make_tenant("a", parent="team"), make_tenant("b")]
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(listed), encoding="utf-8")
    assert main(["what-if", str(path), "--set", "tenant.b.parent=team"]) == 0
    shown = capsys.readouterr().out

    rows = [line.split()[0] for line in shown.partition("\n\n")[2].partition("\n\n")[0].splitlines()[2:]]
    assert rows == ["b", "team", "team/a"]
    assert "b -> team/b" in shown
    assert "0.500 -> 1.000" in shown


SMALL_JOB = JOB.replace("cpu: 2", "cpu: 1")


def test_a_limit_is_set_and_the_one_that_would_have_to_rise_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an empty cluster of 8 CPUs; the job asks for 3. Limits of some nodes stay what they are."""
    cluster, job = tmp_path / "cluster.json", tmp_path / "job.yaml"
    listed = msgspec.structs.replace(make_two_tenants(), pods=[])
    some = {"nodes": {"matchLabels": {"gpu": "none"}}, "resources": {"cpu": 1}}
    tenants = [{**each, "spec": {**each["spec"], "limit": [some]}} for each in listed.tenants]
    cluster.write_text(format_snapshot(msgspec.structs.replace(listed, tenants=tenants)), encoding="utf-8")
    job.write_text(SMALL_JOB, encoding="utf-8")
    options = ["what-if", str(cluster), "--submit", str(job), "-o", "json", "--set"]

    assert main([*options, "tenant.a.limit.cpu=3"]) == 0
    assert json.loads(capsys.readouterr().out)["submit"]["starts_now"] is True

    assert main([*options, "tenant.a.limit.cpu=2500m"]) == 0
    submit = json.loads(capsys.readouterr().out)["submit"]
    assert submit["starts_now"] is False
    assert "The limit for cpu of tenant a is reached." in submit["reason"]
    assert submit["change"]["kind"] == "limit"
    assert submit["change"]["option"] == "--set tenant.a.limit.cpu=5500m"
    assert main([*options, "tenant.a.limit.cpu=5500m"]) == 0
    assert json.loads(capsys.readouterr().out)["submit"]["starts_now"] is True


def test_the_limit_of_a_parent_that_would_have_to_rise_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both limits are below the three cores that the job asks for."""
    cluster, job = tmp_path / "cluster.json", tmp_path / "job.yaml"
    listed = set_field(msgspec.structs.replace(make_two_tenants(), pods=[]), "a", "parent", "b")
    for tenant in "ab":
        listed = set_field(listed, tenant, "limit.cpu", "1")
    cluster.write_text(format_snapshot(listed), encoding="utf-8")
    job.write_text(SMALL_JOB, encoding="utf-8")

    assert main(["what-if", str(cluster), "--submit", str(job), "-o", "json"]) == 0
    change = json.loads(capsys.readouterr().out)["submit"]["change"]
    assert change["tenant"] == "a, b"
    assert change["option"] == "--set tenant.a.limit.cpu=4 --set tenant.b.limit.cpu=4"
    assert main(["what-if", str(cluster), "--submit", str(job), "-o", "json", *change["option"].split()]) == 0
    assert json.loads(capsys.readouterr().out)["submit"]["starts_now"] is True


def test_a_place_in_the_tree_is_set(file: str) -> None:
    listed = make_two_tenants()
    for field, value, found in (
        ("parent", "b", "b"),
        ("priority", "-5", -5),
        ("lending", "Never", "Never"),
        ("guarantee.cpu", "2", [{"resources": {"cpu": "2"}}]),
    ):
        changed = set_field(listed, "a", field, value)
        assert (
            next(one["spec"] for one in changed.tenants if one["metadata"]["name"] == "a")[field.split(".")[0]] == found
        )
        assert main(["what-if", file, "--set", f"tenant.a.{field}={value}"]) == 0
    below = set_field(listed, "a", "parent", "b")
    assert parse_tenant(set_field(below, "a", "parent", "").tenants[0]).parent is None


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

    assert "Now 8 pods start and 4 wait; after the changes 8 pods start and 7 wait." in " ".join(shown.split())
    assert re.search(r"^a +1 -> 3 +0 +6 -> 9 +0\.500 -> 0\.750 ", shown, flags=re.MULTILINE)
    assert re.search(r"^a/a-4 +a +2\n    on n-[12](, n-[12])?$", shown, flags=re.MULTILINE)
    assert re.search(r"^b/b-2 +b +2\n    0/2 nodes are available", shown, flags=re.MULTILINE)
    assert "Submitted: 0 of 3 pods of tenant a start now." in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_job_that_starts_is_one_line(file: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", file, "--add-nodes", "like=n-1,count=9", "--submit", job]) == 0
    assert re.search(
        r"^Submitted: all 3 pods of tenant a start now, on n-[^\n]+\.$", capsys.readouterr().out, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "tenant.a=2"], r"tenant\.a=2.* must be as tenant\.a\.weight=2"),
        (["--set", "tenant.a.limit.cpu=-1"], r"tenant\.a\.limit\[0\].resources\[cpu\] must be a quantity of 0 or more"),
        (["--set", "tenant.c.weight=2"], r'--set: "c" is no Tenant and no namespace without one here'),
        (["--set", "tenant.a.weight=-1"], r"tenant\.a\.weight must be"),
        (["--set", "tenant.a.weight="], r"tenant\.a\.weight must be"),
        (["--set", "tenant.a.priority=high"], r"tenant\.a\.priority must be a whole number from -1000 to 1000"),
        (["--set", "tenant.a.lending=Sometimes"], r"tenant\.a\.lending must be Always or Never"),
        (["--set", "tenant.a.parent=c"], r'tenant\.a\.parent: "c" is no Tenant here'),
        (["--set", "tenant.a.parent=a"], r"tenant\.a\.parent must be the name of another Tenant"),
        (
            ["--set", "tenant.a.parent=b", "--set", "tenant.b.parent=a"],
            r"--set: tenant\.b\.parent must be another Tenant: the tenant would be above itself: b/a/b",
        ),
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


MORE = """
---
apiVersion: v1
kind: Service
metadata: {name: train, namespace: a}
---
apiVersion: v1
kind: LimitRange
metadata: {name: bounds, namespace: c}
spec: {limits: [{type: Container, defaultRequest: {cpu: 3}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: c}
spec: {replicas: 2, template: {spec: {containers: [{name: main, image: secret}]}}}
---
"""


def test_a_file_of_several_documents_is_submitted_whole(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(JOB + MORE, encoding="utf-8")

    assert main(["what-if", file, "--add-nodes", "like=n-1,count=9", "--submit", str(path), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["submit"]["pods"], found["submit"]["starts_now"]) == (5, True)
    starts = [start["node"] for start in found["after"]["starts"] if start["namespace"] == "c"]
    assert len(set(starts)) == len(starts) == 2  # three of four cores each
    assert main(["what-if", file, "--add-nodes", "like=n-1,count=9", "--submit", str(path)]) == 0
    assert "Submitted: all 5 pods of tenants a, ns/c start now, on " in capsys.readouterr().out


def test_the_table_names_what_was_not_applied(file: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", file, "--submit", job]) == 0
    said = "Not applied to the pods: admission webhooks, admission policies and ResourceQuotas; defaults and bounds of "
    assert said in " ".join(capsys.readouterr().out.split())


def test_on_a_cluster_a_pod_of_each_template_is_tried(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that the API server gives four cores: one a node, and two nodes are full of others' pods by then."""
    asked: list[dict[str, Any]] = []

    def ask(source: Source, manifests: Manifests) -> list[DryRun]:
        assert source.file is None
        pods = [make_trial_pod(template) for template in manifests.templates]
        asked.extend(pods)
        spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "5"}}}]}
        return [DryRun(pod={"metadata": {}, "spec": spec}) for _ in pods]

    what_if = importlib.import_module("fairbind.cli.what_if")  # beside the command of this name
    monkeypatch.setattr(what_if, "read_objects", lambda _source: make_two_tenants())
    monkeypatch.setattr(what_if, "create_on_cluster_trial", ask)

    assert main(["what-if", "--submit", job, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["submit"]
    assert len(asked) == 1
    assert (found["pods"], found["starting"], found["not_applied"]) == (3, 0, [ONE_POD])


def test_a_namespace_without_a_tenant_is_set_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = make_two_tenants()
    listed.tenants = []
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(listed), encoding="utf-8")

    assert main(["what-if", str(path), "--set", "tenant.ns/a.weight=3", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after"]["tenants"]["ns/a"]["weight"] == 3.0


def test_a_scheduler_may_be_named_beside_a_file(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", file, "--scheduler-name", "other", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["before"]["waits"] == []
