"""The API client that tests and benchmarks use."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
import urllib3

from localplane.client import ApiClient

if TYPE_CHECKING:
    from collections.abc import Iterator


class Hasty(BaseHTTPRequestHandler):
    """Answers the first request of a connection and closes it at the second, as if idle for too long."""

    protocol_version = "HTTP/1.1"
    served = 0

    def do_GET(self) -> None:
        self.served += 1
        if self.served > 1 or self.path == "/never":
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def client() -> Iterator[ApiClient]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hasty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with ApiClient(f"http://127.0.0.1:{server.server_port}") as client:
            yield client
        server.shutdown()


def test_a_kept_connection_that_the_server_closes_is_no_failure(client: ApiClient) -> None:
    assert [client.get("/") for _ in range(3)] == [{}, {}, {}]


def test_a_server_that_never_answers_is_one(client: ApiClient) -> None:
    with pytest.raises(urllib3.exceptions.HTTPError, match="without response"):
        client.get("/never")
