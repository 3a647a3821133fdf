"""One kind cluster for the whole run, with fairbind in it as users have it: from its image, by the real helm.

Without a Docker engine every test here is skipped, with one line that says why. All tests that need the cluster run in
one worker, one after the other; each leaves the release as it found it: the chart's defaults, no pods, no Tenants. What
makes a cluster of its own, or needs none, may run beside them (tests/sharing.py).

FAIRBIND_KIND_FOLDER=PATH keeps the cluster between runs: the one of that folder is used, and made when there is none.
``python -m kindcluster --folder PATH down`` removes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.api import Api
from e2e.conftest import namespace, policy, tenant
from kind import traces
from kind.judge import wait_calm
from kind.release import Release
from kind.traces import tracing
from kindcluster import standing
from kindcluster.cluster import Cluster
from kindcluster.engine import find_engine_fault
from kindcluster.images import Image, build_images

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

# Fixtures: factories of namespaces and Tenants; policy changes the SchedulingPolicy `default` and changes it back.
__all__ = ["namespace", "policy", "tenant"]

FOLDER_VARIABLE = "FAIRBIND_KIND_FOLDER"
ENGINE_VARIABLE = "FAIRBIND_ENGINE"
LIMIT_SECONDS = 3600
"""The first test pays for images, cluster and chart too; on a slow machine that alone takes many minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests here, and no others, time for containers."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep logs and events of a failure, and show their ends, while what the test made is still there.

    Where an engine is promised, a test that is skipped has failed: else a broken engine would make CI green.
    """
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(ENGINE_VARIABLE) == "promised":
        report.outcome = "failed"
        report.longrepr = f"skipped although {ENGINE_VARIABLE}=promised says that an engine answers: {call.excinfo}"
    traces.add_traces(item, report, traces.LOGS)
    return report


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Skip unless a Docker engine answers; tests of images alone take this."""
    fault = find_engine_fault()
    if fault is not None:
        pytest.skip(fault)


@pytest.fixture(scope="session")
def images(docker_engine: None, say: Callable[[str], None]) -> list[Image]:
    """The operator's image and the workload's, built from this tree, in the engine's store."""
    del docker_engine
    return build_images(say)


@pytest.fixture(scope="session")
def kind_cluster(request: pytest.FixtureRequest, docker_engine: None, say: Callable[[str], None]) -> Iterator[Cluster]:
    """The kind cluster of this run, of kind-config.yaml, with both images in its workers; removed at the end."""
    del docker_engine
    built: list[Image] = request.getfixturevalue("images")
    kept = os.environ.get(FOLDER_VARIABLE)
    if kept:
        cluster = standing.bring_up(Path(kept), images=built, report=say)
        with tracing(request, cluster):
            yield cluster
        return
    with Cluster.make("fairbind-test", report=say) as cluster, tracing(request, cluster):
        cluster.load_images(built)
        yield cluster


@pytest.fixture(scope="session")
def api(kind_cluster: Cluster) -> Iterator[Api]:
    """The administrator's view of the kind cluster as JSON: get, items, post, patch, delete, watch."""
    with Api.connect(kind_cluster.kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def fairbind_installed(kind_cluster: Cluster, api: Api) -> Release:
    """The chart, installed with its defaults (two replicas) into `fairbind-system`, where only `restricted` pods run.

    Ready, with a leader. A test that changes the release changes it back (``Release.install()`` without arguments).
    """
    release = Release(kind_cluster, api)
    release.clear_interrupted()
    release.install()
    return release


@pytest.fixture
def calm_nodes(kind_cluster: Cluster, api: Api, fairbind_installed: Release) -> Iterator[None]:
    """Begin with nothing left of others, and leave every node as it was, with both operators ready on two."""
    wait_calm(api)
    yield
    for node in kind_cluster.workers():
        kind_cluster.kubectl("uncordon", node)
    fairbind_installed.wait_apart()
