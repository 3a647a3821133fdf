from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairbind.cli import main
from fairbind.cli.import_command import SYSTEMS
from fairbind.cli.import_queues import format_tenants
from fairbind.importing.systems import READERS
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_two_tenants

API = "apiVersion: scheduling.volcano.sh/v1beta1\n"
QUEUES = f"""{API}kind: Queue
metadata: {{name: team-a}}
spec: {{weight: 2, reclaimable: false, capability: {{cpu: 1}}}}
---
{API}kind: Queue
metadata: {{name: team-b}}
"""
WRITTEN = """apiVersion: fairbind.io/v1alpha1
kind: Tenant
metadata:
  name: team-a
spec:
  weight: 2
  limit:
  - resources:
      cpu: "1"
---
apiVersion: fairbind.io/v1alpha1
kind: Tenant
metadata:
  name: team-b
spec: {}
"""
TOLD = """Queue team-a: spec.reclaimable: fairbind evicts no pod for another queue

2 Tenants in {out}; 1 setting has no counterpart.
No file says which namespaces belong to team-a, team-b: add spec.namespaces.
"""


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(QUEUES, encoding="utf-8")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "tenants.yaml"


def test_tenants_alone_go_into_the_file_and_what_is_left_out_is_printed(
    queues: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "volcano", str(queues), "-o", str(out)]) == 0

    assert out.read_text(encoding="utf-8") == WRITTEN
    assert capsys.readouterr().out == TOLD.format(out=out)


def test_standard_input_and_output_are_files_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(QUEUES.encode())))
    assert main(["import", "volcano", "-", "-o", "-"]) == 0

    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (WRITTEN, TOLD.format(out="standard output"))


def test_several_files_are_one_tree(queues: Path, out: Path, tmp_path: Path) -> None:
    child = tmp_path / "child.json"
    child.write_text(
        '{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "child"}, '
        '"spec": {"parent": "team-b"}}',
        encoding="utf-8",
    )
    assert main(["import", "volcano", str(child), str(queues), "-o", str(out)]) == 0

    found = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(out.read_text(encoding="utf-8"))}
    assert found["child"] == {"parent": "team-b"}


@pytest.mark.parametrize(
    ("system", "text", "message"),
    [
        ("kai", QUEUES, "FILE: must hold Queue of scheduling.run.ai, but holds Queue of scheduling.volcano.sh"),
        ("kueue", "kind: Job\napiVersion: batch/v1\n", "but holds Job of batch"),
        ("volcano", QUEUES.replace(": 2", ": x"), "{file}, document 1: Queue team-a: spec.weight must be"),
        ("volcano", "a: 1\na: 2\n", "{file}: a: must stand here once, but is there again"),
        ("yunikorn", "queues.yaml: '{a: 1, a: 2}'", "{file}, document 1, queues.yaml: a: must stand here once"),
        ("volcano", "a: [", "{file}: must be YAML, but line 2"),
        ("volcano", "", "{file}: must hold a problem, but is empty"),
        ("volcano", "'\\ud800'", "{file}"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(
    system: str, text: str, message: str, queues: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queues.write_text(text, encoding="utf-8")

    assert main(["import", system, str(queues), "-o", str(out)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("fairbind: ")
    assert message.format(file=queues) in shown.err
    assert (shown.err.count("\n"), shown.out, out.exists()) == (1, "", False)


def test_files_that_cannot_be_are_refused(queues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ([str(tmp_path / "gone.yaml"), "-o", "-"], "gone.yaml: no such file"),
        ([str(tmp_path), "-o", "-"], "cannot be read: is a directory"),
        ([str(queues), "-o", str(queues)], "--out: .* must be another file than those that are read"),
        ([str(queues), "-o", str(tmp_path)], "--out: .* must be a file that can be written"),
        (["-", "-", "-o", "-"], "FILE: standard input must be named once"),
        (["-", "--snapshot", "-", "-o", "-"], "FILE: standard input must be named once"),
        ([str(queues)], "Missing option '-o' / '--out'"),
        (["-o", "-"], "Missing argument 'FILE...'"),
    ):
        assert main(["import", "volcano", *words]) == 2, words
        message_found = capsys.readouterr().err
        assert pytest.RaisesExc(ValueError, match=message).matches(ValueError(message_found)), (words, message_found)


def test_texts_that_look_like_numbers_are_quoted() -> None:
    tenant = {"metadata": {"name": "1e3"}, "spec": {"namespaces": ["yes", "0x10", "a"]}}

    text = format_tenants([tenant])
    assert text == 'metadata:\n  name: "1e3"\nspec:\n  namespaces:\n  - \'yes\'\n  - "0x10"\n  - a\n'
    assert yaml.safe_load(text) == tenant


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    listed = make_two_tenants(count=6, cpu="4")
    listed.tenants = []
    path.write_text(format_snapshot(listed), encoding="utf-8")
    return str(path)


def write_kueue(path: Path, quotas: tuple[str, str], **cohorts: str) -> str:
    """Two ClusterQueues, of the namespaces a and b, each with a quota. cohorts: above queues and Cohorts, by name."""
    documents: list[dict[str, Any]] = []
    for name in sorted({*cohorts.values()}):
        above = {"parentName": cohorts[name]} if name in cohorts else {}
        meta = {"name": name}
        documents.append({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": meta, "spec": above})
    for name, quota in zip("ab", quotas, strict=True):
        resources = [{"name": "cpu", "nominalQuota": quota}]
        spec: dict[str, Any] = {"resourceGroups": [{"flavors": [{"name": "any", "resources": resources}]}]}
        if name in cohorts:
            spec["cohortName"] = cohorts[name]
        for kind, place, fields in (
            ("ClusterQueue", {}, spec),
            ("LocalQueue", {"namespace": name}, {"clusterQueue": name}),
        ):
            meta = {"name": name, **place}
            documents.append({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": fields})
    documents.append({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}})
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return str(path)


def test_a_snapshot_says_which_namespaces_change(
    tmp_path: Path, out: Path, snapshot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queues = write_kueue(tmp_path / "q.yaml", ("3", "3"))
    assert main(["import", "kueue", queues, "--snapshot", snapshot, "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("The next hour of")
    assert lines[lines.index("2 of 2 namespaces change by more than 10% (mean over the hour):") + 1 :][:4] == [
        "namespace  tenant  resource  before  after  change",
        "---------  ------  --------  ------  -----  ------",
        "a          a       cpu         4.00   3.00    -25%",
        "b          b       cpu         4.00   3.00    -25%",
    ]


def test_a_guarantee_of_a_tree_changes_the_next_hour(
    tmp_path: Path, out: Path, snapshot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight cores, four each before; then a gets the six that are guaranteed to it below lab, and b the rest."""
    queues = write_kueue(tmp_path / "q.yaml", ("6", "2"), a="lab", b="rest", lab="all", rest="all")
    assert main(["import", "kueue", queues, "--snapshot", snapshot, "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()

    found = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(out.read_text(encoding="utf-8"))}
    assert {name: spec.get("parent") for name, spec in found.items()} == {
        "all": None,
        "lab": "all",
        "rest": "all",
        "a": "lab",
        "b": "rest",
    }
    assert found["a"]["guarantee"] == [{"resources": {"cpu": "6"}}]
    assert lines[lines.index("2 of 2 namespaces change by more than 10% (mean over the hour):") + 3 :][:2] == [
        "a          a       cpu         4.00   6.00    +50%",
        "b          b       cpu         4.00   2.00    -50%",
    ]


def test_a_snapshot_in_which_nothing_changes_says_so(
    tmp_path: Path, out: Path, snapshot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queues = write_kueue(tmp_path / "q.yaml", ("6", "6"))
    assert main(["import", "kueue", queues, "--snapshot", snapshot, "-o", str(out)]) == 0

    assert "\nNo namespace of 2 changes by more than 10%.\n" in capsys.readouterr().out


def test_a_snapshot_of_pods_of_another_scheduler_is_refused_with_a_hint(
    queues: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = make_two_tenants()
    listed.scheduler_name = "other"
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text(format_snapshot(listed), encoding="utf-8")

    assert main(["import", "volcano", str(queues), "--snapshot", str(snapshot), "-o", str(out)]) == 2
    assert f"--snapshot: {snapshot}: pods: must have at least one that runs or waits" in capsys.readouterr().err
    assert not out.exists()


def test_the_command_offers_what_can_be_read() -> None:
    assert tuple(READERS) == SYSTEMS
