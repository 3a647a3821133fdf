"""A control plane with fairbind and Volcano's scheduler, both of which run.

`make exam-volcano` runs these tests. CI does not collect them, as a program of others is built for them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from e2e.clusters import Cluster
from e2e.operators import start_operator
from frameworks.conftest import api, namespace
from localplane import processes
from localplane.nodes import mixed_nodes
from localplane.plane import ControlPlane
from localplane.tools import DEFAULT, ensure_tools
from perf.volcano import PROGRAM, install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["api", "namespace"]
"""The fixtures of the exam of frameworks, on the cluster of this one."""

ASKED = "FAIRBIND_VOLCANO"
collect_ignore = [] if ASKED in os.environ else ["test_volcano.py"]


@pytest.fixture(scope="session")
def cluster(say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of ten nodes with both; fairbind may write the one phase of Volcano's that it ever writes."""
    tools = ensure_tools([*DEFAULT, PROGRAM], say)
    folder = tmp_path_factory.mktemp("volcano")
    with ControlPlane(tools) as plane, Cluster.connect(plane.kubeconfig, tools, plane) as cluster:
        plane.add_nodes(mixed_nodes(10))
        plane.wait_nodes_ready()
        cluster.install_chart({"operator": {"enabled": False}, "groups": {"volcanoInqueue": True}})
        configuration = folder / "volcano.conf"
        account = install(plane, configuration)
        arguments = ["--leader-elect=false", f"--kubeconfig={account}", f"--scheduler-conf={configuration}"]
        volcano = processes.spawn([tools.path(PROGRAM), *arguments], folder / "volcano.log", directory=folder)
        operator = start_operator(cluster.operator_kubeconfig(), folder / "fairbind.log", ["--volcano-inqueue"])
        try:
            operator.wait_ready()
            yield cluster
            assert volcano.poll() is None, processes.read_tail(folder / "volcano.log")
            assert "Traceback" not in operator.read_log(10_000), operator.read_log()
        finally:
            operator.stop()
            operator.close()
            processes.kill(volcano)
