"""Ports are free, different, and not those that the kernel hands out to clients."""

from __future__ import annotations

import socket

from localplane import ports


def test_ports_are_different_free_and_below_those_of_clients() -> None:
    found = ports.find_free_ports(20)

    assert len(set(found)) == 20
    assert all(ports.is_free(port) for port in found)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert max(found) < server.getsockname()[1]


def test_a_listener_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports.is_free(server.getsockname()[1])
