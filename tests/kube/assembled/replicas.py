"""Whole operators, each a process of its own before one API server in memory, all in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, ParamSpec, cast

from cluster.builders import make_namespace
from fairbind.cluster.tenancy.object_table import ObjectTable
from fairbind.fairness.solvers.warm import WarmStart
from fairbind.kube.client.custom_objects import GROUP, VERSION
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.fair_shares.solver_process import AuditQuestion, ExactSolveError
from fairbind.kube.fair_shares.worker import answer
from fairbind.kube.observer import SilentObserver
from fairbind.kube.operator.clocks import Clocks
from fairbind.kube.operator.extender import ExtenderSettings
from fairbind.kube.operator.gates import GateSettings
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.life import Operator
from fairbind.kube.operator.surroundings import OperatorSettings, Surroundings
from fairbind.model.overview import ClusterOverview, TenantOverview
from fairbind.scheduling.fair_shares.audit import AuditReport
from fairbind.scheduling.fair_shares.problem import ExactProblem, ExactShares
from kube.assembled.apiserver import ApiServer
from kube.assembled.connection import Connection
from kube.assembled.faults import Fault
from kube.assembled.processes import Process, run_processes

NAMESPACE = "fairbind-system"
EPOCH = 1_767_225_600.0
"""When everything begins, on the wall clock: as old as the objects that the builders make."""
SOLVE_SECONDS = 0.05
STEP_SECONDS = 0.02
Arguments = ParamSpec("Arguments")


def in_virtual_time(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    """Run a test to its end on a loop of virtual time."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run_processes(test(*args, **kwargs))

    return run


class InProcessSolver:
    """Solves at once, in this very process; in virtual time it takes a moment."""

    def __init__(self) -> None:
        self._warm = WarmStart()
        self.is_closed = False

    async def solve(self, problem: ExactProblem) -> ExactShares:
        await asyncio.sleep(SOLVE_SECONDS)
        found = answer(problem, self._warm)
        if found.shares is None:
            raise ExactSolveError("failed", found.error or "")
        return found.shares

    async def audit(self, question: AuditQuestion) -> AuditReport:
        await asyncio.sleep(SOLVE_SECONDS)
        found = answer(question)
        assert found.report is not None, found.error
        return found.report

    async def close(self) -> None:
        self.is_closed = True


class NoSolver(InProcessSolver):
    """Solves nothing, for tests that have no time for it."""

    async def solve(self, problem: ExactProblem) -> ExactShares:
        raise ExactSolveError("failed", f"nobody solves {problem.mechanism} here")

    async def audit(self, question: AuditQuestion) -> AuditReport:
        raise ExactSolveError("failed", f"nobody audits here (fair shares: {question.fair_shares})")


class ApiFollower:
    """Follows Tenants and SchedulingPolicies by list and watch, as kopf does in a cluster."""

    def __init__(self, api: Connection, tables: Mapping[str, ObjectTable], health: Health) -> None:
        self._api = api
        self._tables = tables
        self._health = health
        self._alive_at: dict[str, float] = {}
        self.listed = asyncio.Event()

    def find_ages(self) -> dict[str, float]:
        now = asyncio.get_running_loop().time()
        return {kind: now - at for kind, at in self._alive_at.items()}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            first = [asyncio.Event() for _ in self._tables]
            for (kind, table), seen in zip(self._tables.items(), first, strict=True):
                group.create_task(self._follow(kind, table, seen))
            for seen in first:
                await seen.wait()
            self.listed.set()

    async def _follow(self, kind: str, table: ObjectTable, seen: asyncio.Event) -> None:
        path = f"/apis/{GROUP}/{VERSION}/{kind}"
        while True:
            try:
                known = table.version
                found = json.loads(await self._api.request("GET", path))
                version = found["metadata"]["resourceVersion"]
                table.replace(found["items"] or [], version, known_before=known)
                self._alive_at[kind] = asyncio.get_running_loop().time()
                self._health.clear_problem(kind)
                seen.set()
                query = {"resourceVersion": version, "timeoutSeconds": "300"}
                async with contextlib.aclosing(self._api.watch_lines(path, query, idle_timeout_seconds=130.0)) as lines:
                    async for line in lines:
                        _take(table, json.loads(line))
                        self._alive_at[kind] = asyncio.get_running_loop().time()
            except (ApiError, TransientClusterError):
                await asyncio.sleep(1.0)


def _take(table: ObjectTable, event: dict[str, Any]) -> None:
    if event["type"] == "DELETED":
        table.delete(event["object"])
    elif event["type"] != "BOOKMARK":
        table.apply(event["object"])


class Watching(SilentObserver):
    """Remembers what is counted. results: when each binding ended, and how."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.results: list[tuple[float, str]] = []
        self.failed_cycles = 0
        self.overview: ClusterOverview | None = None
        self.changes: list[tuple[float, bool]] = []
        self.watch_ages: dict[str, float] = {}

    def binding_finished(self, result: str) -> None:
        self.results.append((self._server.now, result))

    def watch_aged(self, resource: str, seconds: float) -> None:
        self.watch_ages[resource] = seconds

    def cycle_failed(self) -> None:
        self.failed_cycles += 1

    def overview_changed(self, overview: ClusterOverview) -> None:
        self.overview = overview

    def leadership_changed(self, leading: bool) -> None:  # noqa: FBT001 - as in the protocol
        self.changes.append((self._server.now, leading))

    @property
    def tenants(self) -> dict[str, TenantOverview]:
        return {} if self.overview is None else {tenant.name: tenant for tenant in self.overview.tenants}


class Replica:
    """One operator in a process of its own. Its clocks began at another moment than those of others."""

    def __init__(
        self,
        server: ApiServer,
        number: int,
        seed: int,
        *,
        solves: bool,
        gates: GateSettings | None = None,
        extender: ExtenderSettings | None = None,
        shows_taints: bool = False,
        on_listed: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = f"replica-{number}"
        self.process = Process()
        self.stop_asked = asyncio.Event()
        self.connection = Connection(server, self.name)
        self.observer = Watching(server)
        clocks = Clocks(
            monotonic=lambda: server.now + 5_000.0 * (number + 1),
            steady=lambda: server.now + 70_000.0 * (number + 1),
            wall=lambda: server.now + EPOCH,
        )
        self.health = Health(clocks.monotonic)
        self.operator = Operator(
            OperatorSettings(NAMESPACE, "fairbind", self.name, gates, extender, shows_taints),
            cast("Any", None),
            self.connection,
            self.observer,
            self.health,
            lambda: None,
            surroundings=Surroundings(
                clocks=clocks,
                randomness=random.Random(seed),
                make_solver=InProcessSolver if solves else NoSolver,
                make_follower=lambda tables: ApiFollower(self.connection, tables, self.health),
                on_listed=on_listed,
            ),
        )
        self.task = self.process.start(self.operator.run(self.stop_asked), self.name)

    @property
    def leads(self) -> bool:
        return not self.process.is_frozen and self.operator.parts.lead.elector.leading

    def ask_to_stop(self) -> None:
        """As by SIGTERM."""
        self.stop_asked.set()

    async def end(self) -> None:
        """End in order, or just end when it was killed or cut off."""
        self.process.thaw()
        self.stop_asked.set()
        await self.task

    def kill(self) -> None:
        """As by SIGKILL: it does nothing any more, and nothing reaches anybody."""
        self.process.freeze()
        self.connection.is_cut = True


class Scene:
    """A server and the replicas before it."""

    def __init__(
        self,
        seed: int = 0,
        *,
        solves: bool = True,
        gates: GateSettings | None = None,
        extender: ExtenderSettings | None = None,
        shows_taints: bool = False,
    ) -> None:
        self.server = ApiServer()
        self.server.put("namespaces", *(make_namespace(name) for name in ("team", "other", "kube-system", NAMESPACE)))
        self.replicas: list[Replica] = []
        self._seed = seed
        self._settings: dict[str, Any] = {
            "solves": solves,
            "gates": gates,
            "extender": extender,
            "shows_taints": shows_taints,
        }

    @property
    def now(self) -> float:
        return self.server.now

    @property
    def leader(self) -> Replica:
        """The one that leads now; there must be exactly one."""
        (leader,) = (replica for replica in self.replicas if replica.leads)
        return leader

    def start(self) -> Replica:
        """Start one more replica."""
        number = len(self.replicas)
        seed = 1000 * self._seed + number
        replica = Replica(self.server, number, seed, **self._settings)
        self.replicas.append(replica)
        return replica

    def cause(self, *faults: Fault) -> None:
        self.server.faults.extend(faults)

    def heal(self) -> None:
        """Let every later request be answered as it should."""
        self.server.faults.clear()

    async def pass_until(
        self,
        condition: Callable[[], object],
        patience: float = 30.0,
        *,
        step: float = STEP_SECONDS,
    ) -> float:
        """Let time pass until the condition holds; return when that was. patience, step: virtual seconds."""
        ends_at = self.now + patience
        while not condition():
            assert self.now < ends_at, f"not within {patience} s; {self.server.broken}"
            await asyncio.sleep(step)
        return self.now

    async def pass_until_leading(self, *, other_than: Replica | None = None) -> Replica:
        """Let time pass until somebody (else) leads, and has done what comes first."""
        await self.pass_until(
            lambda: any(it.leads and it.operator.parts.lead.may_decide() for it in self._others(other_than))
        )
        return next(it for it in self._others(other_than) if it.leads)

    def _others(self, than: Replica | None) -> list[Replica]:
        return [replica for replica in self.replicas if replica is not than]

    async def pass_until_bound(self, *keys: str, patience: float = 30.0) -> float:
        return await self.pass_until(lambda: all(self.server.find_node(key) for key in keys), patience)

    async def end(self) -> None:
        """End all replicas and judge what happened."""
        self.heal()
        for replica in self.replicas:
            await replica.end()
        await self.server.close()
        assert self.server.broken == []
        assert [replica.observer.failed_cycles for replica in self.replicas] == [0] * len(self.replicas)

    async def abandon(self) -> None:
        """End everything without a judgement, because something has failed already."""
        for replica in self.replicas:
            replica.connection.is_cut = True
            replica.process.thaw()
            replica.task.cancel()
        await asyncio.gather(*(replica.task for replica in self.replicas), return_exceptions=True)
        await self.server.close()


@contextlib.asynccontextmanager
async def playing(
    replicas: int = 1,
    *,
    seed: int = 0,
    solves: bool = True,
    gates: GateSettings | None = None,
    extender: ExtenderSettings | None = None,
    shows_taints: bool = False,
) -> AsyncIterator[Scene]:
    """A scene in which so many replicas have just been started; at its end nothing forbidden may have happened.

    gates: of gate mode. extender: of extender mode. None of both: bind mode.
    """
    scene = Scene(seed, solves=solves, gates=gates, extender=extender, shows_taints=shows_taints)
    async with judging(scene):
        for _ in range(replicas):
            scene.start()
        yield scene


@contextlib.asynccontextmanager
async def judging(scene: Scene) -> AsyncIterator[None]:
    """End a scene after what was played: in order and with a judgement, or at once when something failed."""
    try:
        yield
        await scene.end()
    except BaseException:
        await scene.abandon()
        raise
