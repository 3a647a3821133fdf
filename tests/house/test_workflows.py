"""The workflows for a public host: they run what developers run, with few rights, and name actions by commit."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from house.tree import ROOT
from localplane.tools import ensure_tools

PINNED = "actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683"
WRONG = f"""
on: push
jobs:
  wrong:
    runs-on: ubuntu-24.04
    steps:
      - uses: {PINNED}
      - run: echo "${{{{ github.event.head_commit.message }}}}"
"""
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def find_steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def lint(*paths: Path, say: Callable[[str], None]) -> str:
    """Return what actionlint finds; without the shell's linter, which is not the same on all machines."""
    program = ensure_tools(["actionlint"], say).path("actionlint")
    words = [str(program), "-no-color", "-shellcheck=", "-pyflakes=", *map(str, paths)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.needs_tools
def test_they_are_sound(tmp_path: Path, say: Callable[[str], None]) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WRONG, encoding="utf-8")

    assert "potentially untrusted" in lint(wrong, say=say)
    assert lint(*WORKFLOWS, say=say) == ""


def test_there_is_one_for_nights_for_releases_for_changes_and_for_what_becomes_known() -> None:
    assert [path.stem for path in WORKFLOWS] == ["nightly", "release", "test", "vulnerabilities"]


def test_every_folder_with_pins_is_looked_at_by_the_bot() -> None:
    updates = read(ROOT / ".github" / "dependabot.yml")["updates"]
    found = {(each["package-ecosystem"], place) for each in updates for place in each.get("directories", ["/"])}

    modules = {f"/{path.parent.relative_to(ROOT)}" for path in ROOT.glob("deploy/tools/local/go/*/go.mod")}
    assert found == {("gomod", module) for module in modules} | {
        ("github-actions", "/"), ("docker", "/deploy/base"), ("pip", "/deploy"), ("pip", "/tests"), ("pip", "/docs"),
    }  # fmt: skip


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_are_limited(path: Path) -> None:
    """YAML reads `on` as true."""
    workflow = read(path)

    assert set(workflow) <= {"name", True, "permissions", "concurrency", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= (360 if path.stem == "nightly" else 120)
        assert set(job.get("needs", [])) <= set(workflow["jobs"])
        more = {"attestations", "id-token"} if path.stem == "release" else set()
        assert job.get("permissions", {}).keys() <= {"contents"} | more


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit(path: Path) -> None:
    used = [step["uses"] for step in find_steps(path) if "uses" in step]

    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name)] == []
    for step in find_steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_each_action_has_one_version() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in find_steps(path) if "uses" in step}

    assert len({name.partition("@")[0] for name in used}) == len(used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_are_those_of_make(path: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = {target for step in find_steps(path) for target in TARGET.findall(step.get("run", ""))}

    assert called
    assert called <= targets


@pytest.mark.parametrize("name", ["test", "nightly"])
def test_tests_on_kind_have_an_engine_and_begin_at_once(name: str) -> None:
    """Programs that are built first would keep lint and unit tests waiting: `make test` builds them beside these."""
    [job] = read(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"].values()

    assert job["env"]["FAIRBIND_ENGINE"] == "promised"
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        "sudo sysctl -w fs.inotify.max_user_instances=1024",
        f"make {name}",
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_command_contains_what_others_may_write(path: Path) -> None:
    """An expression in a command is text before the shell reads it, so names of branches could be commands."""
    assert [step["run"] for step in find_steps(path) if "${{" in step.get("run", "")] == []


def test_a_release_trusts_no_cache() -> None:
    """What other runs have put there would become part of the release, as helm was."""
    (release,) = (path for path in WORKFLOWS if path.stem == "release")

    assert [step["uses"] for step in find_steps(release) if "cache" in step.get("uses", "")] == []
    assert not any("cache" in step.get("with", {}) for step in find_steps(release))


def test_a_release_is_a_draft_of_what_make_built() -> None:
    (release,) = (path for path in WORKFLOWS if path.stem == "release")
    jobs = read(release)["jobs"]
    processors = {entry["architecture"] for entry in jobs["image"]["strategy"]["matrix"]["include"]}
    commands = "\n".join(step.get("run", "") for step in jobs["release"]["steps"])

    assert processors == {"amd64", "arm64"}
    assert "dist/release/* --draft" in commands
    assert "CHANGELOG.md | sed '1d; /^## /d'" in commands  # the notes are those of this version alone
    attested = [step["with"] for step in jobs["release"]["steps"] if "attest-build" in step.get("uses", "")]
    assert attested == [{"subject-path": "dist/release/*"}]
    assert not re.search(r"docker push|twine|helm push|skopeo", commands)
