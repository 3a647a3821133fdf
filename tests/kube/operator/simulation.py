"""Several operators and one API server on a virtual clock, with everything that can happen to them.

Time does not pass while anything can run and jumps to the next timer when nothing can, so minutes take milliseconds and
every run of the same script is the same. A process can be frozen (it goes on only after its thaw, from wherever it
was), and requests can be late, lost on their way there, or carried out with their answer lost on its way back.
"""

from __future__ import annotations

import asyncio
import copy
import json
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.operator.elector import Elector

STEP = 0.1
"""How often, in virtual seconds, it is looked at who may bind."""
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/fairbind-system/leases/fairbind"


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: where others would wait, the clock jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for something that never happens"
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


class LeaseServer:
    """One lease as an API server keeps it: versions, preconditions, refusals."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.refusal: ApiError | None = None
        self.is_down = False
        self.writes: list[tuple[float, str, str]] = []

    def edit(self, **spec: Any) -> None:
        """Change the lease by hand."""
        assert self.lease is not None
        self.lease = copy.deepcopy(self.lease)
        self.lease["spec"].update(spec)
        self._touch(self.lease)

    @property
    def holder(self) -> str | None:
        return None if self.lease is None else self.lease["spec"].get("holderIdentity")

    def carry_out(self, method: str, path: str, body: bytes | None) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        content: dict[str, Any] = json.loads(body or b"{}")
        if method == "POST":
            if self.lease is not None:
                raise ApiError(409, "AlreadyExists", 'leases "fairbind" already exists')
            assert path == LEASE_PATH.rpartition("/")[0]
            content["metadata"]["uid"] = f"uid-{self.version}"
            self._take(content, method)
        elif self.lease is None:
            raise ApiError(404, "NotFound", 'leases "fairbind" not found')
        elif method == "PUT":
            assert path == LEASE_PATH
            for key in ("resourceVersion", "uid"):
                if content["metadata"][key] != self.lease["metadata"][key]:
                    raise ApiError(409, "Conflict", "the object has been modified")
            self._take(content, method)
        return json.dumps(self.lease).encode()

    def _take(self, lease: dict[str, Any], method: str) -> None:
        self._touch(lease)
        self.lease = lease
        self.writes.append((asyncio.get_running_loop().time(), method, lease["spec"]["holderIdentity"]))

    def _touch(self, lease: dict[str, Any]) -> None:
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that happens to one process. kind: "freeze", "lose requests", "lose answers" or "slow".

    start, seconds: on the virtual clock, from the beginning of the run.
    """

    process: int
    kind: str
    start: float
    seconds: float

    def is_on(self, now: float) -> bool:
        return self.start <= now < self.start + self.seconds


@dataclass
class Process:
    """An operator: its elector, its clock, its way to the server. pace: how fast its clock runs."""

    number: int
    server: LeaseServer
    troubles: list[Trouble] = field(default_factory=list)
    latency: Callable[[], float] = lambda: 0.01
    pace: float = 1.0
    changes: list[tuple[float, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = asyncio.get_running_loop().time()
        self.name = f"operator-{self.number}"
        self.elector = Elector(
            self, "fairbind-system", identity=self.name, clock=self.clock, sleep=self.sleep, on_change=self._note
        )
        self.task: asyncio.Task[None] | None = None
        self.writes_begun = 0

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return asyncio.get_running_loop().time() - self.began

    def clock(self) -> float:
        return (self.now + 777.0 * self.number) * self.pace

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.elector.run())

    async def kill(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.elector._holds_until = None  # what a dead process believes does not matter

    async def stop(self) -> None:
        """End as on SIGTERM."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.elector.release()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.pace)
        await self._thaw()

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = 15.0, **_: Any
    ) -> bytes:
        """The elector's way to the server. Time limits are kept by the process, so not while it is frozen."""
        began = self.now
        self.writes_begun += method != "GET"
        delay = self.latency() + (1.5 if self._is_troubled("slow") else 0.0)
        await asyncio.sleep(delay / 2)
        answer: bytes | Exception | None = None
        if not self._is_troubled("lose requests") and not self.server.is_down:
            try:
                answer = self.server.carry_out(method, path, body)
            except ApiError as error:
                answer = error
        await asyncio.sleep(delay / 2)
        is_late = self.now - began > timeout_seconds
        if answer is None or is_late or self._is_troubled("lose answers"):
            await asyncio.sleep(max(timeout_seconds - (self.now - began), 0.0))
            answer = TransientClusterError("timed out")
        await self._thaw()
        assert answer is not None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _note(self, leading: bool) -> None:  # noqa: FBT001 - the elector's callback
        self.changes.append((self.now, leading))

    def _is_troubled(self, kind: str) -> bool:
        return any(trouble.kind == kind and trouble.is_on(self.now) for trouble in self.troubles)

    async def _thaw(self) -> None:
        for trouble in sorted(self.troubles, key=lambda trouble: trouble.start):
            if trouble.kind == "freeze" and trouble.is_on(self.now):
                await asyncio.sleep(trouble.start + trouble.seconds - self.now)


class Cluster:
    """Processes that are watched: at any moment, who may bind?"""

    def __init__(self, processes: int = 2, troubles: list[Trouble] | None = None, **options: Any) -> None:
        self.server = LeaseServer()
        self.processes = [
            Process(
                number, self.server, [trouble for trouble in troubles or [] if trouble.process == number], **options
            )
            for number in range(processes)
        ]
        self.history: list[tuple[float, int]] = []
        self._began = asyncio.get_running_loop().time()

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    @property
    def leaders(self) -> list[int]:
        return [process.number for process in self.processes if process.elector.may_bind()]

    async def pass_time(self, seconds: float) -> None:
        """Let time pass and look all the while; two that may bind at the same time are an error."""
        end = self.now + seconds
        while self.now < end:
            leaders = self.leaders
            assert len(leaders) <= 1, f"both may bind at {self.now:.2f}: {leaders}"
            self.history.extend((self.now, number) for number in leaders)
            await asyncio.sleep(STEP)

    async def find_next_leader(self, other_than: int | None = None, patience: float = 100.0) -> float:
        """Return after how long somebody (else) leads."""
        began = self.now
        while not [number for number in self.leaders if number != other_than]:
            assert self.now - began < patience, "nobody leads"
            await self.pass_time(STEP)
        return self.now - began

    async def end_all(self) -> None:
        for process in self.processes:
            if process.task is not None:
                await process.kill()


class DirectApi:
    """The elector's way to a lease in memory: each request is carried out at once."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = 0.0, **_: Any
    ) -> bytes:
        assert timeout_seconds > 0
        await asyncio.sleep(0)
        return self._server.carry_out(method, path, body)
