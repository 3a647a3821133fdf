"""The environment that make makes, and the runner of the gates."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import bootstrap
import gates
from localplane.failures import explain_failure

ROOT = Path(__file__).parents[2]


def test_a_second_install_has_nothing_to_do_or_say() -> None:
    subprocess.run(["make", "install"], cwd=ROOT, capture_output=True, check=True)
    again = subprocess.run(["make", "-s", "install"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert (again.stdout, again.stderr) == ("", "")


def test_the_lock_names_what_is_installed_and_not_what_comes_anyway() -> None:
    locked = bootstrap.find_locked()

    assert {"pytest", "aiohttp", "setuptools"} <= locked
    assert locked.isdisjoint(bootstrap.UNLOCKED)
    assert all(name == bootstrap.compute_canonical_name(name) for name in locked)


def test_another_stamp_is_not_current() -> None:
    assert not bootstrap.is_current("other")


def test_only_what_is_installed_makes_the_environment_anew() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    linted = project.replace("line-length = 120", "line-length = 100")
    commanded = project.replace('fairbind = "fairbind.cli:main"', 'fairbind = "fairbind.cli:other"')
    assert project not in (linted, commanded)

    before = bootstrap.compute_packaging(project)
    assert bootstrap.compute_packaging(linted) == before
    assert bootstrap.compute_packaging(commanded) != before


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("ERROR: No matching distribution found for x==1 (from versions: none)", "check the connection"),
        ("ERROR: No matching distribution found for x==1 (from versions: 2)", "no ready-made package"),
        ("Retrying after NewConnectionError", "the network does not answer"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", "belongs to somebody else"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "not what was pinned"),
    ],
)
def test_causes_that_are_known_come_with_advice(output: str, words: str) -> None:
    line = explain_failure("installing", f"first\n{output}\nlast")

    assert words in line
    assert output in line
    assert "\n" not in line


def test_failed_gates_count_as_failed_tests() -> None:
    assert gates.compute_closing_line("= 5 passed in 1s =", 1) == "1 failed, 5 passed"
    assert gates.compute_closing_line("2 failed, 5 passed, 3 skipped in 1s", 2) == "4 failed, 5 passed, 3 skipped"
    assert gates.compute_closing_line("", 1) == "1 failed, 0 passed"


@pytest.mark.parametrize(("covered", "is_enough"), [(95, True), (94, False)])
def test_branches_are_judged_by_themselves(
    covered: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_enough: bool
) -> None:
    file = tmp_path / "coverage.json"
    totals = {"covered_lines": 1000, "num_statements": 1000, "covered_branches": covered, "num_branches": 100}
    file.write_text(json.dumps({"totals": totals}), encoding="utf-8")

    assert gates.has_enough_branches(file) == is_enough
    assert ("94.0 %" in capsys.readouterr().out) != is_enough
    assert not gates.has_enough_branches(tmp_path / "nothing")


def test_a_gate_that_fails_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert gates.is_passing(gates.Gate("yes", ["/bin/true"]))
    assert not gates.is_passing(gates.Gate("no", ["/bin/sh", "-c", "echo why; exit 3"]))

    output = capsys.readouterr().out
    assert "yes: ok (" in output
    assert "why\nno: FAILED (" in output
