"""Connections of clients: so many in all, so many from one address, and each for a limited time.

No client is turned away at the door. A newcomer above a limit takes the place of another connection: of the address
that has most, one that waits for nothing of ours before one that is being answered, the oldest first. So a client that
opens connections without end closes his own ones, and a kubelet or Prometheus always gets in.

Connections begin at a pace, and so do answers (`pace`). Where clients must show certificates, an address from which
one has finished its handshake has a pace of its own, so that others, who have shown none, cannot slow it.

A connection is closed when the whole header of a request (after a TLS handshake, where there is TLS) does not come in
time, when its reader does not take the answer in time, and when it has been idle for long. Limits are counted on the
TCP connection itself: one in the middle of its handshake counts as any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import cast

from fairbind.web.pace import Pace

LOOK_SECONDS = 0.5
"""How often it is looked for connections whose time is over."""
RETRY_SECONDS = 0.1
BACKLOG = 128
MOST_PROVEN = 64
"""Addresses that are known to have finished a handshake, at most."""
PART_OF_ADDRESS = 0.2
"""Of what may begin in a second."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections there may be, for how many seconds each may take, and how many may begin in a second.

    header: from the connection, or from the first byte of a later request, until the request's header is complete.
    answer: from there until the answer was taken. idle: from there to the next request. openings, answers: per second,
    handshakes included; one address may have a fifth (`PART_OF_ADDRESS`). inf: any number. proven_openings: in place of
    openings for addresses from which a client has finished a handshake; None: these have no pace of their own.
    """

    connections: int = 64
    per_address: int = 8
    header_seconds: float = 10.0
    answer_seconds: float = 15.0
    idle_seconds: float = 75.0
    openings: float = 50.0
    answers: float = 50.0
    proven_openings: float | None = None


class _State(Enum):
    READING = "a request is on its way"
    ANSWERING = "a request is being answered"
    IDLE = "nothing is on its way"


class _Connection(asyncio.Protocol):
    """Stands between a transport and the protocol that speaks HTTP, and knows what the connection is waiting for."""

    def __init__(self, connections: Connections, accepted: socket.socket, address: str) -> None:
        self._connections = connections
        self._socket = accepted
        self.inner = connections.make_protocol()
        self.address = address
        self.state = _State.READING
        self.since = 0.0
        self.ends_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_last_answer = False
        self._admission: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Begin to read, after a handshake where there is TLS."""
        self._opening = asyncio.get_running_loop().create_task(self._open())
        self._opening.add_done_callback(self._check_opened)

    async def _open(self) -> None:
        await self.wait(self._connections.find_pace(self.address))
        tls = self._connections.tls
        seconds = None if tls is None else self._connections.limits.header_seconds
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: uvloop's word for a closed connection
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self, self._socket, ssl=tls, ssl_handshake_timeout=seconds
            )

    def _check_opened(self, _task: asyncio.Task[None]) -> None:
        if self._transport is None:
            self._socket.close()
            self._connections.forget(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.note_opened(self.address)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.state is _State.IDLE:
            self.enter(_State.READING)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.forget(self)
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

    async def wait(self, pace: Pace) -> None:
        """Wait for a turn. CancelledError when the connection is closed before."""
        self._admission = pace.enter(self.address)
        await self._admission

    def leave(self) -> None:
        """Wait for no turn any more."""
        if self._admission is not None:
            self._admission.cancel()

    def end(self) -> None:
        """Close it, after the answer if one is on its way."""
        if self.state is _State.ANSWERING:
            self._is_last_answer = True
        else:
            self.abort()

    def end_answer(self) -> None:
        """Wait for the next request, if it may come."""
        self.enter(_State.IDLE)
        if self._is_last_answer and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once, whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is not None:
            self._opening.cancel()


class Connections:
    """Accepts connections for protocols that speak HTTP. Belongs to one event loop."""

    def __init__(
        self, make_protocol: Callable[[], asyncio.Protocol], *, limits: Limits, tls: ssl.SSLContext | None = None
    ) -> None:
        """make_protocol: called for each connection."""
        self.make_protocol = make_protocol
        self.limits = limits
        self.tls = tls
        self._openings = Pace(limits.openings, PART_OF_ADDRESS * limits.openings)
        proven = limits.proven_openings
        self._proven_openings = None if proven is None else Pace(proven, PART_OF_ADDRESS * proven)
        self._proven: dict[str, None] = {}
        self._answers = Pace(limits.answers, PART_OF_ADDRESS * limits.answers)
        self._open: dict[asyncio.Protocol, _Connection] = {}
        self._listeners: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    async def listen(self, host: str | None, port: int) -> int:
        """Accept from now on; return the port. Raises OSError when the address cannot be had.

        host: None means every address of every family that the machine has.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        missing: OSError | None = None
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                self._listeners.append(_make_listener(family, (str(address[0]), port or self._find_port())))
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and host is None:
                    missing = error  # a machine without IPv6, say
                    continue
                self._close_listeners()
                raise
        if missing is not None and not self._listeners:
            raise missing
        self._tasks = [loop.create_task(self._accept(listener), name="accept") for listener in self._listeners]
        self._tasks.append(loop.create_task(self._end_overdue(), name="overdue connections"))
        return self._find_port()

    def _find_port(self) -> int:
        """Return the port that the first listener got; 0 before there is one."""
        return int(self._listeners[0].getsockname()[1]) if self._listeners else 0

    async def stop_listening(self) -> None:
        """Accept nothing more; what is open stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_listeners()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def find_pace(self, address: str) -> Pace:
        """Return the pace at which connections from an address begin."""
        is_proven = self._proven_openings is not None and address in self._proven
        return self._proven_openings if is_proven and self._proven_openings is not None else self._openings

    def note_opened(self, address: str) -> None:
        """Note that a client has finished its handshake."""
        if self._proven_openings is not None:
            self._proven.pop(address, None)
            self._proven[address] = None
            if len(self._proven) > MOST_PROVEN:
                del self._proven[next(iter(self._proven))]

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Serve by another context from now on: what the one before let in ends, after an answer on its way."""
        self.tls = tls
        self._proven.clear()
        for connection in list(self._open.values()):
            connection.end()

    def close_all(self) -> None:
        """Close what is open at once."""
        for connection in list(self._open.values()):
            connection.abort()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError:  # no more open files are allowed, or the newcomer has gone
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._admit(_Connection(self, accepted, address[0]))

    async def begin_answer(self, protocol: asyncio.BaseProtocol) -> None:
        """Note that the header of a request is complete, and wait until it may be answered.

        protocol: who speaks HTTP on the connection. CancelledError when the connection is closed meanwhile.
        """
        if (connection := self._open.get(cast("asyncio.Protocol", protocol))) is not None:
            connection.enter(_State.ANSWERING)
            await connection.wait(self._answers)

    def end_answer(self, protocol: asyncio.BaseProtocol) -> None:
        """Note that the answer was taken."""
        if (connection := self._open.get(cast("asyncio.Protocol", protocol))) is not None:
            connection.end_answer()

    def _admit(self, newcomer: _Connection) -> None:
        """Take a connection in, for another's place if need be."""
        others = list(self._open.values())
        newcomer.enter(_State.READING)
        self._open[newcomer.inner] = newcomer
        newcomer.open()
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
        connection.leave()

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


def _make_listener(family: int, address: tuple[str, int]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
