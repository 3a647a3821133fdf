"""The phases in which a contender is measured, and what is kept of each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairbind.kube.client.api import ApiClient
from perf.cluster import PodMaker, create_namespaces, delete_pods, fetch_nodes_of_pods, open_connections
from perf.contenders import BareBinder, Scheduler
from perf.measure import (
    BindingWatch,
    CpuMeter,
    CpuUse,
    MeasureError,
    compute_percentile,
    read_cpu_seconds,
    read_memory_mib,
    wait_quiet,
)
from perf.modes import BareOpener
from perf.volcano import Volcano
from perf.workload import BenchPod, assign_in_turn, find_overcommitted, make_pods

IDLE_SECONDS = 30.0
ARRIVAL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where everything happens.

    pids: the control plane's processes by name. nodes: the objects that were created. settle_seconds: how long to wait
    for peace at most.
    """

    api: ApiClient
    pids: Mapping[str, int]
    nodes: Sequence[Mapping[str, Any]]
    settle_seconds: float = 60.0

    async def settle(self, **more: int) -> bool:
        """Wait until the control plane, and further processes by their pids, have digested what came before."""
        return await wait_quiet({**self.pids, **more}, timeout_seconds=self.settle_seconds)


@dataclass(frozen=True, slots=True)
class Backlog:
    """All pods wait before the scheduler starts.

    rate: bindings a second from the first to the last one that the watch saw. first_binding_seconds: from the start of
    the process to the first binding. ready_seconds: to its readiness. created_rate: pods a second that were created.
    memory_mib: resident at the end. cpu: from the start to the last binding. quiet: whether the control plane was idle
    before. watch_restarts: of the benchmark's own watch. counted: what the scheduler says itself.
    """

    contender: str
    nodes: int
    turn: int
    pods: int
    bound: int
    rate: float
    first_binding_seconds: float
    ready_seconds: float | None
    created_rate: float
    memory_mib: float | None
    cpu: CpuUse
    quiet: bool
    watch_restarts: int
    counted: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Pods come one by one. Latencies from the moment at which a pod is due to its binding's event, in seconds.

    quiet: whether the control plane was idle before.
    """

    contender: str
    nodes: int
    wanted_rate: float
    reached_rate: float
    pods: int
    bound: int
    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    cpu: CpuUse
    quiet: bool


@dataclass(frozen=True, slots=True)
class Singles:
    """One pod at a time comes to an idle cluster. Latencies from before its creation to its binding's event, seconds.

    quiet: whether the control plane was idle before.
    """

    contender: str
    nodes: int
    pods: int
    bound: int
    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    cpu: CpuUse
    quiet: bool


@dataclass(frozen=True, slots=True)
class Idle:
    """Everything is bound and nothing changes. cores: the scheduler's CPU use; restart_ready_seconds: from a start."""

    contender: str
    nodes: int
    pods: int
    seconds: float
    cores: float
    memory_mib: float
    restart_ready_seconds: float


async def run_backlog(cluster: Cluster, contender: Scheduler, run: str, turn: int, count: int) -> Backlog:
    """Measure a scheduler on a backlog; it is left running, and its pods stay."""
    pods = make_pods(count, run, contender.group_size)
    await contender.prepare(cluster.api)
    await create_namespaces(cluster.api, run, contender.namespace_labels)
    maker = PodMaker(cluster.api, run, contender.scheduler)
    if isinstance(contender, Volcano):
        await contender.create_groups(cluster.api, pods)
    created_rate = await maker.create_all(pods)
    quiet = await cluster.settle()
    async with BindingWatch(cluster.api, run) as watch:
        meter, started = CpuMeter(cluster.pids), time.monotonic()
        ready_seconds = await contender.start()
        if isinstance(contender, BareOpener):
            await contender.open_all(pods, maker, watch)
        await watch.wait_bound(count)
        cpu = _add_scheduler(meter.read(), contender.pids)
        await check_bindings(cluster, watch, run, pods)
        first_seconds = min(watch.bound_at.values(), default=float("nan")) - started
        return Backlog(
            contender=contender.name,
            nodes=len(cluster.nodes),
            turn=turn,
            pods=count,
            bound=len(watch.bound_at),
            rate=watch.compute_rate(),
            first_binding_seconds=first_seconds,
            ready_seconds=ready_seconds,
            created_rate=created_rate,
            memory_mib=_read_memory_mib(contender),
            cpu=cpu,
            quiet=quiet,
            watch_restarts=watch.restarts,
            counted=await contender.fetch_counters(),
        )


async def run_bare_binds(cluster: Cluster, binder: BareBinder, run: str, turn: int, count: int) -> Backlog:
    """Measure bind calls alone on the same pods."""
    pods = make_pods(count, run)
    nodes = assign_in_turn(pods, cluster.nodes)
    await binder.prepare(cluster.api)
    await create_namespaces(cluster.api, run, binder.namespace_labels)
    maker = PodMaker(cluster.api, run, binder.scheduler)
    created_rate = await maker.create_all(pods)
    quiet = await cluster.settle()
    async with BindingWatch(cluster.api, run) as watch:
        meter, started = CpuMeter(cluster.pids), time.monotonic()
        await binder.bind_all(pods, maker.uids, nodes)
        await watch.wait_bound(count)
        cpu = meter.read()
        await check_bindings(cluster, watch, run, pods)
        return Backlog(
            contender=binder.name,
            nodes=len(cluster.nodes),
            turn=turn,
            pods=count,
            bound=len(watch.bound_at),
            rate=watch.compute_rate(),
            first_binding_seconds=min(watch.bound_at.values()) - started,
            ready_seconds=None,
            created_rate=created_rate,
            memory_mib=None,
            cpu=cpu,
            quiet=quiet,
            watch_restarts=watch.restarts,
            counted={"refused with 429": float(binder.refused)},
        )


async def run_arrivals(
    cluster: Cluster, contender: Scheduler | BareBinder, run: str, rate: float, count: int
) -> Arrivals:
    """Measure latencies while pods arrive at a rate; a scheduler must be running.

    The bare binder is told of a pod by the answer of its creation and decided beforehand, so it waits for nothing.
    """
    pods = make_pods(min(count, max(1, round(rate * ARRIVAL_SECONDS))), run)
    await create_namespaces(cluster.api, run, contender.namespace_labels)
    maker = PodMaker(cluster.api, run, contender.scheduler)
    quiet = await cluster.settle()
    await open_connections(cluster.api)
    async with BindingWatch(cluster.api, run) as watch:
        own = {} if isinstance(contender, BareBinder) else contender.pids
        meter = CpuMeter({**cluster.pids, **own})
        if isinstance(contender, BareBinder):
            async with contender.binding(maker.uids, assign_in_turn(pods, cluster.nodes)) as bind:
                reached = await maker.create_at_rate(pods, rate, bind)
        else:
            reached = await maker.create_at_rate(pods, rate)
        await watch.wait_bound(len(pods))
        cpu = meter.read()
        await check_bindings(cluster, watch, run, pods)
        waits = [at - maker.asked_at[name] for name, at in watch.bound_at.items()]
        return Arrivals(
            contender=contender.name,
            nodes=len(cluster.nodes),
            wanted_rate=rate,
            reached_rate=reached,
            pods=len(pods),
            bound=len(waits),
            p50_seconds=compute_percentile(waits, 0.5),
            p99_seconds=compute_percentile(waits, 0.99),
            max_seconds=max(waits, default=float("nan")),
            cpu=cpu,
            quiet=quiet,
        )


async def run_singles(cluster: Cluster, contender: Scheduler, run: str, count: int) -> Singles:
    """Measure how long one pod takes when nothing else happens, again and again; the scheduler must be running.

    The watch is looked at ten times a second, so the cluster rests a moment between two pods.
    """
    pods = make_pods(count, run)
    await create_namespaces(cluster.api, run, contender.namespace_labels)
    maker = PodMaker(cluster.api, run, contender.scheduler)
    quiet = await cluster.settle()
    await open_connections(cluster.api)
    async with BindingWatch(cluster.api, run) as watch:
        meter = CpuMeter({**cluster.pids, **contender.pids})
        for number, pod in enumerate(pods, start=1):
            await maker.create(pod)
            if not await watch.wait_bound(number):
                break
        cpu = meter.read()
        waits = [at - maker.asked_at[name] for name, at in watch.bound_at.items()]
        return Singles(
            contender=contender.name,
            nodes=len(cluster.nodes),
            pods=count,
            bound=len(waits),
            p50_seconds=compute_percentile(waits, 0.5),
            p99_seconds=compute_percentile(waits, 0.99),
            max_seconds=max(waits, default=float("nan")),
            cpu=cpu,
            quiet=quiet,
        )


async def run_idle(cluster: Cluster, contender: Scheduler, pods: int, seconds: float = IDLE_SECONDS) -> Idle:
    """Measure what a scheduler uses when all is bound and nothing happens, then how fast it starts on this cluster."""
    pids = contender.pids
    await cluster.settle(**pids)
    meter = CpuMeter(pids)
    await asyncio.sleep(seconds)
    use = meter.read()
    memory_mib = _read_memory_mib(contender)
    await contender.stop()
    return Idle(
        contender=contender.name,
        nodes=len(cluster.nodes),
        pods=pods,
        seconds=use.seconds,
        cores=sum(use.by_process[name] for name in pids) / use.seconds,
        memory_mib=memory_mib,
        restart_ready_seconds=await contender.start(),
    )


async def check_bindings(cluster: Cluster, watch: BindingWatch, run: str, pods: Sequence[BenchPod]) -> None:
    """Raise MeasureError unless the API says what the watch saw and no node holds more than it has."""
    nodes = await fetch_nodes_of_pods(cluster.api, run)
    if any(nodes.get(name) != node for name, node in watch.node.items()):
        raise MeasureError("the API server and its watch disagree about bindings")
    if overcommitted := find_overcommitted(nodes, pods, cluster.nodes):
        raise MeasureError(f"{len(overcommitted)} nodes are overcommitted, the first is {overcommitted[0]}")


@contextlib.asynccontextmanager
async def removing_pods(cluster: Cluster, contender: Scheduler | None, run: str) -> AsyncIterator[None]:
    """Stop the contender at the end, however it comes, and remove a run's pods when all went well.

    After a failure the control plane ends, and the pods with it. Namespaces stay, empty.
    """
    try:
        yield
    finally:
        if contender is not None:
            await contender.stop()
    await delete_pods(cluster.api, run)
    await cluster.settle()


def _add_scheduler(use: CpuUse, pids: Mapping[str, int]) -> CpuUse:
    """Add processes that began within the phase, so that all they have used belongs there."""
    used = {name: round(read_cpu_seconds(pid), 2) for name, pid in pids.items()}
    return CpuUse(use.seconds, {**use.by_process, **used}, use.busy)


def _read_memory_mib(contender: Scheduler) -> float:
    return sum(read_memory_mib(pid) for pid in contender.pids.values())
