"""``make demo CLUSTER=kind``, interrupted while its cluster is half made."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.runs import REMOVAL_SECONDS, Demo, find_containers, make_folder
from e2e.waiting import wait_for
from kind.traces import tracing
from kindcluster.cluster import TOOLS, Cluster
from kindcluster.commands import KindError
from kindcluster.images import Image
from localplane.tools import ensure_tools

LIMIT_SECONDS = 1800.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The demo's folder; what it leaves is ended after the test, when traces of a failure have been taken."""
    with make_folder(tmp_path) as path:
        yield path


@pytest.fixture
def trace(request: pytest.FixtureRequest) -> Iterator[Callable[[Cluster], None]]:
    """Have traces of a cluster taken should the test fail from now on."""
    with ExitStack() as stack:
        yield lambda cluster: stack.enter_context(tracing(request, cluster))


def test_a_signal_while_the_cluster_is_made_leaves_nothing_behind(
    images: list[Image], folder: Path, trace: Callable[[Cluster], None], say: Callable[[str], None]
) -> None:
    del images
    demo = Demo(folder, "--cluster", "kind")

    def find_cluster() -> Path | None:
        try:
            return next((path for path in folder.iterdir() if find_containers(compute_name(path))), None)
        except KindError:  # the engine is too busy to say, so not yet
            return None

    kept = wait_for(find_cluster, LIMIT_SECONDS, "containers of the demo's cluster", pause=0.5)
    assert kept is not None
    name = compute_name(kept)
    trace(Cluster(name, ensure_tools(TOOLS, say), folder=kept, report=say, stays=True))
    demo.process.send_signal(signal.SIGINT)
    assert demo.finish(LIMIT_SECONDS) == 130, demo.text
    assert demo.lines[-1].startswith("stopped by")
    assert "Traceback" not in demo.text
    demo.check_nothing_left(REMOVAL_SECONDS)
    assert find_containers(name) == []


def compute_name(folder: Path) -> str:
    """Return the name of the cluster that has this folder, or one that no cluster has."""
    match = re.match(r"(fairbind-demo-\w{4}-\w{4})-", folder.name)
    return match[1] if match else "none"
