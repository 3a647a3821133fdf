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

if TYPE_CHECKING:
    from pathlib import Path

CUTS = 80


def test_a_cut_in_the_middle_of_many_connects_leaks_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leaks: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda leak: leaks.append(str(leak.exc_value)))
    source, over, refused = tmp_path / "source", threading.Event(), itertools.count()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        source.write_text(yaml.safe_dump({"clusters": [{"cluster": {"server": address}}]}))
        with Relay(source, tmp_path / "target") as relay:
            port = int(yaml.safe_load(relay.kubeconfig.read_text())["clusters"][0]["cluster"]["server"].split(":")[-1])

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
