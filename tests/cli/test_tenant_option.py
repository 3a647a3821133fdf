"""Tenants that are only asked about, live clusters and files: the same for each command that looks at a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fairbind.cli import cluster_listing, main
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_two_tenants

LOOKING = ("audit", "advise", "what-if", "replay", "problem")


def make_without_tenants() -> ListedObjects:
    listed = make_two_tenants()
    listed.tenants = []
    return listed


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_without_tenants()), encoding="utf-8")
    return str(path)


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def find_names(command: str, found: Any) -> set[str]:
    """The tenants of an answer."""
    match command:
        case "audit":
            return set(found["tenants"])
        case "advise":
            return set(found["fair_shares"]["drf"])
        case "what-if":
            return set(found["after"]["tenants"])
        case "replay":
            return {decision["tenant"] for decision in found["decisions"]}
        case _:
            return {tenant["name"] for tenant in found["tenants"]}


@pytest.mark.parametrize("command", LOOKING)
@pytest.mark.parametrize("is_live", [False, True])
def test_a_tenant_is_asked_about(
    command: str, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_live: bool
) -> None:
    monkeypatch.setattr(cluster_listing, "_list_objects", lambda _source: make_without_tenants())
    words = [command] if is_live else [command, file]

    assert find_names(command, ask(capsys, *words)) == {"ns/a", "ns/b"}
    assert find_names(command, ask(capsys, *words, "--tenant", "lab=b:3")) == {"lab", "ns/a"}
    assert find_names(command, ask(capsys, *words, "--tenant", "x=a", "--tenant", "y=b")) == {"x", "y"}


def test_a_weight_counts(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "audit", file, "--tenant", "lab=b:3")["tenants"]["lab"]["fairShare"] == 0.75
    changed = ask(capsys, "what-if", file, "--tenant", "lab=b:3", "--set", "tenant.lab.weight=1")
    assert [changed[when]["tenants"]["lab"]["fair_share"] for when in ("before", "after")] == [0.75, 0.5]


@pytest.mark.parametrize("command", [*LOOKING, "simulate"])
@pytest.mark.parametrize("given", ["a", "x=", "=a", "x=a,", "x=a:", "x=a,,b", "x=a=b"])
def test_another_form_is_refused(command: str, given: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command, "--from"] if command == "simulate" else [command]
    assert main([*words, file, "--tenant", given]) == 2
    said = f"'--tenant': {given!r} must be as research=ml,ml-dev:2"
    assert re.fullmatch(rf"fairbind: [^\n]*{re.escape(said)}[^\n]*\n", capsys.readouterr().err)


def test_a_namespace_that_is_not_there_is_one_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", file, "--tenant", "x=aa"]) == 2
    assert capsys.readouterr() == ("", 'fairbind: --tenant: x: "aa" is no namespace here; did you mean a?\n')


@pytest.mark.parametrize("is_live", [False, True])
def test_a_simulation_begins_with_tenants_that_are_asked_about(
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_live: bool,
) -> None:
    monkeypatch.setattr(cluster_listing, "_list_objects", lambda _source: make_without_tenants())
    begin = ["--from-cluster"] if is_live else ["--from", file]
    words = ["simulate", *begin, "--tenant", "lab=b:3", "--run-time", "lab=60", "--jobs", "2", "--tables", "csv"]
    assert main([*words, "--policy", "fifo", "--policy", "ps-dsf", "--out", str(tmp_path / "out")]) == 0

    assert "6 of 12 pods have a run time" in capsys.readouterr().out
    assert ",lab," in (tmp_path / "out" / "tasks.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tenant", "x=a"], "--tenant: must stand beside --from or --from-cluster"),
        (["--context", "c"], "--context: must stand beside --from or --from-cluster"),
        (["--from", "x", "--from-cluster"], "--from: must be left out beside --from-cluster"),
    ],
)
def test_a_simulation_without_a_cluster_takes_none_of_its_options(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "scenario.yaml", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "FILE: must be there beside --journal"),
        (["FILE", "--tenant", "x=a"], "--tenant: must be left out beside --journal"),
    ],
)
def test_a_journal_is_compared_with_a_snapshot_as_it_was(
    words: list[str], said: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", *(file if word == "FILE" else word for word in words), "--journal", "journal.jsonl"]) == 2
    assert said in capsys.readouterr().err


def test_pods_that_wait_for_another_scheduler_are_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster without fairbind: the answer would be about no pod that waits, and look as if none did."""
    listed = make_without_tenants()
    for pod in listed.pods:
        pod.spec.scheduler_name = "default-scheduler"
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(listed), encoding="utf-8")

    assert main(["audit", str(path)]) == 0
    shown = capsys.readouterr().err
    assert shown == (
        "fairbind: no pod waits for fairbind; 12 wait for default-scheduler: add --scheduler-name default-scheduler to "
        "ask about them\n"
    )
    assert main(["audit", str(path), "--scheduler-name", "default-scheduler"]) == 0
    assert capsys.readouterr().err == ""
