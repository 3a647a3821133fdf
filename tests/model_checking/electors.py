"""The operator's own elector, twice, on a clock and an API server that a trace of the model drives step by step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.operator.elector import LEASE_SECONDS, Elector
from kube.operator.simulation import LeaseServer

TURNS = 20
"""So many turns of the event loop are enough for everybody to come to a wait."""


@dataclass(slots=True)
class Request:
    """A request that an elector waits for. outcome: set once the server has carried it out."""

    method: str
    path: str
    body: bytes | None
    answered: asyncio.Future[bytes]
    outcome: bytes | ApiError | None = None

    def carry_out(self, server: LeaseServer) -> None:
        """Let the server do it; whoever sent it does not hear of it yet."""
        try:
            self.outcome = server.carry_out(self.method, self.path, self.body)
        except ApiError as error:
            self.outcome = error

    def answer(self) -> None:
        """Let the sender hear what became of it."""
        assert self.outcome is not None
        if isinstance(self.outcome, bytes):
            self.answered.set_result(self.outcome)
        else:
            self.answered.set_exception(self.outcome)


@dataclass
class DrivenElector:
    """An elector whose clock, pauses and requests wait for the trace."""

    name: str
    lives: int = 0
    seconds: float = 1000.0
    request_under_way: Request | None = None
    late: Request | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pause: asyncio.Event = asyncio.Event()
        self.start()

    def start(self) -> None:
        """Begin a new life, with a name that nobody had before."""
        self.lives += 1
        self.elector = Elector(
            self, "fairbind-system", identity=self.identity, clock=lambda: self.seconds, sleep=self._sleep
        )
        self._has_begun = False

    @property
    def identity(self) -> str:
        """The name in the lease."""
        return f"{self.name}-{self.lives}"

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = LEASE_SECONDS, **_: Any
    ) -> bytes:
        """Wait for what the trace makes of a request; it keeps the time limit, or not."""
        del timeout_seconds
        sent = Request(method, path, body, asyncio.get_running_loop().create_future())
        self.request_under_way = sent
        return await sent.answered

    async def _sleep(self, seconds: float) -> None:
        del seconds
        self._pause.clear()
        await self._pause.wait()

    async def begin(self, method: str, server: LeaseServer) -> bool:
        """Let the next attempt begin with this request; what it has under way before that can only fail.

        Returns whether a write was in vain because there is no lease.
        """
        is_missing = False
        if not self._has_begun:
            self._has_begun = True
            self.tasks.append(asyncio.create_task(self.elector.run()))
        for _ in range(5):
            await settle()
            if self.request_under_way is None:
                self._pause.set()  # a pause may consist of two
            elif self.request_under_way.method == method:
                return is_missing
            else:
                is_missing |= await self._fail(self.request_under_way, server)
        raise AssertionError(f"{self.identity} does not begin with {method}")

    async def _fail(self, request: Request, server: LeaseServer) -> bool:
        if request.outcome is None:
            request.carry_out(server)
        assert isinstance(request.outcome, ApiError), "what can only fail was carried out"
        await self.answer()
        return request.outcome.status == HTTPStatus.NOT_FOUND

    async def answer(self) -> None:
        """Let it hear the answer to its request."""
        request = self._take_request()
        request.answer()
        await settle()

    async def give_up(self) -> None:
        """Let it hear nothing; a write that the server has not seen may still be carried out."""
        request = self._take_request()
        if request.outcome is None and request.method != "GET":
            self.late = request
        request.answered.set_exception(TransientClusterError("timed out"))
        await settle()

    async def end(self, server: LeaseServer | None, *, is_late: bool) -> None:
        """End the process: killed, or in order with a server that still takes the lease back.

        is_late: whether the write that it waits for may still be carried out.
        """
        request, self.request_under_way = self.request_under_way, None
        if is_late:
            self.late = request
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        if server is not None:
            await self._give_back(server)
        self.start()

    async def _give_back(self, server: LeaseServer) -> None:
        releasing = asyncio.create_task(self.elector.release())
        await settle()
        while not releasing.done():
            request = self._take_request()
            request.carry_out(server)
            request.answer()
            await settle()

    def _take_request(self) -> Request:
        request, self.request_under_way = self.request_under_way, None
        assert request is not None
        return request


async def settle() -> None:
    """Let everybody run until they wait for the trace."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
