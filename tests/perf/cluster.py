"""What the benchmark itself asks of the cluster: namespaces and pods, made and removed quickly.

It does so as a service account with all rights, but as little exempt from priority and fairness as any contender: a
flood of requests that nothing holds back would measure how the API server drowns, not how it serves.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.errors import ApiError
from perf.workload import RUN_LABEL, BenchPod, encode_pod, make_namespaces, make_tenants

IN_FLIGHT = 64
NOT_FOUND, TOO_MANY, TIMED_OUT = 404, 429, 504
Item = TypeVar("Item")


class _CreatedMetadata(msgspec.Struct):
    uid: str
    resourceVersion: str = ""  # noqa: N815  as the API spells it


class _Created(msgspec.Struct):
    metadata: _CreatedMetadata


_decode_created = msgspec.json.Decoder(_Created).decode


async def run_many(items: Iterable[Item], call: Callable[[Item], Awaitable[None]], in_flight: int) -> None:
    """Make a call for each item, at most so many at the same time; the first error ends all."""
    iterator = iter(items)

    async def work() -> None:
        for item in iterator:
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())


async def ask(
    api: ApiClient,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    content_type: str = "application/json",
    timeout_seconds: float = 15.0,
) -> bytes:
    """Send a request and return its answer; again when the API server asks to come back later."""
    while True:
        try:
            return await api.request(
                method, path, body=body, content_type=content_type, timeout_seconds=timeout_seconds
            )
        except ApiError as error:
            if error.status != TOO_MANY:
                raise
            await asyncio.sleep(error.retry_after or 1.0)


async def create_tenants(api: ApiClient) -> None:
    """Create the Tenants, once for all runs."""
    for tenant in make_tenants():
        await ask(api, "POST", "/apis/fairbind.io/v1alpha1/tenants", body=json.dumps(tenant).encode())


async def create_namespaces(api: ApiClient, run: str, labels: Mapping[str, str]) -> None:
    """Create a run's namespaces, with these labels, and wait until pods can be created there."""

    async def create(namespace: dict[str, Any]) -> None:
        name = namespace["metadata"]["name"]
        await ask(api, "POST", "/api/v1/namespaces", body=json.dumps(namespace).encode())
        while not await _exists(api, f"/api/v1/namespaces/{name}/serviceaccounts/default"):  # noqa: ASYNC110  no event
            await asyncio.sleep(0.05)

    await run_many(make_namespaces(run, labels), create, IN_FLIGHT)


class PodMaker:
    """Creates pods and keeps what is known of them: when they were asked for, their UIDs and resource versions."""

    def __init__(self, api: ApiClient, run: str, scheduler: str) -> None:
        self._api = api
        self._run = run
        self._scheduler = scheduler
        self.asked_at: dict[str, float] = {}
        self.uids: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    async def create(self, pod: BenchPod) -> None:
        """Create one pod; its time starts before the call, so that it holds all that a user would wait."""
        self.asked_at.setdefault(pod.name, time.monotonic())
        body = encode_pod(pod, self._run, self._scheduler)
        answer = await ask(self._api, "POST", f"/api/v1/namespaces/{pod.namespace}/pods", body=body)
        created = _decode_created(answer).metadata
        self.uids[pod.name], self.versions[pod.name] = created.uid, created.resourceVersion

    async def create_all(self, pods: Sequence[BenchPod]) -> float:
        """Create pods as fast as it goes and return how many a second."""
        started = time.monotonic()
        await run_many(pods, self.create, IN_FLIGHT)
        return len(pods) / (time.monotonic() - started)

    async def create_at_rate(
        self, pods: Sequence[BenchPod], rate: float, then: Callable[[BenchPod], Awaitable[None]] | None = None
    ) -> float:
        """Create pods at a steady rate, whatever becomes of the earlier ones; return the rate that was reached.

        The time of a pod starts when it is due. So nobody gains by answering slowly: when all connections are busy, the
        wait for one counts too. rate: pods a second. then: what is done with each pod that has been created.
        """
        started = time.monotonic()

        async def create_when_due(numbered: tuple[int, BenchPod]) -> None:
            number, pod = numbered
            due = self.asked_at[pod.name] = started + number / rate
            if (wait_seconds := due - time.monotonic()) > 0:
                await asyncio.sleep(wait_seconds)
            await self.create(pod)
            if then is not None:
                await then(pod)

        await run_many(enumerate(pods), create_when_due, IN_FLIGHT if then is None else 2 * IN_FLIGHT)
        return len(pods) / (time.monotonic() - started)


async def open_connections(api: ApiClient) -> None:
    """Make the connections that creating pods needs, so that handshakes do not fall into what is timed."""

    async def look(_: int) -> None:
        await ask(api, "GET", "/api/v1/namespaces/default")

    await run_many(range(8 * IN_FLIGHT), look, IN_FLIGHT)


async def delete_pods(api: ApiClient, run: str) -> None:
    """Delete a run's pods at once, without grace, and wait until they are gone."""
    options = json.dumps({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).encode()

    async def delete(namespace: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{namespace['metadata']['name']}/pods"
        while json.loads(await api.request("GET", path, query={"limit": "1"}))["items"]:
            try:
                await ask(api, "DELETE", path, body=options, timeout_seconds=120)
            except ApiError as error:
                if error.status != TIMED_OUT:  # a slow machine does not delete a whole namespace within a minute
                    raise

    await run_many(make_namespaces(run), delete, 8)


async def fetch_nodes_of_pods(api: ApiClient, run: str) -> dict[str, str]:
    """Return where the API says that a run's bound pods are, by the pod's name."""
    query = {"labelSelector": f"{RUN_LABEL}={run}", "resourceVersion": "0"}
    listed = json.loads(await api.request("GET", "/api/v1/pods", query=query, timeout_seconds=120))
    pods = listed["items"] or []
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}


async def _exists(api: ApiClient, path: str) -> bool:
    try:
        await api.request("GET", path)
    except ApiError as error:
        if error.status == NOT_FOUND:
            return False
        raise
    return True
