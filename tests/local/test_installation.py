"""The environment that make makes, and the runner of the gates."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

import bootstrap
import gates
from local.waiting import is_alive, wait_for
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
        ("PermissionError: [Errno 13] Permission denied: '/x'", "belongs to another user"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "not what was pinned"),
    ],
)
def test_causes_that_are_known_come_with_advice(output: str, words: str) -> None:
    line = explain_failure("installing", f"first\n{output}\nlast")

    assert words in line
    assert output in line
    assert "\n" not in line


def test_failed_gates_count_as_failed_tests() -> None:
    assert add_up("= 5 passed in 1s =", 1) == "1 failed, 5 passed"
    assert add_up("2 failed, 5 passed, 3 skipped, 2 errors in 1s", 2) == "4 failed, 5 passed, 3 skipped, 2 error"
    assert add_up("", 1) == "1 failed, 0 passed"
    assert add_up("7 passed, 9 deselected, 1 error in 2s", 0) == "7 passed, 1 error"


def add_up(pytest_line: str, failed_gates: int) -> str:
    return gates.compute_closing_line(gates.count_outcomes(pytest_line), failed_gates)


@pytest.mark.parametrize(
    ("package", "covered", "is_enough"),
    [("fairness", 95, True), ("fairness", 94, False), ("kube", 90, True), ("kube", 89, False), ("web", 1, True)],
)
def test_branches_are_judged_by_package(
    package: str, covered: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_enough: bool
) -> None:
    """Lines do not count, and no package hides behind another."""
    branches = dict.fromkeys(gates.LEAST_BRANCHES_PERCENT, 100) | {package: covered}
    reports = {
        f"/at/fairbind/build/site-packages/fairbind/{name}/parts/some.py": {
            "summary": {"covered_lines": 1000, "num_statements": 1000, "covered_branches": count, "num_branches": 100}
        }
        for name, count in branches.items()
    }
    file = tmp_path / "coverage.json"
    file.write_text(json.dumps({"files": reports}), encoding="utf-8")

    assert gates.has_enough_branches(file) == is_enough
    assert f"branches of {package}: {covered:.1f} % of 100" in capsys.readouterr().out
    assert not gates.has_enough_branches(tmp_path / "nothing")


def test_a_package_that_was_not_traced_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "coverage.json"
    file.write_text('{"files": {}}', encoding="utf-8")

    assert not gates.has_enough_branches(file)
    assert "nothing of kube was traced" in capsys.readouterr().out


def test_a_gate_that_fails_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    limit = gates.start_limit()
    assert gates.is_passing(gates.Gate("yes", ["/bin/true"]), limit)
    assert not gates.is_passing(gates.Gate("no", ["/bin/sh", "-c", "echo why; exit 3"]), limit)

    output = capsys.readouterr().out
    assert "yes: ok (" in output
    assert "why\nno: FAILED (" in output


def test_after_its_time_a_gate_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that hears no interrupt."""
    noted = tmp_path / "child"
    monkeypatch.setattr(gates, "INTERRUPT_SECONDS", 0.5)
    script = f"trap '' INT; sleep 1000 & echo $! > '{noted}'; wait"

    assert not gates.is_passing(gates.Gate("slow", ["/bin/sh", "-c", script]), gates.Limit(1.0, time.monotonic() + 1.0))

    assert "slow: FAILED (" in capsys.readouterr().out
    wait_for(lambda: not is_alive(int(noted.read_text(encoding="utf-8"))), "the child to die")


class Pretended:
    """Stands in for pytest: gives each stage's status and closing line, and notes which ran."""

    def __init__(self, outcomes: dict[str, tuple[int, str]]) -> None:
        self.outcomes = outcomes
        self.ran: list[str] = []

    def run(self, python: Path, stage: gates.Stage, further: list[str], *others: object) -> tuple[int, str, list[str]]:
        del python, further, others
        self.ran.append(stage.name)
        return *self.outcomes[stage.name], []


QUICK, LONG, PROGRAMS = (stage.name for stage in (*gates.COMPUTING, gates.WITH_PROGRAMS))


@pytest.mark.parametrize(
    ("quick", "programs", "without", "closing"),
    [
        ((0, "5 passed in 1s"), (0, "4 passed, 2 skipped in 1s"), set(), "10 passed, 2 skipped"),
        ((1, "3 failed, 5 passed in 1s"), (1, "1 failed, 4 passed in 1s"), set(), "4 failed, 10 passed"),
        ((1, "10 failed, 5 passed in 1s"), (0, "4 passed in 1s"), {LONG}, "10 failed, 9 passed"),
        ((3, "no tests ran in 1s"), (0, "4 passed in 1s"), set(), "1 failed, 5 passed"),
    ],
)
def test_all_stages_run_and_count_until_too_much_has_failed(
    quick: tuple[int, str], programs: tuple[int, str], without: set[str], closing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended = Pretended({QUICK: quick, LONG: (0, "1 passed in 1s"), PROGRAMS: programs})
    monkeypatch.setattr(gates, "run_tests", pretended.run)
    monkeypatch.setattr(gates, "is_passing", lambda gate, limit: gate.name == "tools" and not limit.is_over)
    monkeypatch.setattr(gates, "has_enough_branches", lambda file: file == gates.COVERAGE)
    runs = gates.Runs(Path("python"), [], gates.start_limit())

    runs.test_with_programs()
    runs.test_what_computes()

    assert gates.compute_closing_line(runs.counts, len(runs.failed)) == closing
    assert {QUICK, LONG, PROGRAMS} - set(pretended.ran) == without


def test_after_too_many_failures_in_one_stream_the_other_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two real processes: what computes fails while programs would run for ever."""
    script = tmp_path / "python"
    script.write_text(
        f"""#!/bin/sh
case "$*" in
  *"-m {gates.WITH_PROGRAMS.marker}"*) touch "{tmp_path}/begun"; exec sleep 1000 ;;
esac
until test -e "{tmp_path}/begun"; do sleep 0.05; done
echo "FAILED tests/some.py::test_some - because"
echo "10 failed, 1 passed in 1s"; exit 1
""",
        encoding="utf-8",
    )
    script.chmod(0o755)
    monkeypatch.setattr(gates, "BUILD", tmp_path)
    monkeypatch.setattr(gates, "is_passing", lambda gate, limit: gate.name == "tools" and not limit.is_over)

    counts, failed, failures = gates.run_stages(script, ["--no-header"], gates.start_limit())

    assert counts == {"failed": 10, "passed": 1}
    assert failed == [PROGRAMS]
    assert failures == ["FAILED tests/some.py::test_some - because"]
    assert f"{LONG}: not begun, after 10 failures" in capsys.readouterr().out
