"""The binder against a real API server, with the rights of the chart's ServiceAccount."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml

from e2e.audit import check_bound_once, read_bindings
from e2e.members import bind_role
from e2e.objects import make_pod
from e2e.waiting import wait_for
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.observer import SilentObserver
from fairbind.kube.writers.binder import GIVE_UP_SECONDS, Binder
from localplane.client import call_many

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace
    from localplane.plane import ControlPlane

NODE = "a-node-that-nobody-has-to-have"  # a binding is not checked against the nodes


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    api = ApiClient(load_credentials(kubeconfig))
    try:
        yield api
    finally:
        await api.close()


def make_binder(api: ApiClient, may_bind: Callable[[], bool] = lambda: True, in_flight: int = 64) -> Binder:
    return Binder(api, SilentObserver(), may_bind=may_bind, in_flight=in_flight)


class Pods:
    """Pods of one namespace, deleted without waiting for a kubelet that is not there."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def add(self, name: str | None = None, **spec: Any) -> Json:
        pod: Json = self.api.post(self.path, make_pod({"cpu": "1"}, name=name, **spec))
        return pod

    def find(self, pod: Json) -> Json:
        found: Json = self.api.get(f"{self.path}/{pod['metadata']['name']}")
        return found

    def find_node(self, pod: Json) -> str | None:
        node: str | None = self.find(pod)["spec"].get("nodeName")
        return node

    async def bind(self, binder: Binder, pod: Json, node: str = NODE) -> BindResult:
        return await binder.bind(self.namespace, pod["metadata"]["name"], pod["metadata"]["uid"], node)


@pytest.fixture
def pods(api: Api, namespace: MakeNamespace) -> Iterator[Pods]:
    """Gone before their namespace: the nodes that they are bound to do not exist, so nothing else ends them."""
    pods = Pods(api, namespace())
    yield pods
    for pod in api.items(pods.path):
        if pod["metadata"].get("finalizers"):
            api.patch(f"{pods.path}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})


async def test_a_pod_is_bound(cluster: Cluster, pods: Pods) -> None:
    pod = pods.add()
    async with connected(cluster.operator_kubeconfig()) as api:
        assert await pods.bind(make_binder(api), pod) is BindResult.BOUND
    found = pods.find(pod)
    assert found["spec"]["nodeName"] == NODE
    scheduled = [entry for entry in found["status"]["conditions"] if entry["type"] == "PodScheduled"]
    assert [entry["status"] for entry in scheduled] == ["True"]


async def test_what_cannot_be_bound_is_told_apart(cluster: Cluster, pods: Pods) -> None:
    async with connected(cluster.operator_kubeconfig()) as api:
        binder = make_binder(api)

        bound = pods.add()
        assert await pods.bind(binder, bound) is BindResult.BOUND
        # Again to the same node: BOUND only if a slow answer made the binder look where the pod is.
        assert await pods.bind(binder, bound) in {BindResult.CONFLICT, BindResult.BOUND}
        assert await pods.bind(binder, bound, "another-node") is BindResult.CONFLICT
        assert pods.find_node(bound) == NODE

        gone = pods.add()
        pods.api.delete(f"{pods.path}/{gone['metadata']['name']}")
        assert await pods.bind(binder, gone) is BindResult.GONE

        anew = pods.add(gone["metadata"]["name"])
        # GONE if a slow answer made the binder look which pod has that name now.
        assert await pods.bind(binder, gone) in {BindResult.CONFLICT, BindResult.GONE}
        assert pods.find_node(anew) is None

        gated = pods.add(schedulingGates=[{"name": "example.com/not-yet"}])
        assert await pods.bind(binder, gated) is BindResult.CONFLICT

        held = make_pod({"cpu": "1"})
        held["metadata"]["finalizers"] = ["example.com/held"]
        held = pods.api.post(pods.path, held)
        pods.api.delete(f"{pods.path}/{held['metadata']['name']}")
        assert await pods.bind(binder, held) is BindResult.CONFLICT


async def test_a_namespace_that_is_being_deleted_takes_no_binding(cluster: Cluster, pods: Pods) -> None:
    waiting = make_pod({"cpu": "1"})
    waiting["metadata"]["finalizers"] = ["example.com/held"]
    pod = pods.api.post(pods.path, waiting)
    pods.api.delete(f"/api/v1/namespaces/{pods.namespace}")
    async with connected(cluster.operator_kubeconfig()) as api:
        assert await pods.bind(make_binder(api), pod) in {BindResult.GONE, BindResult.CONFLICT}
    assert pods.find_node(pod) is None


async def test_who_may_not_bind_fails_and_says_why(
    cluster: Cluster, pods: Pods, caplog: pytest.LogCaptureFixture
) -> None:
    pod = pods.add()
    bind_role(pods.api, pods.namespace, "view", pods.namespace, "default")  # after a slow answer the binder looks
    async with connected(cluster.service_account_kubeconfig(pods.namespace, "default")) as api:
        assert await pods.bind(make_binder(api), pod) is BindResult.FAILED
    assert "pods/binding" in caplog.text


async def test_a_closed_fence_sends_nothing(cluster: Cluster, pods: Pods) -> None:
    pod = pods.add()
    async with connected(cluster.operator_kubeconfig()) as api:
        assert await pods.bind(make_binder(api, may_bind=lambda: False), pod) is BindResult.FENCED
    assert pods.find_node(pod) is None


class CuttingProxy:
    """Passes bytes on to the API server and cuts connections by chance, mostly before an answer comes back."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._target = parts.hostname, parts.port
        self._random = random.Random(7)
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.cuts = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        budget = self._random.randint(2_000, 8_000)  # bytes of answers, the TLS handshake included
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(reader, server_writer, 1 << 30))
                tasks.create_task(self._pass_on(server_reader, writer, budget))
        except* (OSError, EOFError):
            pass
        finally:
            for end in (writer, server_writer):
                end.transport.abort()
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int) -> None:
        while chunk := await reader.read(1 << 16):
            budget -= len(chunk)
            if budget < 0:
                self.cuts += 1
                raise EOFError
            writer.write(chunk)
            await writer.drain()
        raise EOFError

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def cutting(url: str) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(url)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()


async def bind_all(pods: Pods, binder: Binder, pod_by_node: Mapping[str, Json]) -> None:
    """Bind all; what the binder gave up, as it may after a while, again. So many TLS handshakes can take long."""
    left = dict(pod_by_node)
    while left:
        began = time.monotonic()
        results = await asyncio.gather(*(pods.bind(binder, pod, node) for node, pod in left.items()))
        outcome = dict(zip(left, results, strict=True))
        assert set(results) <= {BindResult.BOUND, BindResult.FAILED}, outcome
        assert BindResult.FAILED not in results or time.monotonic() - began > GIVE_UP_SECONDS, outcome
        left = {node: pod for node, pod in left.items() if outcome[node] is BindResult.FAILED}


@pytest.mark.local_plane
async def test_lost_answers_leave_no_pod_unbound_and_none_bound_twice(
    cluster: Cluster, plane: ControlPlane, pods: Pods, tmp_path: Path
) -> None:
    count = 200
    call_many(range(count), lambda _number: pods.add())
    made = pods.api.items(pods.path)
    kubeconfig = cluster.operator_kubeconfig()
    config = yaml.safe_load(kubeconfig.read_text())
    [entry] = config["clusters"]
    async with cutting(entry["cluster"]["server"]) as proxy:
        entry["cluster"]["server"] = proxy.url
        through_proxy = tmp_path / "kubeconfig"
        through_proxy.write_text(yaml.safe_dump(config))
        async with connected(through_proxy) as api:
            await bind_all(pods, make_binder(api, in_flight=32), {f"node-{n}": pod for n, pod in enumerate(made)})
    assert proxy.cuts > 10
    nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods.api.items(pods.path)}
    assert nodes == {pod["metadata"]["name"]: f"node-{n}" for n, pod in enumerate(made)}

    def are_logged() -> bool:
        """The log is written a moment after the answer. One that was done too late stands there as failed."""
        bindings = read_bindings(plane.audit_log, namespace=pods.namespace)
        return len({tried.pod for tried in bindings if tried.is_done or tried.status >= 500}) == count

    wait_for(are_logged, describe="all bindings in the audit log")
    bindings = read_bindings(plane.audit_log, namespace=pods.namespace)
    check_bound_once(bindings)
    assert all(binding.uid for binding in bindings)
