"""One cluster for the whole run, and everything that a test makes in it taken away again.

The cluster is a local control plane, started by the first test that needs one, or the one of FAIRBIND_KUBECONFIG. The
chart is installed once without the operator itself: tests start ``fairbind operator`` as a process, with the token and
the rights of the chart's ServiceAccount, never as an administrator. A fresh cluster has no nodes: a test makes those it
needs, so that what the cluster can hold is the test's own business.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.members import joined
from e2e.objects import POLICIES, TENANTS, make_name, make_tenant
from e2e.operators import Operator, start_operator
from e2e.relay import Relay
from e2e.rendering import HOME
from e2e.waiting import wait_for
from localplane.client import ApiError, call_many
from localplane.nodes import make_node, mixed_nodes
from localplane.plane import CHART, ControlPlane, run_tool
from localplane.tools import ensure_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from e2e.api import Api, Json
    from e2e.rendering import Render
    from localplane.tools import Tools

KUBECONFIG_VARIABLE = "FAIRBIND_KUBECONFIG"
KUBERNETES_VARIABLE = "FAIRBIND_KUBERNETES"
"""The minor version of an older control plane to start instead."""
TWELVE_CORES = {"cpu": "12", "memory": "64Gi", "pods": "110"}
TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "helm", "kube-scheduler", "kubectl")

OPERATORS: pytest.StashKey[list[Operator]] = pytest.StashKey()


class MakeNamespace(Protocol):
    """Make a namespace with a unique name and return the name; it goes away with its pods after the test."""

    def __call__(self, *, labels: Mapping[str, str] | None = None) -> str: ...


class MakeNodes(Protocol):
    """Make fake nodes (a number of mixed ones, or these) and wait until they are ready; return their names."""

    def __call__(self, count_or_specs: int | Sequence[Json]) -> list[str]: ...


class MakeTenant(Protocol):
    """Make a Tenant with a unique name, or this one, and return the name; it goes away after the test."""

    def __call__(self, name: str | None = None, /, **spec: Any) -> str: ...


class StartOperator(Protocol):
    """Start ``fairbind operator`` with these further arguments; by default wait until it is ready."""

    def __call__(
        self,
        *arguments: str,
        wait: bool = True,
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Operator: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a given cluster, skip what has to stop, start or inspect parts of the local one."""
    if KUBECONFIG_VARIABLE in os.environ:
        for item in items:
            if item.get_closest_marker("local_plane"):
                item.add_marker(pytest.mark.skip(reason=f"needs the local control plane; {KUBECONFIG_VARIABLE} is set"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the operators' logs beside a failure."""
    report = yield
    if report.failed:
        for operator in item.stash.get(OPERATORS, []):
            report.sections.append((f"the end of {operator.log}", operator.read_log()))
    return report


@pytest.fixture(scope="session")
def tools(say: Callable[[str], None]) -> Tools:
    """The control plane's binaries."""
    return ensure_tools(TOOLS, say, kubernetes=os.environ.get(KUBERNETES_VARIABLE) or None)


@pytest.fixture
def helm(tools: Tools, tmp_path: Path) -> Callable[..., str]:
    """Run helm without a cluster."""
    return lambda *arguments: run_tool(tools, "helm", [str(argument) for argument in arguments], tmp_path)


@pytest.fixture
def render(helm: Callable[..., str]) -> Render:
    """Render the chart with helm and parse what comes out."""

    def render(*arguments: str) -> list[Json]:
        text = helm("template", "fairbind", CHART, f"--namespace={HOME}", *arguments)
        return [document for document in yaml.safe_load_all(text) if document]

    return render


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest, tools: Tools) -> Iterator[ControlPlane]:
    """The local control plane of this run, without nodes."""
    if KUBECONFIG_VARIABLE in os.environ:
        pytest.skip(f"needs the local control plane; {KUBECONFIG_VARIABLE} is set")
    with ControlPlane(tools) as plane:
        yield plane
        plane.stop(keep_logs=bool(request.session.testsfailed))


@pytest.fixture(scope="session")
def bare_cluster(request: pytest.FixtureRequest, tools: Tools) -> Iterator[Cluster]:
    """The cluster of this run, whether or not the chart is installed already."""
    given = os.environ.get(KUBECONFIG_VARIABLE)
    local: ControlPlane | None = None if given else request.getfixturevalue("plane")
    kubeconfig = Path(given) if local is None and given else request.getfixturevalue("plane").kubeconfig
    with Cluster.connect(kubeconfig, tools, local) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster(bare_cluster: Cluster) -> Cluster:
    """The cluster of this run with the chart installed, but for the operator itself."""
    bare_cluster.install_chart({"operator": {"enabled": False}})
    return bare_cluster


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Api:
    """The administrator's view of the cluster as JSON."""
    return cluster.api


@contextlib.contextmanager
def making_namespaces(api: Api) -> Iterator[MakeNamespace]:
    """Give a factory of namespaces; they go away with the context."""
    made: list[str] = []

    def make(*, labels: Mapping[str, str] | None = None) -> str:
        name = make_name("test")
        api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
        made.append(name)
        # pods are refused until the controllers have made it
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_for(lambda: api.exists(path), describe=f"the service account of {name}")
        return name

    try:
        yield make
    finally:
        call_many(made, functools.partial(remove_namespace, api))
        for name in made:  # what they held must not weigh on the next test
            wait_for(functools.partial(has_no_pods, api, name), describe=f"no pods in {name}")


@pytest.fixture
def namespace(api: Api) -> Iterator[MakeNamespace]:
    """A factory of namespaces."""
    with making_namespaces(api) as make:
        yield make


@contextlib.contextmanager
def making_nodes(cluster: Cluster) -> Iterator[MakeNodes]:
    """Give a factory of fake nodes; they go away with the context."""
    local = cluster.plane
    if local is None:
        pytest.skip("needs fake nodes, which only the local control plane has")
    made: list[str] = []

    def make(count_or_specs: int | Sequence[Json]) -> list[str]:
        specs = (
            mixed_nodes(count_or_specs, prefix=make_name("n")) if isinstance(count_or_specs, int) else count_or_specs
        )
        names = [spec["metadata"]["name"] for spec in specs]
        made.extend(names)  # first: what is half made must go as well
        local.add_nodes(specs)
        local.wait_nodes_ready(names)
        return names

    try:
        yield make
    finally:
        call_many(made, lambda name: remove(cluster.api, f"/api/v1/nodes/{name}"))


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[MakeNodes]:
    """A factory of fake nodes."""
    with making_nodes(cluster) as make:
        yield make


@pytest.fixture
def node(nodes: MakeNodes) -> str:
    """A node of twelve cores."""
    return nodes([make_node(make_name("n"), allocatable=TWELVE_CORES)])[0]


@pytest.fixture
def mine(namespace: MakeNamespace) -> str:
    """The namespace of a tenant's member."""
    return namespace()


@pytest.fixture
def theirs(namespace: MakeNamespace) -> str:
    """The namespace of somebody else."""
    return namespace()


@pytest.fixture
def member(cluster: Cluster, mine: str) -> Iterator[Api]:
    """An administrator of `mine` and of nothing else."""
    with joined(cluster, mine) as member:
        yield member


@contextlib.contextmanager
def making_tenants(api: Api) -> Iterator[MakeTenant]:
    """Give a factory of Tenants; they go away with the context."""
    made: list[str] = []

    def make(name: str | None = None, /, **spec: Any) -> str:
        name = name or make_name("tenant")
        api.post(TENANTS, make_tenant(name, **spec))
        made.append(name)
        return name

    try:
        yield make
    finally:
        for name in made:
            remove(api, f"{TENANTS}/{name}")


@pytest.fixture
def tenant(api: Api) -> Iterator[MakeTenant]:
    """A factory of Tenants."""
    with making_tenants(api) as make:
        yield make


@pytest.fixture
def policy(api: Api) -> Iterator[Callable[..., None]]:
    """A function that changes fields of the default SchedulingPolicy's spec; they are as before after the test."""
    before = api.get(f"{POLICIES}/default")["spec"]
    spec = dict(before)

    def change(**fields: Any) -> None:
        spec.update(fields)
        set_policy(api, {name: value for name, value in spec.items() if value is not None})

    yield change
    set_policy(api, before)


@pytest.fixture
def relay(cluster: Cluster, tmp_path: Path) -> Iterator[Relay]:
    """A wire to the API server that can be cut, for whoever uses its kubeconfig, with the operator's rights."""
    with Relay(cluster.operator_kubeconfig(), tmp_path / "relay.kubeconfig") as relay:
        yield relay


@pytest.fixture
def operator(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[StartOperator]:
    """A factory of operators with the rights of the chart's ServiceAccount; they end with the test."""
    started = request.node.stash.setdefault(OPERATORS, [])

    def start(
        *arguments: str,
        wait: bool = True,
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Operator:
        log = tmp_path / f"operator-{len(started)}.log"
        identity = kubeconfig or cluster.operator_kubeconfig()
        operator = start_operator(identity, log, arguments, environment=environment)
        started.append(operator)
        if wait:
            operator.wait_ready()
        return operator

    yield start
    for running in started:
        if running.is_running:
            running.stop()  # in order, so that the next test's operator need not wait for the lease to run out
        running.close()
    for running in started:
        assert "Traceback" not in running.read_log(10_000), running.read_log()


def set_policy(api: Api, spec: Json) -> None:
    """Give the default SchedulingPolicy this spec in helm's name: its next upgrade refuses what others have changed."""
    now = api.get(f"{POLICIES}/default")
    metadata = {key: now["metadata"][key] for key in ("name", "labels", "annotations") if key in now["metadata"]}
    applied = {"apiVersion": now["apiVersion"], "kind": now["kind"], "metadata": metadata, "spec": spec}
    api.patch(f"{POLICIES}/default", applied, kind="apply", fieldManager="helm", force="true")


def remove(api: Api, path: str) -> None:
    """Delete an object if it is still there."""
    try:
        api.delete(path)
    except ApiError as error:
        if error.status != 404:
            raise


def remove_namespace(api: Api, name: str) -> None:
    """Delete a namespace, and its pods without grace."""
    at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    path = f"/api/v1/namespaces/{name}/pods"
    wait_for(lambda: api.delete(path, at_once), describe=f"the pods of {name} to be deleted")  # many take long
    remove(api, f"/api/v1/namespaces/{name}")


def has_no_pods(api: Api, namespace: str) -> bool:
    """Tell whether a namespace is empty of pods."""
    return not api.items(f"/api/v1/namespaces/{namespace}/pods", limit=1)
