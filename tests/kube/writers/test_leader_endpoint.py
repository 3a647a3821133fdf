"""The leader writes itself into the Service's EndpointSlice as it begins to lead and now and then, no other replica."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

from fairbind.kube.client.errors import ApiError
from fairbind.kube.writers.leader_endpoint import LOOK_SECONDS, REPEAT_SECONDS, LeaderEndpoint
from kube.assembled.replicas import in_virtual_time

if TYPE_CHECKING:
    from fairbind.kube.client.api import Api


class Server:
    """Remembers what was written. failures: so many requests are refused first."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.written: list[tuple[str, dict[str, Any]]] = []

    async def request(self, method: str, path: str, *, body: bytes, content_type: str, **_: Any) -> bytes:
        assert (method, content_type) == ("PATCH", "application/apply-patch+yaml")
        if self.failures:
            self.failures -= 1
            raise ApiError(403, "Forbidden", "no")
        self.written.append((path, json.loads(body)))
        return b"{}"


async def play(server: Server, leads: list[bool], address: str = "10.0.0.7") -> None:
    """Let so many looks pass."""
    now = iter(leads)
    state = [False]
    endpoint = LeaderEndpoint(
        cast("Api", server),
        namespace="fairbind-system",
        service="s",
        address=address,
        port=8443,
        may_write=lambda: state[0],
        clock=asyncio.get_running_loop().time,
    )
    task = asyncio.get_running_loop().create_task(endpoint.run())
    for state[0] in now:
        await asyncio.sleep(LOOK_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_who_begins_to_lead_writes_once() -> None:
    server = Server()
    await play(server, [False, False, True, True, True, False, True, True])
    assert len(server.written) == 2
    path, written = server.written[0]
    assert path == "/apis/discovery.k8s.io/v1/namespaces/fairbind-system/endpointslices/s"
    assert written["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
    assert written["addressType"] == "IPv4"
    assert written["endpoints"][0]["addresses"] == ["10.0.0.7"]
    assert written["ports"] == [{"name": "extender", "port": 8443, "protocol": "TCP"}]


@in_virtual_time
async def test_what_others_delete_comes_back_while_the_same_replica_leads() -> None:
    server = Server()
    await play(server, [True] * round(2.5 * REPEAT_SECONDS / LOOK_SECONDS))
    assert len(server.written) == 3


@in_virtual_time
async def test_what_fails_is_tried_again() -> None:
    server = Server(failures=2)
    await play(server, [True, True, True, True], "fd00::7")
    assert [written["addressType"] for _, written in server.written] == ["IPv6"]
