"""The judge of all assembled tests judges: what must never happen is found when it does."""

from __future__ import annotations

import asyncio
import json

import pytest

from cluster.builders import make_node, make_pod
from fairbind.kube.client.errors import ApiError
from kube.assembled.apiserver import ApiServer
from kube.assembled.connection import Connection
from kube.assembled.processes import Process
from kube.assembled.replicas import NAMESPACE, in_virtual_time


async def bind(api: Connection, name: str, node: str, uid: str = "") -> None:
    body = json.dumps({"metadata": {"uid": uid or f"uid-{name}"}, "target": {"name": node}}).encode()
    await api.request("POST", f"/api/v1/namespaces/team/pods/{name}/binding", body=body)


def make_server(holder: str) -> ApiServer:
    server = ApiServer()
    lease = {"metadata": {"name": "fairbind", "namespace": NAMESPACE}, "spec": {"holderIdentity": holder}}
    server.put("leases", lease)
    server.put("nodes", make_node("n1"), make_node("n2"))
    server.put("pods", *(make_pod(name, requests={"cpu": "3"}) for name in "pq"))
    return server


@in_virtual_time
async def test_an_overcommitted_node_is_found() -> None:
    server = make_server("me")
    api = Connection(server, "me")
    await bind(api, "p", "n1")
    assert server.broken == []
    await bind(api, "q", "n1")
    assert ["lacks {'cpu': -2.0}" in line for line in server.broken] == [True]


@in_virtual_time
async def test_a_pod_that_would_be_bound_to_two_nodes_is_found() -> None:
    server = make_server("me")
    api = Connection(server, "me")
    await bind(api, "p", "n1")
    for node in ("n1", "n2"):
        with pytest.raises(ApiError, match="409 Conflict"):
            await bind(api, "p", node)
    assert ["binds team/p to n2, but we bound it to n1" in line for line in server.broken] == [True]


@in_virtual_time
async def test_a_write_without_the_lease_is_found() -> None:
    server = make_server("me")
    await bind(Connection(server, "another"), "p", "n1")
    assert ["another writes" in line for line in server.broken] == [True]


@pytest.mark.parametrize(
    ("name", "uid", "node", "status"),
    [("p", "uid-of-another", "n1", 409), ("none", "", "n1", 404), ("p", "", "", 422), ("going", "", "n1", 409)],
)
@in_virtual_time
async def test_bindings_are_refused_as_an_api_server_does(name: str, uid: str, node: str, status: int) -> None:
    server = make_server("me")
    server.put("pods", make_pod("going"))
    server.change("pods", "team/going", lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    with pytest.raises(ApiError, match=str(status)):
        await bind(Connection(server, "me"), name, node, uid)
    assert server.bound == []


@in_virtual_time
async def test_a_frozen_process_does_nothing_and_what_it_sent_happens_all_the_same() -> None:
    server = make_server("me")
    process, api = Process(), Connection(server, "me")
    work = process.start(bind(api, "p", "n1"), "bind")
    await asyncio.sleep(0.001)
    assert len(server.requests) == 1
    process.freeze()
    await asyncio.sleep(60.0)
    assert (server.find_node("team/p"), work.done()) == ("n1", False)
    process.thaw()
    await work
