"""Everything that must hold before a change lands, from fast to slow: ``make test`` and CI run this.

Format, lint, types and generated files first; then the wheel is built and all tests run on it in one pytest, whose
closing line comes last. A gate that fails does not hide the others: everything runs, and then the closing line counts
the failed gates too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "deploy" / "tools"
sys.path.insert(0, str(TOOLS / "local"))

from localplane import launch  # noqa: E402  found by the line above

BIN = Path(sys.executable).parent
BUILD = ROOT / "build"
WHEEL_VENV = BUILD / "wheel-venv"
COVERAGE = BUILD / "coverage.json"
LEAST_BRANCHES_PERCENT = 95
# tests/sharing.py says which tests belong to one worker, and who may run which.
WORKERS = ["-n", "3", "--dist", "loadscope", "--no-loadscope-reorder"]
# What follows dies with us, and builds and control planes with it, whatever ends this run.
TIED = (sys.executable, "-I", "-S", launch.__file__)


@dataclass(frozen=True, slots=True)
class Gate:
    """A named command that exits with 0 when all is well."""

    name: str
    command: list[str]


def find_gates() -> list[Gate]:
    """Return the gates before the tests, fastest first; generators say with --check whether their output drifted."""
    generators = (TOOLS / "chart.py", TOOLS / "docs.py")
    return [
        Gate("format", [str(BIN / "ruff"), "format", "--check", "."]),
        Gate("lint", [str(BIN / "ruff"), "check", "."]),
        *(Gate(f"{path.stem} drift", [sys.executable, str(path), "--check"]) for path in generators),
        Gate("types", [str(BIN / "mypy")]),
    ]


def main() -> int:
    """Run all gates, then all tests on the wheel; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-tests", action="store_true", help="only what comes before the tests")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest")
    arguments = parser.parse_args()
    launch.tie_to_parent(os.getppid())
    failed = [gate.name for gate in find_gates() if not is_passing(gate)]
    if arguments.no_tests:
        return 1 if failed else 0
    if not is_passing(Gate("tools", [sys.executable, "-m", "localplane", "tools"])):
        failed.append("tools")
    python = build_test_environment()
    if python is None:
        failed.append("wheel")
        python = Path(sys.executable)
    status, closing_line = run_tests(python, arguments.pytest)
    if status != 0 and not re.search(r"\b[1-9]\d* (failed|errors?)\b", closing_line):
        failed.append("pytest")
    if not arguments.pytest and not has_enough_branches(COVERAGE):
        failed.append("coverage")
    if failed:
        print(f"gates that failed: {', '.join(failed)}", flush=True)
        print(compute_closing_line(closing_line, len(failed)), flush=True)
    return 1 if failed else status


def is_passing(gate: Gate) -> bool:
    """Run a gate; its output is shown when it fails, or as it comes when it takes long."""
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(TOOLS / "local")} if gate.name == "tools" else None
    is_quiet = gate.name != "tools"
    command = [*TIED, str(os.getpid()), *gate.command]
    result = subprocess.run(command, cwd=ROOT, capture_output=is_quiet, text=True, check=False, env=environment)
    verdict = "ok" if result.returncode == 0 else "FAILED"
    if result.returncode != 0 and is_quiet:
        print(result.stdout + result.stderr, end="", flush=True)
    print(f"{gate.name}: {verdict} ({time.monotonic() - started:.1f} s)", flush=True)
    return result.returncode == 0


def build_test_environment() -> Path | None:
    """Build the wheel and install it into an environment of its own; return its Python, None when that fails.

    The environment sees the dependencies of ``.venv`` but not the editable fairbind there: what is tested is what a
    user would install.
    """
    started = time.monotonic()
    shutil.rmtree(BUILD, ignore_errors=True)  # setuptools would put stale modules from here into the wheel
    wheels = BUILD / "wheels"
    options = ["--wheel", "--no-isolation", "--outdir", str(wheels)]
    python = WHEEL_VENV / "bin" / "python"
    steps = [
        [sys.executable, "-m", "build", *options],
        [sys.executable, "-m", "venv", "--without-pip", str(WHEEL_VENV)],
    ]
    if not all(is_done(step) for step in steps):
        return None
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = WHEEL_VENV / "lib" / version / "site-packages"
    (packages / "dependencies.pth").write_text(f"{BIN.parent / 'lib' / version / 'site-packages'}\n", encoding="utf-8")
    [wheel] = wheels.glob("*.whl")
    install = ["--python", str(python), "install", "--no-deps", "--no-index", "--ignore-installed", str(wheel)]
    if not is_done([sys.executable, "-m", "pip", "--disable-pip-version-check", *install]):
        return None
    for program in BIN.iterdir():  # linters that tests call
        if not (python.parent / program.name).exists():
            (python.parent / program.name).symlink_to(program)
    print(f"wheel: ok ({time.monotonic() - started:.1f} s), tested in {WHEEL_VENV}", flush=True)
    return python


def is_done(command: list[str]) -> bool:
    """Run a step of the build; its output is shown when it fails."""
    tied = [*TIED, str(os.getpid()), *command]
    result = subprocess.run(tied, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print(result.stdout + result.stderr, end="", flush=True)
    return result.returncode == 0


def run_tests(python: Path, further: list[str]) -> tuple[int, str]:
    """Run pytest, show what it prints and return its exit status and closing line."""
    BUILD.mkdir(exist_ok=True)
    COVERAGE.unlink(missing_ok=True)
    options = [*WORKERS, "--durations=10", "--cov", "--cov-report=term", f"--cov-report=json:{COVERAGE}", *further]
    if sys.stdout.isatty():
        options.append("--color=yes")
    command = [*TIED, str(os.getpid()), str(python), "-m", "pytest", *options]
    last = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def has_enough_branches(file: Path) -> bool:
    """Tell whether the tests took enough of the inner packages' branches; say how many when not.

    Nothing is said when all is well: then the line of the tests is the last one. Coverage's own limit counts lines too.
    """
    if not file.exists():
        print(f"{file} was not written", flush=True)
        return False
    totals = json.loads(file.read_text(encoding="utf-8"))["totals"]
    percent: float = 100.0 * totals["covered_branches"] / max(1, totals["num_branches"])
    if percent < LEAST_BRANCHES_PERCENT:
        print(
            f"{percent:.1f} % of the inner packages' branches are covered, not {LEAST_BRANCHES_PERCENT} %", flush=True
        )
    return percent >= LEAST_BRANCHES_PERCENT


def compute_closing_line(pytest_line: str, failed_gates: int) -> str:
    """Return pytest's closing line with the failed gates among the failed tests."""
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", pytest_line)}
    failed = counts.get("failed", 0) + failed_gates
    rest = "".join(f", {counts[word]} {word}" for word in ("skipped", "error") if word in counts)
    return f"{failed} failed, {counts.get('passed', 0)} passed{rest}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
