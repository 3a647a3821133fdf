"""What is kept and shown of a failure on kind, before what the test made is taken away.

A fixture that gives a test its cluster says so by ``tracing``. When a test that uses the fixture fails, the logs of the
nodes and of all pods, and the events, go to a folder of that test, and the most telling lines into its report. None of
this may hide the failure itself: it is bounded in time and number, what cannot be had is said in one line, and the last
line says once more what failed.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from e2e.operators import NAMESPACE
from kind.release import SELECTOR
from kindcluster.cluster import TRACE_SECONDS, Cluster, get_answer
from kindcluster.commands import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOGS = ROOT / "build" / "kind-logs"
MOST_KEPT = 20
"""When so many tests have failed, one more export of some seconds and megabytes tells nothing new."""
LONGEST_NAME = 80
SHOWN_LINES = 20
PLACE = (f"--namespace={NAMESPACE}", f"--selector={SELECTOR}")
CLUSTERS: pytest.StashKey[dict[str, Cluster]] = pytest.StashKey()
KEPT: pytest.StashKey[list[Path]] = pytest.StashKey()
IS_TRACED: pytest.StashKey[bool] = pytest.StashKey()


@contextmanager
def tracing(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[None]:
    """Have traces of a cluster taken when a test fails that uses the fixture which asks for it."""
    clusters = request.session.stash.setdefault(CLUSTERS, {})
    name = request.fixturename or ""
    clusters[name] = cluster
    try:
        yield
    finally:
        del clusters[name]


def add_traces(item: pytest.Item, report: pytest.TestReport, logs: Path) -> None:
    """Keep and show what can be had of the clusters that a failed test uses; once a test, and without raising.

    logs: the folder in which each cluster has one, and in this each test.
    """
    fixtures = getattr(item, "fixturenames", ())
    clusters = [cluster for fixture, cluster in item.session.stash.get(CLUSTERS, {}).items() if fixture in fixtures]
    if not report.failed or not clusters or item.stash.get(IS_TRACED, False):
        return
    item.stash[IS_TRACED] = True
    kept = item.session.stash.setdefault(KEPT, [])
    for cluster in clusters:
        try:
            report.sections.extend(find_traces(cluster))
            report.sections.append(("logs and events", keep_logs(cluster, logs, item.nodeid, kept)))
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - a time limit, too: the failure comes first
            report.sections.append(("no more can be had", f"{type(error).__name__}: {error}"))
    report.sections.append(("what failed", find_message(report)))


def find_message(report: pytest.TestReport) -> str:
    """Return what the exception says that failed the test."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longreprtext)


def find_traces(cluster: Cluster) -> list[tuple[str, str]]:
    """Return the ends of the operators' logs and the last events, each with a title."""
    ask = functools.partial(cluster.kubectl, timeout_seconds=TRACE_SECONDS)
    log = get_answer(
        lambda: ask("logs", *PLACE, "--prefix", "--ignore-errors", "--max-log-requests=20", f"--tail={SHOWN_LINES}")
    )
    events = get_answer(lambda: cluster.read_last_events(SHOWN_LINES))
    return [("the ends of the operators' logs", log), ("the last events", events)]


def keep_logs(cluster: Cluster, logs: Path, test: str, kept: list[Path]) -> str:
    """Export a cluster's logs for a test into a folder of both and return a line that says where they are.

    kept: the folders of earlier failures of this run, and then this one's.
    """
    if len(kept) >= MOST_KEPT:
        return f"not kept: those of {len(kept)} failures are in {logs}"
    folder = logs / cluster.name / compute_folder_name(test)
    shutil.rmtree(folder, ignore_errors=True)
    kept.append(folder)
    cluster.export_logs(folder)
    return f"they are in {folder}"


def compute_folder_name(test: str) -> str:
    """Return a name for a folder that is plain and short, and another one for each test."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", test.removeprefix("tests/kind/"))[:LONGEST_NAME].strip("-")
    return f"{plain}-{hashlib.sha256(test.encode()).hexdigest()[:6]}"
