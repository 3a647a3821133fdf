"""The small HTTP server: /metrics for Prometheus, /healthz and /readyz for the kubelet.

It knows nothing of what it shows: the metrics are rendered by a callable, and so are the two questions "is it alive"
and "is it ready", which answer None when all is well and else a line that says why not. That line is the body, so that
`curl` is enough to find out what a replica waits for.

The metrics can be kept for readers who prove who they are with a bearer token; the part that knows how to ask about
tokens is passed in. The probes stay open to all: kubelets have no token, and a line that says what a replica waits for
is all that there is to see.

No client that can reach it can stop it: connections are bounded (`connections`), and so is rendering (`pages`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from ssl import SSLContext

from aiohttp import web

from fairbind.web.connections import Limits
from fairbind.web.pages import PageCache, Render, takes_gzip
from fairbind.web.serving import Address, Serving

FindProblem = Callable[[], str | None]
FindRefusal = Callable[[str, str], Awaitable[tuple[int, str] | None]]
"""For a bearer token (empty: none) and the address that it came from, why its owner may not see the metrics: an HTTP
status and a line; None: it may."""

INDEX = "fairbind\n\n/metrics\n/healthz\n/readyz\n"


class WebServer(Serving):
    """Serves until it is stopped; shares the event loop of its caller.

    tls: serve by HTTPS. find_refusal: asked before the metrics are shown; None shows them to all. render: called
    in another thread.
    """

    def __init__(
        self,
        address: Address,
        render: Render,
        *,
        find_dead: FindProblem,
        find_unready: FindProblem,
        find_refusal: FindRefusal | None = None,
        tls: SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._pages = PageCache(render)
        self._find_dead = find_dead
        self._find_unready = find_unready
        self._find_refusal = find_refusal
        routes = [
            web.get("/", self._show_index),
            web.get("/metrics", self._show_metrics),
            web.get("/healthz", self._show_health),
            web.get("/readyz", self._show_readiness),
        ]
        super().__init__(address, routes, limits=limits or Limits(), tls=tls)

    async def _show_index(self, _request: web.Request) -> web.Response:
        return web.Response(text=INDEX)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        if self._find_refusal is not None:
            token = find_token(request.headers.get("Authorization", ""))
            refusal = await self._find_refusal(token, request.remote or "")
            if refusal is not None:
                return _refuse(*refusal)
        page = await self._pages.get(request.headers.get("Accept", ""))
        headers = {"Content-Type": page.content_type}
        if page.compressed is not None and takes_gzip(request.headers.get("Accept-Encoding", "")):
            return web.Response(body=page.compressed, headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=page.body, headers=headers)

    async def _show_health(self, _request: web.Request) -> web.Response:
        return _answer(self._find_dead())

    async def _show_readiness(self, _request: web.Request) -> web.Response:
        return _answer(self._find_unready())


def find_token(authorization: str) -> str:
    """Return the bearer token of an Authorization header; empty when there is none.

    >>> find_token("Bearer abc"), find_token("bearer  abc"), find_token("Basic abc"), find_token("")
    ('abc', 'abc', '', '')
    """
    kind, _, token = authorization.strip().partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _refuse(status: int, reason: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return web.Response(status=status, text=f"{reason}\n", headers=headers)


def _answer(problem: str | None) -> web.Response:
    return web.Response(text="ok\n") if problem is None else web.Response(status=503, text=f"{problem}\n")
