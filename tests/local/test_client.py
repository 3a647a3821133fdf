"""The JSON client asks again what a server that has no time refused, and nothing else."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from localplane.client import ApiClient, ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

TOO_BUSY, GONE = 429, 410
REFUSAL: dict[str, object] = {"reason": "TooManyRequests", "message": "storage is (re)initializing"}


@contextmanager
def server(refusals: int, status: int, headers: dict[str, str]) -> Iterator[tuple[ApiClient, list[str]]]:
    """Run a server that refuses so many requests before it answers; yield a client of it and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            asked.append(f"{self.command} {self.path} {body}".strip())
            refused = len(asked) <= refusals
            answer = REFUSAL if refused else {"items": []}
            content = json.dumps(answer).encode()
            self.send_response(status if refused else 200)
            for name, text in {"Content-Type": "application/json", **(headers if refused else {})}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815  the names that the library calls

        def log_message(self, *arguments: object) -> None: ...

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        with ApiClient(f"http://127.0.0.1:{listener.server_port}") as client:
            yield client, asked
    finally:
        listener.shutdown()
        listener.server_close()


def test_who_is_told_to_come_back_later_does() -> None:
    with server(2, TOO_BUSY, {"Retry-After": "0"}) as (client, asked):
        assert client.items("/tenants") == []
        assert asked == ["GET /tenants"] * 3


def test_what_was_to_be_made_is_sent_again_whole() -> None:
    with server(1, TOO_BUSY, {"Retry-After": "0"}) as (client, asked):
        client.post("/tenants", {"weight": 2})
        assert asked == ['POST /tenants {"weight": 2}'] * 2


def test_a_server_that_never_has_time_is_believed_after_ten_more_requests() -> None:
    with server(100, TOO_BUSY, {"Retry-After": "0"}) as (client, asked):
        with pytest.raises(ApiError, match="429 TooManyRequests: storage is") as refusal:
            client.get("/tenants")
        assert (refusal.value.status, len(asked)) == (TOO_BUSY, 11)


@pytest.mark.parametrize(("status", "headers"), [(TOO_BUSY, {}), (GONE, {"Retry-After": "0"}), (500, {})])
def test_another_refusal_is_final(status: int, headers: dict[str, str]) -> None:
    with server(1, status, headers) as (client, asked):
        with pytest.raises(ApiError):
            client.get("/tenants")
        assert asked == ["GET /tenants"]
