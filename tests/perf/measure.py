"""How things are measured: processes from /proc, bindings from a watch of the benchmark's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from fairbind.kube.client.api import ApiClient
from perf.workload import RUN_LABEL

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
POLL_SECONDS = 0.1
QUIET_CORES = 0.25
MIB = 2**20


class MeasureError(RuntimeError):
    """What was to be measured did not happen."""


# --- processes ---


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU time, in seconds, that a process and its finished children have used."""
    # The program's name stands in parentheses and may hold anything.
    fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_SECOND


def read_memory_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in (PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise MeasureError(f"process {pid} has no memory")


def read_machine_seconds() -> tuple[float, float]:
    """Return how many CPU seconds this machine has spent in all, and how many of them it was idle."""
    ticks = [int(text) for text in (PROC / "stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]]
    return sum(ticks) / TICKS_PER_SECOND, (ticks[3] + ticks[4]) / TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class CpuUse:
    """What a phase cost. seconds: its length. by_process: CPU seconds by name. busy: the machine's part, 0 to 1."""

    seconds: float
    by_process: dict[str, float]
    busy: float


class CpuMeter:
    """Measures a phase: make one at its start, `read` it at its end."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = {**pids, "benchmark": os.getpid()}
        self._started = time.monotonic()
        self._before = {name: read_cpu_seconds(pid) for name, pid in self._pids.items()}
        self._machine = read_machine_seconds()

    def read(self) -> CpuUse:
        """Return what has been used since the start."""
        total, idle = (after - before for after, before in zip(read_machine_seconds(), self._machine, strict=True))
        used = {name: read_cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}
        rounded = {name: round(seconds, 2) for name, seconds in used.items()}
        return CpuUse(round(time.monotonic() - self._started, 2), rounded, round(1 - idle / max(total, 0.01), 3))


async def wait_quiet(pids: Mapping[str, int], *, timeout_seconds: float) -> bool:
    """Wait until these processes use little CPU together; tell whether they came to that."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        meter = CpuMeter(pids)
        await asyncio.sleep(1.0)
        use = meter.read()
        if sum(use.by_process[name] for name in pids) < QUIET_CORES * use.seconds:
            return True
    return False


def compute_percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that at least this part of all do not exceed (nearest rank); nan when there is none.

    >>> compute_percentile([4.0, 1.0, 3.0, 2.0], 0.5), compute_percentile([1.0, 2.0], 0.99)
    (2.0, 2.0)
    """
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(part * 1000) // 1000) - 1)]


# --- bindings ---


class _Metadata(msgspec.Struct):
    name: str
    resourceVersion: str  # noqa: N815  as the API spells it


class _PodSpec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815  as the API spells it


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ListMetadata(msgspec.Struct):
    resourceVersion: str  # noqa: N815


class _Versioned(msgspec.Struct):
    """A list of pods, or a bookmark."""

    metadata: _ListMetadata


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_pod = msgspec.json.Decoder(_Pod).decode
_decode_versioned = msgspec.json.Decoder(_Versioned).decode


@dataclass(slots=True)
class BindingWatch:
    """Sees pods of a run become bound, as any client of the API would. An asynchronous context manager.

    bound_at: monotonic time at which the event came, by the pod's name. node: where it went. restarts: how often the
    watch went on where it had ended: a busy API server closes watches whose clients it deems slow. on_bound: called
    with the name of each pod at its first event; must not raise.
    """

    api: ApiClient
    run: str
    bound_at: dict[str, float] = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    on_bound: Callable[[str], None] = lambda _name: None
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        pods = _decode_versioned(await self.api.request("GET", "/api/v1/pods", query=self._compute_query(limit="1")))
        self._task = asyncio.create_task(self._watch(pods.metadata.resourceVersion))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def wait_bound(self, count: int, *, start_seconds: float = 90.0, stall_seconds: float = 20.0) -> bool:
        """Wait until so many pods are bound; give up when none becomes bound for a while, and tell which it was.

        start_seconds: how long the first one may take.
        """
        seen, changed_at, patience = len(self.bound_at), time.monotonic(), start_seconds
        while len(self.bound_at) < count:
            if self._task is not None and self._task.done():
                self._task.result()
                raise MeasureError("the watch of the benchmark ended")
            if len(self.bound_at) > seen:
                seen, changed_at, patience = len(self.bound_at), time.monotonic(), stall_seconds
            elif time.monotonic() - changed_at > patience:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def compute_rate(self) -> float:
        """Return bindings a second from the first to the last one."""
        times = sorted(self.bound_at.values())
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else float("nan")

    def _compute_query(self, **more: str) -> dict[str, str]:
        # Of an unbound pod nothing comes; its first event is that it has a node.
        return {"labelSelector": f"{RUN_LABEL}={self.run}", "fieldSelector": "spec.nodeName!=", **more}

    async def _watch(self, version: str) -> None:
        while True:
            # Bookmarks: where nothing happens to these pods for minutes, their version is too old to go on from.
            query = self._compute_query(
                watch="true", resourceVersion=version, timeoutSeconds="3600", allowWatchBookmarks="true"
            )
            async for line in self.api.watch_lines("/api/v1/pods", query, idle_timeout_seconds=3600):
                version = self._take(line, time.monotonic())
            self.restarts += 1

    def _take(self, line: bytes, now: float) -> str:
        """Keep what an event says and return its version."""
        event = _decode_event(line)
        if event.type == "ERROR":
            raise MeasureError(f"the watch of the benchmark failed: {bytes(event.object).decode()[:200]}")
        if event.type == "BOOKMARK":
            return _decode_versioned(event.object).metadata.resourceVersion
        pod = _decode_pod(event.object)
        name, node = pod.metadata.name, pod.spec.nodeName
        if self.node.setdefault(name, node) != node and event.type != "DELETED":
            raise MeasureError(f"pod {name} was bound twice")
        if name not in self.bound_at:
            self.bound_at[name] = now
            self.on_bound(name)
        return pod.metadata.resourceVersion
