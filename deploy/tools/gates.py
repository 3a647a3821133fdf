"""Everything that must hold before a change lands, from fast to slow: ``make test`` and CI run this.

Format, lint, types and generated files first, two at a time; then the wheel is built and tested, in two streams at
once. Tests that start programs, which may have to be built before, wait most of their time; meanwhile tests that only
compute run, and give way to them: the many quick ones first, so that a broken product is red within minutes. The last
line counts the tests of both and the failed gates. A gate that fails does not hide the others, but after ten failed
tests, or when the time is up (FAIRBIND_TEST_SECONDS, 80 minutes), both end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "deploy" / "tools"
sys.path.insert(0, str(TOOLS / "local"))

from localplane import launch  # noqa: E402  found by the line above
from localplane.tools import find_cache  # noqa: E402

BIN = Path(sys.executable).parent
PACKAGES = ROOT / "operator" / "fairbind"
BUILD = ROOT / "build"
WHEEL_VENV = BUILD / "wheel-venv"
COVERAGE = BUILD / "coverage.json"
# How many of a package's branches the tests must take, in percent; None: it is said and not judged. What the packages
# that decide leave open is a decision that no test has looked at.
LEAST_BRANCHES_PERCENT: Mapping[str, float | None] = {
    "model": 95.0,
    "fairness": 95.0,
    "scheduling": 95.0,
    "cluster": 95.0,
    "simulator": 95.0,
    "importing": 95.0,
    "kube": 90.0,
    "web": None,
    "cli": None,
}
MOST_FAILURES = 10
# CI itself ends a run after 90 minutes, and then nothing says what had failed until then.
TIME_VARIABLE, DEFAULT_SECONDS = "FAIRBIND_TEST_SECONDS", 80 * 60
# Pytest then tells what has failed so far, and ends what its tests have started.
INTERRUPT_SECONDS = 30
# tests/sharing.py says which tests belong to one worker. More than two that start programs make all of them slow.
SHARED = ["--dist", "loadscope", "--no-loadscope-reorder", "--durations=20", "-n", "2"]
CLOSING_LINE = re.compile(r"\b\d+ (passed|failed|skipped|errors?|deselected)\b.* in \d")
FAILED_TEST = re.compile(r"(\x1b\[\S*?m)*(FAILED|ERROR) ")
NOTHING_CHOSEN = 5  # pytest's exit status
# What follows dies with us, and builds and control planes with it, whatever ends this run.
TIED = (sys.executable, "-I", "-S", launch.__file__)


@dataclass(frozen=True, slots=True)
class Gate:
    """A named command that exits with 0 when all is well."""

    name: str
    command: list[str]


@dataclass(frozen=True, slots=True)
class Stage:
    """Tests that run together. marker: pytest's expression that chooses them; is_traced: whether coverage is judged.

    folders: where they are; each worker reads every file there before its first test. leaves_out: folders in these
    that have none of them.
    """

    name: str
    marker: str
    folders: tuple[str, ...]
    leaves_out: tuple[str, ...] = ()
    is_traced: bool = False


# Tracing doubles the time of tests, whatever they call, and tells nothing of programs that they start.
# All folders of tests with programs, and those of which no other test is.
PROGRAMS = ("adversary", "demo", "deploy", "differential", "e2e", "faults", "house", "kind", "local")
ONLY_PROGRAMS = ("demo", "differential", "e2e", "kind", "local")
COMPUTING = (
    Stage(
        "tests that compute",
        "covers and not slow and not needs_tools and not nightly",
        tuple(f"tests/{package}" for package in LEAST_BRANCHES_PERCENT),
        is_traced=True,
    ),
    Stage(
        "tests that compute for long",
        "(slow or not covers) and not needs_tools and not nightly",
        ("tests",),
        tuple(f"tests/{folder}" for folder in ONLY_PROGRAMS),
    ),
)
WITH_PROGRAMS = Stage(
    "tests with programs", "needs_tools and not nightly", tuple(f"tests/{folder}" for folder in PROGRAMS)
)


@dataclass(frozen=True, slots=True)
class Limit:
    """When everything must be over. total_seconds: how long that is from the start; ends_at: by the monotonic clock."""

    total_seconds: float
    ends_at: float

    def left(self) -> float:
        """Return the seconds that are left, at least a second: who has none left fails by running out of it."""
        return max(1.0, self.ends_at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.ends_at


def start_limit() -> Limit:
    """Return the limit of a run that starts now."""
    total_seconds = float(os.environ.get(TIME_VARIABLE, DEFAULT_SECONDS))
    return Limit(total_seconds, time.monotonic() + total_seconds)


def find_gates() -> list[Gate]:
    """Return the gates before the tests; generators say with --check whether their output drifted."""
    generators = (TOOLS / "chart.py", TOOLS / "docs.py")
    return [
        Gate("format", [str(BIN / "ruff"), "format", "--check", "."]),
        Gate("lint", [str(BIN / "ruff"), "check", "."]),
        # What it has learned of a file holds in every clone: it compares contents where times differ.
        Gate("types", [str(BIN / "mypy"), f"--cache-dir={find_cache() / 'mypy'}"]),
        *(Gate(f"{path.stem} drift", [sys.executable, str(path), "--check"]) for path in generators),
    ]


def main() -> int:
    """Run all gates, then all tests on the wheel; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-tests", action="store_true", help="only what comes before the tests")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest")
    arguments = parser.parse_args()
    launch.tie_to_parent(os.getppid())
    # Hundreds of programs start here, and each would compile again all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    limit = start_limit()
    gates = find_gates()
    with ThreadPoolExecutor(2) as pool:
        passing = pool.map(lambda gate: is_passing(gate, limit), gates)
        failed = [gate.name for gate, passes in zip(gates, passing, strict=True) if not passes]
    if arguments.no_tests:
        return 1 if failed else 0
    python = build_test_environment()
    if python is None:
        failed.append("wheel")
        python = Path(sys.executable)
    counts, failed_stages, failures = run_stages(python, arguments.pytest, limit)
    failed += failed_stages
    if limit.is_over:
        failed.append("time")
        print(f"the time is up: {limit.total_seconds:.0f} s ({TIME_VARIABLE}); what was left did not run", flush=True)
    if failed:
        print(f"gates that failed: {', '.join(failed)}", flush=True)
    for line in failures:  # once more at the end, which is what people see of a long output
        print(line, flush=True)
    print(compute_closing_line(counts, len(failed)), flush=True)
    return 1 if failed or counts["failed"] or counts["error"] else 0


def run_stages(python: Path, further: list[str], limit: Limit) -> tuple[Counter[str], list[str], list[str]]:
    """Run all tests in two streams; return outcomes by word, failed gates, and pytest's line for each failed test.

    further: arguments for pytest; with any, coverage is not judged.
    """
    runs = Runs(python, further, limit)
    with ThreadPoolExecutor(1) as beside:
        programs = beside.submit(runs.test_with_programs)
        try:
            runs.test_what_computes()
            programs.result()
        except BaseException:  # an interrupt of this process alone, say
            runs.interrupt()
            raise
    return runs.counts, runs.failed, runs.failures


class Runs:
    """Pytest in two threads. After too many failures in one the other ends, too."""

    def __init__(self, python: Path, further: list[str], limit: Limit) -> None:
        self.counts = Counter[str]()
        self.failed: list[str] = []
        self.failures: list[str] = []
        self._python, self._further, self._limit = python, further, limit
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_interrupted = False

    def test_what_computes(self) -> None:
        """Run the tests that start no program, quick ones first."""
        for stage in COMPUTING:
            self._run(stage)
            if stage.is_traced and not self._further and not has_enough_branches(COVERAGE):
                self.failed.append("coverage")

    def test_with_programs(self) -> None:
        """Build the programs that are missing, and run the tests that start them."""
        if not is_passing(Gate("tools", [sys.executable, "-m", "localplane", "tools"]), self._limit):
            self.failed.append("tools")
        self._run(WITH_PROGRAMS)

    @property
    def _failures(self) -> int:
        return self.counts["failed"] + self.counts["error"]

    def _run(self, stage: Stage) -> None:
        if self._is_interrupted or self._limit.is_over:
            print(f"{stage.name}: not begun, after {self._failures} failures", flush=True)
            return
        status, line, failures = run_tests(self._python, stage, self._further, self._limit, self._processes)
        found = count_outcomes(line)
        nothing_chosen = bool(self._further) and status == NOTHING_CHOSEN
        with self._lock:
            self.counts += found
            self.failures += failures
            if status != 0 and not nothing_chosen and not found["failed"] + found["error"]:
                self.failed.append(stage.name)
        if self._failures >= MOST_FAILURES:
            self.interrupt()

    def interrupt(self) -> None:
        """Let pytest end what it has started, and tell what has failed so far. Nothing more is begun."""
        self._is_interrupted = True
        for process in list(self._processes):
            process.send_signal(signal.SIGINT)


def is_passing(gate: Gate, limit: Limit) -> bool:
    """Run a gate; its output is shown when it fails, or as it comes when it takes long."""
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(TOOLS / "local")} if gate.name == "tools" else None
    is_quiet = gate.name != "tools"
    command = [*TIED, str(os.getpid()), *gate.command]
    output = subprocess.PIPE if is_quiet else None
    with (
        subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT if is_quiet else None, text=True, env=environment
        ) as process,
        ended_in_time(process, limit),
    ):
        shown, _ = process.communicate()
    # A shell that waits for a program ends well when that one is killed, because the time is up.
    passes = process.returncode == 0 and not limit.is_over
    shown = "" if passes or not is_quiet else shown
    verdict = "ok" if passes else "FAILED"
    print(f"{shown}{gate.name}: {verdict} ({time.monotonic() - started:.1f} s)\n", end="", flush=True)  # at once
    return passes


@contextmanager
def ended_in_time(process: subprocess.Popen[str], limit: Limit) -> Iterator[None]:
    """Interrupt a process when the time is up; kill it and all that it started when it does not end then."""

    def kill() -> None:
        for pid in [*find_descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    timers = [
        threading.Timer(limit.left(), process.send_signal, [signal.SIGINT]),
        threading.Timer(limit.left() + INTERRUPT_SECONDS, kill),
    ]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def find_descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [pid]
    for parent in found:  # it grows meanwhile
        found += [child for child, its_parent in pairs if its_parent == parent]
    return found[1:]


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


def run_tests(
    python: Path, stage: Stage, further: list[str], limit: Limit, running: set[subprocess.Popen[str]]
) -> tuple[int, str, list[str]]:
    """Run pytest, show what it prints and return its exit status, closing line and a line for each failed test.

    running: has the process while it runs.
    """
    BUILD.mkdir(exist_ok=True)
    report = BUILD / f"{stage.name.replace(' ', '-')}.xml"  # how long each test took
    options = ["-m", stage.marker, f"--maxfail={MOST_FAILURES}", f"--junitxml={report}", *SHARED]
    if stage.is_traced:
        COVERAGE.unlink(missing_ok=True)
        options += ["--cov", "--cov-report=", f"--cov-report=json:{COVERAGE}"]
    if sys.stdout.isatty():
        options.append("--color=yes")
    chosen = further or [*stage.folders, *(f"--ignore={folder}" for folder in stage.leaves_out)]
    command = [*TIED, str(os.getpid()), str(python), "-m", "pytest", *options, *chosen]
    prefix = "programs | " if stage is WITH_PROGRAMS else ""
    last, failures = "", list[str]()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        running.add(process)
        assert process.stdout is not None
        with ended_in_time(process, limit):
            for line in process.stdout:
                print(f"{prefix}{line}", end="", flush=True)
                last = line.strip() if CLOSING_LINE.search(line) else last  # an interrupted pytest says more after it
                if FAILED_TEST.match(line):
                    failures.append(line.strip())
            process.wait()
        running.discard(process)
    return process.returncode, last, failures


def has_enough_branches(file: Path) -> bool:
    """Tell whether the tests took enough branches of each package; say how many."""
    if not file.exists():
        print(f"{file} was not written", flush=True)
        return False
    branches = count_branches(file)
    lacking = []
    for package, least in LEAST_BRANCHES_PERCENT.items():
        if package not in branches:
            if (PACKAGES / package).is_dir():
                lacking.append(f"nothing of {package} was traced")
            continue
        covered, total = branches[package]
        percent = 100.0 * covered / max(1, total)
        judged = "" if least is None else f", at least {least:.0f} %"
        print(f"branches of {package}: {percent:.1f} % of {total}{judged}", flush=True)
        if least is not None and percent < least:
            lacking.append(f"{percent:.1f} % of the branches of {package} are covered, not {least:.0f} %")
    for sentence in lacking:
        print(sentence, flush=True)
    return not lacking


def count_branches(file: Path) -> dict[str, tuple[int, int]]:
    """Return how many branches of each package were taken, and how many there are. file: coverage's report as JSON."""
    found: dict[str, tuple[int, int]] = {}
    for name, report in json.loads(file.read_text(encoding="utf-8"))["files"].items():
        parts = Path(name).parts
        package = parts[len(parts) - parts[::-1].index("fairbind")]
        covered, total = found.get(package, (0, 0))
        summary = report["summary"]
        found[package] = covered + summary["covered_branches"], total + summary["num_branches"]
    return found


def count_outcomes(pytest_line: str) -> Counter[str]:
    """Return pytest's closing line as numbers by word."""
    words = {"errors": "error"}
    found = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", pytest_line)
    return Counter({words.get(word, word): int(number) for number, word in found})


def compute_closing_line(counts: Mapping[str, int], failed_gates: int) -> str:
    """Return a line like pytest's, with the failed gates among the failed tests."""
    numbers = {**counts, "failed": counts.get("failed", 0) + failed_gates, "passed": counts.get("passed", 0)}
    order = ("failed", "passed", "skipped", "error")
    return ", ".join(f"{numbers[word]} {word}" for word in order if word == "passed" or numbers.get(word))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
