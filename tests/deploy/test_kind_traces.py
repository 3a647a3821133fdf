"""What is kept and shown of a failure on kind, with programs that stand in for kind and kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from deploy.conftest import StandIns
from kind.traces import MOST_KEPT, SHOWN_LINES, add_traces, compute_folder_name, tracing
from kindcluster.cluster import Cluster
from kindcluster.commands import ROOT
from localplane.tools import ensure_tools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATHS = ("deploy/tools/local", "deploy/tools/kind", "deploy/tools", "tests")


def make_request(fixture: str = "kind_cluster") -> pytest.FixtureRequest:
    return cast("pytest.FixtureRequest", SimpleNamespace(fixturename=fixture, session=make_session()))


def make_session() -> Any:
    return SimpleNamespace(stash=pytest.Stash())


def make_item(request: pytest.FixtureRequest, *fixtures: str, name: str = "test_it") -> pytest.Item:
    return cast(
        "pytest.Item",
        SimpleNamespace(
            session=request.session, stash=pytest.Stash(), fixturenames=fixtures, nodeid=f"tests/kind/test_a.py::{name}"
        ),
    )


def make_report(when: str = "call", outcome: str = "failed") -> pytest.TestReport:
    return pytest.TestReport("", ("", 0, ""), {}, outcome, None, when)  # type: ignore[arg-type]  # literals, from names


@pytest.fixture
def cluster(programs: StandIns) -> Cluster:
    return Cluster("mine", programs.tools, folder=programs.folder / "home", report=lambda _: None)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def find_exports(programs: StandIns) -> list[str]:
    return [call for call in programs.calls() if call.startswith("kind export logs ")]


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_logs_and_events_of_a_failure_are_kept_and_shown(
    programs: StandIns, cluster: Cluster, logs: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setenv("ANSWER", "\n".join(f"event {number}" for number in range(100)))
    request, report = make_request(), make_report(when)
    item = make_item(request, "api", "kind_cluster")

    with tracing(request, cluster):
        add_traces(item, report, logs)

    folder = logs / "mine" / compute_folder_name(item.nodeid)
    assert find_exports(programs) == [f"kind export logs {folder} --name=mine"]
    assert {path.name for path in folder.iterdir()} == {
        "events.txt",
        "events.yaml",
        "pods.txt",
        "nodes.txt",
        "kind.txt",
    }
    assert len((folder / "events.txt").read_text(encoding="utf-8").splitlines()) == 100
    sections = dict(report.sections)
    assert sections["the last events"].splitlines() == [f"event {number}" for number in range(100 - SHOWN_LINES, 100)]
    assert sections["logs and events"] == f"they are in {folder}"
    assert any(call.startswith("kubectl logs --namespace=fairbind-system ") for call in programs.calls())


def test_a_test_that_fails_again_when_it_is_taken_down_is_traced_once(
    programs: StandIns, cluster: Cluster, logs: Path
) -> None:
    request = make_request()
    item, reports = make_item(request, "kind_cluster"), [make_report("call"), make_report("teardown")]

    with tracing(request, cluster):
        for report in reports:
            add_traces(item, report, logs)

    assert len(find_exports(programs)) == 1
    assert [bool(report.sections) for report in reports] == [True, False]


def test_nothing_is_kept_of_others(programs: StandIns, cluster: Cluster, logs: Path) -> None:
    """Of tests that pass, that do not use the cluster, or that fail when it is gone."""
    request = make_request()
    with tracing(request, cluster):
        add_traces(make_item(request, "kind_cluster"), make_report(outcome="passed"), logs)
        add_traces(make_item(request, "images"), make_report(), logs)
    add_traces(make_item(request, "kind_cluster"), make_report(), logs)

    assert programs.calls() == []
    assert not logs.exists()


def test_clusters_are_told_apart_by_who_gives_them(programs: StandIns, cluster: Cluster, logs: Path) -> None:
    request, other = make_request(), Cluster("demo", programs.tools, folder=programs.folder / "other")
    demo = cast("pytest.FixtureRequest", SimpleNamespace(fixturename="kept", session=request.session))
    with tracing(request, cluster), tracing(demo, other):
        add_traces(make_item(request, "kept"), make_report(), logs)

    assert [path.name for path in logs.iterdir()] == ["demo"]
    assert [call.split()[-1] for call in find_exports(programs)] == ["--name=demo"]


@pytest.mark.parametrize(
    ("variable", "words"), [("FAILING", "it did not work"), ("SLOW", "kind export logs did not end within")]
)
def test_an_export_that_fails_or_never_ends_costs_a_moment_and_is_said(
    cluster: Cluster, logs: Path, monkeypatch: pytest.MonkeyPatch, variable: str, words: str
) -> None:
    monkeypatch.setenv(variable, "export logs")
    if variable == "SLOW":
        cluster.export_seconds = 0.5
    request, report = make_request(), make_report()
    item = make_item(request, "kind_cluster")

    with tracing(request, cluster):
        add_traces(item, report, logs)

    folder = logs / "mine" / compute_folder_name(item.nodeid)
    assert words in (folder / "kind.txt").read_text(encoding="utf-8")
    assert dict(report.sections)["logs and events"] == f"they are in {folder}"


def test_what_cannot_be_written_hides_no_failure(cluster: Cluster, logs: Path) -> None:
    logs.write_text("a file, not a folder", encoding="utf-8")
    request, report = make_request(), make_report()

    with tracing(request, cluster):
        add_traces(make_item(request, "kind_cluster"), report, logs)

    assert "the last events" in dict(report.sections)
    assert "logs" in dict(report.sections)["no more can be had"]


def test_of_many_failures_the_first_are_kept(programs: StandIns, cluster: Cluster, logs: Path) -> None:
    request, reports = make_request(), [make_report() for _ in range(MOST_KEPT + 1)]

    with tracing(request, cluster):
        for number, report in enumerate(reports):
            add_traces(make_item(request, "kind_cluster", name=f"test_it[{number}]"), report, logs)

    assert len(find_exports(programs)) == MOST_KEPT == len(list((logs / "mine").iterdir()))
    assert dict(reports[-1].sections)["logs and events"].startswith("not kept: ")
    assert "the last events" in dict(reports[-1].sections)


def test_what_an_earlier_run_kept_of_the_test_goes(cluster: Cluster, logs: Path) -> None:
    request = make_request()
    item = make_item(request, "kind_cluster")
    old = logs / "mine" / compute_folder_name(item.nodeid) / "mine-worker" / "kubelet.log"
    old.parent.mkdir(parents=True)
    old.touch()

    with tracing(request, cluster):
        add_traces(item, make_report(), logs)

    assert not old.exists()


def test_names_of_folders_are_plain_short_and_each_tests_own() -> None:
    names = [
        "tests/kind/test_a.py::test_it",
        "tests/kind/test_a.py::test_it[]",
        "tests/kind/test_a.py::test_it[sum(rate(x{a=~'.*'}[20s])) / 2]",
        f"tests/kind/test_a.py::test_it[{'../' * 200}a]",
        f"tests/kind/test_a.py::test_it[{'../' * 200}b]",
    ]
    folders = [compute_folder_name(name) for name in names]

    assert folders[0].startswith("test_a-py-test_it-")
    assert len(set(folders)) == len(names)
    assert all(len(folder) < 100 and folder.replace("-", "_").isidentifier() for folder in folders)


CONFTEST = """
import pathlib, pytest
from kind import traces
from kind.conftest import pytest_runtest_makereport
from kindcluster.cluster import Cluster
from localplane.tools import Tools
FOLDER = pathlib.Path(__file__).parent
traces.LOGS = FOLDER / "logs"

@pytest.fixture(scope="session")
def kind_cluster(request):
    cluster = Cluster("mine", Tools(dict.fromkeys(("kind", "cluster", "kubernetes"), FOLDER.parent)), folder=FOLDER)
    with traces.tracing(request, cluster):
        yield cluster

@pytest.fixture
def namespace(kind_cluster):
    yield
    kind_cluster.kubectl("delete", "namespace")
"""
FAILING_TEST = "def test_it(namespace):\n    raise ZeroDivisionError('of its own')\n"


def test_all_that_is_before_the_tests_namespaces_go(programs: StandIns) -> None:
    folder = programs.folder / "project"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_it.py").write_text(FAILING_TEST, encoding="utf-8")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / path) for path in PATHS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", f"--rootdir={folder}"]

    outcome = subprocess.run(
        [*command, str(folder)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )

    calls = [" ".join(call.split()[:3]) for call in programs.calls()]
    assert calls.index("kind export logs") < calls.index("kubectl delete namespace"), outcome.stdout
    assert "ZeroDivisionError: of its own" in outcome.stdout
    assert "- logs and events -" in outcome.stdout
    assert f"they are in {folder / 'logs' / 'mine'}" in outcome.stdout
    assert "- what failed -" in outcome.stdout.partition("- logs and events -")[2]
    assert "ZeroDivisionError: of its own" in outcome.stdout.partition("- what failed -")[2].splitlines()


class Events(BaseHTTPRequestHandler):
    """An API server that has events as three clients report them, in no order."""

    times: ClassVar[dict[str, dict[str, object]]] = {
        "ours": {"eventTime": "2026-01-01T00:00:05.000000Z"},
        "repeated": {
            "eventTime": "2026-01-01T00:00:01.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:09.000000Z"},
        },
        "counted": {"firstTimestamp": "2026-01-01T00:00:02Z", "lastTimestamp": "2026-01-01T00:00:07Z", "count": 4},
        "first": {"eventTime": "2026-01-01T00:00:03.000000Z"},
    }

    def do_GET(self) -> None:
        items = [
            {"metadata": {"name": name, "namespace": "a"}, "involvedObject": {}, "reason": name, **times}
            for name, times in self.times.items()
        ]
        body = json.dumps({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.needs_tools
def test_the_last_events_are_those_seen_last_whoever_reports_them(tmp_path: Path, say: Callable[[str], None]) -> None:
    """By the real kubectl: what fairbind and the kubelets report has its time in other fields."""
    cluster = Cluster("mine", ensure_tools(["kubectl"], say), folder=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Events) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = {"cluster": {"server": f"http://127.0.0.1:{server.server_port}"}, "name": "it"}
        context = {"context": {"cluster": "it", "user": ""}, "name": "it"}
        config = {"clusters": [place], "contexts": [context], "current-context": "it", "users": []}
        cluster.kubeconfig.write_text(json.dumps(config), encoding="utf-8")
        lines = cluster.read_last_events(4).splitlines()
        server.shutdown()

    reasons = [next(name for name in Events.times if f" {name} " in line) for line in lines]
    assert reasons == ["first", "ours", "counted", "repeated"]
