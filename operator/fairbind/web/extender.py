"""The HTTPS server that kube-scheduler asks in extender mode: POST /filter, /prioritize, /bind and /preempt.

kube-scheduler's configuration of an extender knows no tokens, only client certificates. So every client must show a
certificate that one of the authorities in `ca.crt` has signed, in the handshake, and its common name must be one of
those that were allowed: an authority of a cluster signs many certificates that are not kube-scheduler's.

Another part decides the answers: this one hands it bytes, and gets a status and bytes. Requests and connections are
bounded. kube-scheduler asks for one pod after the other, and binds many at once, each by a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from math import inf
from ssl import SSLContext
from typing import Any

from aiohttp import web

from fairbind.web.connections import Limits
from fairbind.web.serving import Address, Serving

VERBS = ("filter", "prioritize", "bind", "preempt")
MOST_BYTES = 4 << 20
"""A pod has at most 1.5 MiB, and the names of 5,000 nodes a fifth of that; a pod may be written longer in JSON."""
LIMITS = Limits(
    connections=1024, per_address=512, answer_seconds=60.0, idle_seconds=120.0, answers=inf, proven_openings=500.0
)
"""A binding goes on for half a minute when the API server is in trouble. kube-scheduler closes idle connections after
90 s; closed by us, one could take a request with it. It keeps two idle ones, so bindings need a new one each. Who is
answered has shown a certificate; who opens a connection has not yet, so an address has its pace only after a first
one."""

Answer = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Returns status and body for a verb and a request's body."""


class ExtenderServer(Serving):
    """Serves until it is stopped. client_names: common names of those who may ask."""

    def __init__(
        self,
        address: Address,
        answer: Answer,
        *,
        tls: SSLContext,
        client_names: Collection[str],
        limits: Limits = LIMITS,
    ) -> None:
        self._answer = answer
        self._client_names = frozenset(client_names)
        routes = [web.post(f"/{{verb:{'|'.join(VERBS)}}}", self._ask)]
        super().__init__(address, routes, limits=limits, most_bytes=MOST_BYTES, tls=tls)

    async def _ask(self, request: web.Request) -> web.Response:
        name = find_common_name(request.get_extra_info("peercert"))
        if name not in self._client_names:
            return web.Response(status=HTTPStatus.FORBIDDEN, text=f"{name!r} may not ask\n")
        status, body = await self._answer(request.match_info["verb"], await request.read())
        response = web.Response(status=status, body=body, content_type="application/json")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            response.force_close()  # a new connection leads to the leader; this one would lead here for ever
        return response


def find_common_name(certificate: Any) -> str:
    """Return the common name of a client certificate, as Python's ssl describes it; empty when there is none.

    >>> find_common_name({"subject": ((("organizationName", "o"),), (("commonName", "system:kube-scheduler"),))})
    'system:kube-scheduler'
    """
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for key, value in part if key == "commonName"), "")
