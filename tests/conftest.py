"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine

from localplane import tools as programs
from localplane.tools import Tool, Tools, ensure_tools
from sharing import KIND, START_PROGRAMS, Sharing, covers, rank

# A run that was started in the background of a script ignores these, and so would every program that a test starts:
# tests that interrupt one would wait for ever.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# A make that a test runs is not a part of the one that runs the tests: it would speak as `make[1]`.
for _name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
    os.environ.pop(_name, None)

# The same examples for the same code, so that a red run is the change's fault and not the dice's; with the profiles
# nightly and deep many more, and others each time; with quick fewer. How long one takes says more about what else runs
# on the machine than about the code.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", untimed, derandomize=True, max_examples=20)
settings.register_profile("quick", untimed, derandomize=True, max_examples=10)
settings.register_profile("nightly", untimed, derandomize=False, max_examples=1_000, print_blob=True)
settings.register_profile("deep", untimed, derandomize=False, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# After a failure hypothesis looks for a smaller example, for up to five minutes a property, and no setting says for how
# long. tests/house/test_profiles.py shows that this is heeded: a version that names it otherwise fails there.
MOST_SHRINKING_SECONDS = 45
engine.MAX_SHRINKING_SECONDS = MOST_SHRINKING_SECONDS


class ToolGuard:
    """Fails a test that asks for a program without the mark `needs_tools`: `make unit` would build it, for minutes.

    It looks at what this process asks for, built or not. item: the test that runs; None while tests are collected.
    """

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self._is_built = programs._is_built

    def is_built(self, tools: Tools, tool: Tool) -> bool:
        if self.item is None or self.item.get_closest_marker("needs_tools") is None:
            pytest.fail(f"{tool.name} is built from Go modules: only a test that is marked needs_tools may ask for it")
        return self._is_built(tools, tool)


TOOL_GUARD = ToolGuard()
programs._is_built = TOOL_GUARD.is_built

LEFT_OUT = pytest.StashKey[int]()
GIVE_WAY = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests need programs and which cover packages, and put first what takes longest."""
    for item in items:
        if "promtool" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(START_PROGRAMS):
            item.add_marker(pytest.mark.needs_tools)
        if covers(item.nodeid):
            item.add_marker(pytest.mark.covers)
    items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Sharing:
    """Let workers share the tests so; the groups of xdist itself have no effect with this version of pytest."""
    return Sharing(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a worker that only computes give way to those that start programs: these fail when they are too slow."""
    TOOL_GUARD.item = item
    if hasattr(item.config, "workerinput") and rank(item.nodeid) == len(START_PROGRAMS) and not os.nice(0):
        os.nice(GIVE_WAY)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is left out because it takes minutes."""
    for item in items:
        if item.get_closest_marker("nightly"):
            item.config.stash[LEFT_OUT] = item.config.stash.get(LEFT_OUT, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker tell its number; each worker collects the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's number; a worker that died tells none."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] = output.get("left_out", node.config.stash.get(LEFT_OUT, 0))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Say right before the closing line what did not run, and why: it has not passed."""
    yield
    if count := terminalreporter.config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"NOT RUN: {count} tests that take minutes: make nightly runs them", yellow=True)
    reports = terminalreporter.stats.get("skipped", [])
    skipped = [report for report in reports if report.nodeid.startswith(KIND)]
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"NOT RUN: {count} tests on kind: {reason}", yellow=True)


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Print a line past pytest's capture: builds take minutes."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def print_line(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    return print_line


@pytest.fixture(scope="session")
def promtool(say: Callable[[str], None]) -> Path:
    """Promtool, built when it was not yet."""
    return ensure_tools(["promtool"], say).path("promtool")
