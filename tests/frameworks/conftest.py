"""One control plane for all operators, in a network that has nothing else; each test has nodes and tenants of its own.

`make exam-frameworks` runs these tests. CI does not collect them, as six projects of others are built for them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.conftest import making_namespaces, making_nodes, making_tenants
from e2e.operators import Operator, start_operator
from frameworks.cases import CASES, FAIRBIND, SPARK_CASE, Case
from frameworks.emitters import PROGRAMS
from frameworks.network import list_others, open_loopback
from frameworks.running import find_pod_groups, install_crds, running
from localplane.plane import ControlPlane
from localplane.tools import DEFAULT, FRAMEWORKS, ensure_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.api import Api
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant

ASKED = "FAIRBIND_FRAMEWORKS"
collect_ignore = [] if ASKED in os.environ else ["test_frameworks.py"]


class LastingPlane(ControlPlane):
    """A control plane on which pods of Jobs run until the exam ends them, in a network that leads nowhere."""

    def _compute_arguments(self, name: str) -> list[str]:
        found = super()._compute_arguments(name)
        return [*found, "--advertise-address=127.0.0.1"] if name == "kube-apiserver" else found

    def _write_files(self) -> None:
        super()._write_files()
        documents = list(yaml.safe_load_all(self.layout.kwok_config.read_text(encoding="utf-8")))
        for document in documents:
            if document["kind"] == "Stage" and document["metadata"]["name"] == "pod-complete":
                asked = document["spec"]["selector"]["matchExpressions"][-1]["jq"]
                asked["key"] = '(.metadata.annotations["fairbind.io/run-seconds"] != null) | tostring'
        self.layout.kwok_config.write_text(yaml.safe_dump_all(documents), encoding="utf-8")


@pytest.fixture(scope="session")
def cluster(say: Callable[[str], None]) -> Iterator[Cluster]:
    """A cluster with fairbind's chart and everybody's CRDs, without nodes."""
    others = list_others()
    assert others == [], f"run `make exam-frameworks`: this network has {others} besides its loopback"
    open_loopback()
    tools = ensure_tools([*DEFAULT, "kubectl", *FRAMEWORKS], say)
    with LastingPlane(tools) as plane, Cluster.connect(plane.kubeconfig, tools, plane) as cluster:
        cluster.install_chart({"operator": {"enabled": False}})
        install_crds(cluster, *PROGRAMS, further=find_pod_groups())
        yield cluster


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Api:
    """The administrator's view of the cluster."""
    return cluster.api


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A framework with its operators, which run."""
    chosen: Case = request.param
    with running(cluster, tmp_path_factory.mktemp(chosen.name), *chosen.programs):
        yield chosen


@pytest.fixture(scope="module")
def spark(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """The operator of Spark with its webhook."""
    with running(cluster, tmp_path_factory.mktemp("spark"), *SPARK_CASE.programs):
        yield SPARK_CASE


@pytest.fixture
def namespace(api: Api) -> Iterator[MakeNamespace]:
    """A factory of namespaces."""
    with making_namespaces(api) as make:
        yield make


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[MakeNodes]:
    """A factory of fake nodes."""
    with making_nodes(cluster) as make:
        yield make


@pytest.fixture
def tenant(api: Api) -> Iterator[MakeTenant]:
    """A factory of Tenants."""
    with making_tenants(api) as make:
        yield make


@pytest.fixture
def fairbind(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[str], Operator]]:
    """A function that starts fairbind for pods of a scheduler's name, besides its own."""
    started: list[Operator] = []

    def start(scheduler: str) -> Operator:
        log = tmp_path / f"fairbind-{len(started)}.log"
        names = [f"--scheduler-name={name}" for name in dict.fromkeys((FAIRBIND, scheduler))]
        operator = start_operator(cluster.operator_kubeconfig(), log, names)
        started.append(operator)
        operator.wait_ready()
        return operator

    yield start
    for operator in started:
        operator.stop()
        operator.close()
        assert "Traceback" not in operator.read_log(10_000), operator.read_log()
