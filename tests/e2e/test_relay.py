"""The wire itself: a relay that leaks what it cuts would fail whichever test runs then."""

from __future__ import annotations

import gc
import itertools
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.relay import Relay
from localplane.ports import is_free

if TYPE_CHECKING:
    from pathlib import Path

CUTS = 80


def make_relay(folder: Path, server: socket.socket) -> Relay:
    address = f"https://127.0.0.1:{server.getsockname()[1]}"
    source = folder / "source"
    source.write_text(yaml.safe_dump({"clusters": [{"cluster": {"server": address}}]}))
    return Relay(source, folder / "target")


def test_a_relay_keeps_its_port_while_it_is_cut(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, make_relay(tmp_path, server) as relay:
        relay.mend()
        for cuts in (1, 2):
            for _ in range(cuts):
                relay.cut()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", relay.port), 1.0)
            assert not is_free(relay.port)
            relay.mend()
            socket.create_connection(("127.0.0.1", relay.port), 1.0).close()


def test_a_cut_in_the_middle_of_many_connects_leaks_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leaks: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda leak: leaks.append(str(leak.exc_value)))
    over, refused = threading.Event(), itertools.count()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server, make_relay(tmp_path, server) as relay:
        port = relay.port

        def connect() -> None:
            while not over.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
                        connection.sendall(b"x")
                except OSError:
                    next(refused)

        clients = [threading.Thread(target=connect) for _ in range(8)]
        for client in clients:
            client.start()
        for _ in range(CUTS):
            time.sleep(0.01)
            relay.cut()
            time.sleep(0.005)
            relay.mend()
        over.set()
        for client in clients:
            client.join()
    gc.collect()
    assert next(refused) > 0
    assert leaks == []
