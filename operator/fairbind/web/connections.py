"""Connections from whoever can reach us: so many in all, so many from one address, and each for a limited time.

Nobody is turned away at the door. A newcomer above a limit takes the place of another connection: of the address that
has most, one that waits for nothing of ours before one that is being answered, the oldest first. So whoever opens
connections without end closes his own ones, and a kubelet or Prometheus always gets in.

A connection is closed when the whole header of a request (after a TLS handshake, where there is TLS) does not come in
time, when its reader does not take the answer in time, and when it has been idle for long. Limits are counted on the
TCP connection itself: one in the middle of its handshake counts as any other.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import cast

LOOK_SECONDS = 0.5
"""How often it is looked for connections whose time is over."""
BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections there may be, and for how many seconds each may take.

    header: from the connection, or from the first byte of a later request, until the request's header is complete.
    answer: from there until the answer was taken. idle: from there to the next request.
    """

    connections: int = 64
    per_address: int = 8
    header_seconds: float = 10.0
    answer_seconds: float = 15.0
    idle_seconds: float = 75.0


class _State(Enum):
    READING = "a request is on its way"
    ANSWERING = "a request is being answered"
    IDLE = "nothing is on its way"


class _Connection(asyncio.Protocol):
    """Stands between a transport and the protocol that speaks HTTP, and knows what the connection is waiting for."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self._connections = connections
        self.inner = inner
        self.address = ""
        self.state = _State.READING
        self.since = 0.0
        self.ends_at = 0.0
        self._socket: asyncio.Transport | None = None
        self._early: list[bytes] | None = []  # what came before the inner protocol has its transport; then None
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self._connections.admit(self)
        context = self._connections.tls
        if context is None:
            self._begin(self._socket)
        else:
            self._socket.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._shake_hands(self._socket, context))

    async def _shake_hands(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        seconds = self._connections.limits.header_seconds
        try:
            protected = await asyncio.get_running_loop().start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=seconds
            )
        except (OSError, RuntimeError):  # RuntimeError: it was closed under the handshake
            protected = None
        if protected is None:
            self.abort()
            self._connections.forget(self)
        else:
            self._begin(protected)

    def _begin(self, transport: asyncio.Transport) -> None:
        self.inner.connection_made(transport)
        early, self._early = self._early or [], None
        for data in early:
            self.inner.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)
            return
        if self.state is _State.IDLE:
            self.enter(_State.READING)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received() if self._early is None else None

    def pause_writing(self) -> None:
        if self._early is None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self._early is None:
            self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.forget(self)
        if self._early is None:
            self.inner.connection_lost(exc)

    def enter(self, state: _State) -> None:
        """Wait for the next thing, from now on."""
        limits = self._connections.limits
        self.state = state
        self.since = asyncio.get_running_loop().time()
        self.ends_at = (
            self.since
            + {
                _State.READING: limits.header_seconds,
                _State.ANSWERING: limits.answer_seconds,
                _State.IDLE: limits.idle_seconds,
            }[state]
        )

    def abort(self) -> None:
        """Close it at once, whatever is on its way."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._socket is not None:
            self._socket.abort()


class Connections:
    """Accepts connections for protocols that speak HTTP. Belongs to one event loop."""

    def __init__(
        self, make_protocol: Callable[[], asyncio.Protocol], *, limits: Limits, tls: ssl.SSLContext | None = None
    ) -> None:
        """make_protocol: called for each connection."""
        self._make_protocol = make_protocol
        self.limits = limits
        self.tls = tls
        self._open: dict[asyncio.Protocol, _Connection] = {}
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    async def listen(self, host: str | None, port: int) -> int:
        """Accept from now on; return the port. Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self, self._make_protocol()), host, port, backlog=BACKLOG
        )
        self._looking = loop.create_task(self._end_overdue(), name="overdue connections")
        return int(self._server.sockets[0].getsockname()[1])

    def stop_listening(self) -> None:
        """Accept nothing more; what is open stays."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Close everything at once."""
        self.stop_listening()
        if self._looking is not None:
            self._looking.cancel()
        for connection in list(self._open.values()):
            connection.abort()

    def begin_answer(self, protocol: asyncio.BaseProtocol) -> None:
        """Note that the header of a request is complete. protocol: who speaks HTTP on the connection."""
        if (connection := self._open.get(cast("asyncio.Protocol", protocol))) is not None:
            connection.enter(_State.ANSWERING)

    def end_answer(self, protocol: asyncio.BaseProtocol) -> None:
        """Note that the answer was taken."""
        if (connection := self._open.get(cast("asyncio.Protocol", protocol))) is not None:
            connection.enter(_State.IDLE)

    # --- what a connection calls ---

    def admit(self, newcomer: _Connection) -> None:
        """Take a connection in, for another's place if need be."""
        others = list(self._open.values())
        newcomer.enter(_State.READING)
        self._open[newcomer.inner] = newcomer
        counts = Counter(connection.address for connection in self._open.values())
        if counts[newcomer.address] > self.limits.per_address:
            self._displace([connection for connection in others if connection.address == newcomer.address])
        elif len(self._open) > self.limits.connections:
            # The newcomer counts: an address that comes to have most gives a place of its own.
            most = max(counts[connection.address] for connection in others)
            self._displace([connection for connection in others if counts[connection.address] == most])

    def forget(self, connection: _Connection) -> None:
        """Drop a connection that is closed."""
        self._open.pop(connection.inner, None)

    def _displace(self, candidates: list[_Connection]) -> None:
        chosen = min(candidates, key=lambda connection: (connection.state is _State.ANSWERING, connection.since))
        self.forget(chosen)
        chosen.abort()

    async def _end_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = loop.time()
            for connection in list(self._open.values()):
                if now >= connection.ends_at:
                    self.forget(connection)
                    connection.abort()
