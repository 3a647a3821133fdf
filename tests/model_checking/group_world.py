"""A small cluster with two groups and one operator at a time, that goes on step by step as a search wants it.

The operator's own parts decide and bind: cache, decider, loop with pacing and plans, binder, and who writes into
PodGroups. Before them is an API server in memory that answers a binding when it is told to, and as it is told to. Time
is virtual and passes only where a step lets it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

from cluster.builders import (
    SCHEDULER,
    Json,
    make_namespace,
    read_namespace,
    read_node,
    read_pod,
)
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.cache.group_conditions import list_group_conditions
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.objects.decode import POD_GROUPS
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.observer import SilentObserver
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.loop import SchedulingLoop
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.binder import Binder
from fairbind.kube.writers.claim_binder import ClaimBinder
from fairbind.kube.writers.group_status import GroupStatusWriter
from fairbind.model import Wait
from model_checking.group_server import Request, Server, Setting, count_cores, get_node, has_ended

TURNS = 40
"""So many turns of the event loop are enough for everybody to come to a wait."""
BATCH_SECONDS = 0.3
"""Longer than pacing's pause before a cycle, and than the binder's first pause after a failure."""
PATIENCE_SECONDS = 25.0
"""Longer than a pod is postponed at most, twice."""
KEPT_SECONDS = 60.0
WEBHOOK = 'admission webhook "policy.example.com" denied the request: not now'


class Silence:
    """Tells nobody of anything, as far as the loop asks for it."""

    def scheduled(self, *_: object) -> None: ...
    def note_waits(self, *_: object) -> None: ...


class Operator:
    """The parts of one replica that leads from its beginning until it is killed."""

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self.is_leading = True
        self.cache = ClusterCache(SCHEDULER, self._wake, kept_seconds=KEPT_SECONDS, wall_clock=clock)
        self.decider = Decider()
        failures, queries = PartFailures(SilentObserver()), self.cache.queries
        binder = Binder(
            server,  # type: ignore[arg-type]  # requests only
            SilentObserver(),
            may_bind=self.may_bind,
            may_use=queries.may_use,
            has_capacity=queries.has_capacity,
            may_send=self._may_send,
            clock=clock,
            randomness=random.Random(0),
        )
        carrier = ClaimBinder(binder, queries, self.cache.rest_claim, clock=clock)
        self.loop = SchedulingLoop(
            self.cache,
            carrier,
            Silence(),
            observer=SilentObserver(),
            health=Health(clock),
            may_decide=self.may_bind,
            clock=clock,
            wall_clock=clock,
            failures=failures,
            readiness=carrier,
            decider=self.decider,
        )
        self._clock = clock
        conditions = partial(list_group_conditions, self.cache.state)
        writer = GroupStatusWriter(server, conditions, self.may_bind, self.may_bind, failures, clock, clock)
        for name in server.minimum:
            self.cache.namespaces.apply(read_namespace(make_namespace(name)))
        for node in server.nodes.values():
            self.cache.nodes.apply(read_node(node))
        for item in server.pod_groups.values():
            self.hear("group", item)
        for pod in sorted(server.pods.values(), key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            self.hear("pod", pod)
        self.loop.wake()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(work) for work in (self.loop.run(), writer.run(), self._keep_time())]

    def may_bind(self) -> bool:
        return self.is_leading

    def _wake(self) -> None:
        self.loop.wake()

    def _may_send(self, uid: str) -> bool:
        return self.loop.may_send(uid)

    async def _keep_time(self) -> None:
        """Let what is kept for a time end, as a replica does every second."""
        while True:
            self.cache.advance_rests(self._clock())
            await asyncio.sleep(1.0)

    def hear(self, kind: str, item: Json) -> None:
        """Take an object from the watch."""
        if kind == "group":
            feed = dict(self.cache.group_feeds)[POD_GROUPS]
            feed.apply(POD_GROUPS.decode_item(json.dumps(item).encode()))
        elif kind == "pod":
            self.cache.pods.apply(read_pod(item))
        else:
            self.cache.pods.delete(read_pod(item))

    def find_waits(self) -> dict[str | None, Wait]:
        """Return why pods wait, by group."""
        keys = ((wait, self.cache.state.find_queue(wait.first.uid)) for wait in self.cache.state.policy.waits)
        return {key.group: wait for wait, key in keys if key is not None}

    def describe(self) -> tuple[object, ...]:
        """Return what it remembers, as far as it is not just what the API server holds."""
        state = self.cache.state
        entries = sorted((e.facts.name, e.assumed or "", e.postponed) for e in state.pods.entries.values())
        groups = [
            (key, group.past.stood, dict(group.ended), self.kept_of(key)) for key, group in state.groups.by_key.items()
        ]
        reserved = [
            (each.tenant, each.server, each.demand_r, each.count) for each in self.decider.reservations.list_all()
        ]
        return tuple(entries), str(sorted(groups)), str(self.loop._pacing.get_state().outstanding), str(reserved)

    def kept_of(self, group: str) -> list[str]:
        return sorted(place.node for place in self.cache.state.groups.kept._places.get(group, ()))

    async def kill(self) -> None:
        self.is_leading = False
        tasks = [*self._tasks, *self.loop._plans._tasks]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


class Step(NamedTuple):
    """What happens next. what: its kind. where: to which pod or group; empty: none. is_trouble: whether it counts."""

    what: str
    where: str = ""

    @property
    def is_trouble(self) -> bool:
        return self != GO_ON

    def __str__(self) -> str:
        return f"{self.what} {self.where}".strip()


GO_ON = Step("go on")
"""The watch shows what it holds back, or the first binding is carried out, or time passes until one is asked for."""


@dataclass
class World:
    """See the module. hidden: what the watch has not shown yet, while it lags. missing: lost pods without successors.

    stood: groups whose minimum stood. owed: those of them that lost a member under this leader; places are kept for
    them. excused: groups of which no more can be asked until they stand again: their minimum was raised, or a leader
    ended while they lacked a pod, or their largest pod was not bound.
    """

    setting: Setting
    hidden: list[tuple[str, Json]] = field(default_factory=list)
    lags: bool = False
    missing: list[str] = field(default_factory=list)
    stood: set[str] = field(default_factory=set)
    owed: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    is_quiet: bool = False

    def __post_init__(self) -> None:
        self._began = asyncio.get_running_loop().time()
        self.server = Server(self.setting)
        self.server.listen = self._listen
        self.operator = Operator(self.server, self.clock)

    def clock(self) -> float:
        return asyncio.get_running_loop().time() - self._began + 1000.0

    def _listen(self, kind: str, item: Json) -> None:
        if self.lags:
            self.hidden.append((kind, item))
        else:
            self.operator.hear(kind, item)

    # --- steps ---

    def list_steps(self) -> list[Step]:
        """Return all that may happen now, what comes by itself first."""
        steps = [GO_ON]
        server = self.server
        for request in server.requests:
            steps += [Step(what, request.key) for what in ("refuse", "lose request", "lose answer")]
        steps += [Step("answer", request.key) for request in server.requests[1:]]
        if server.requests:
            steps.append(Step("wait"))
        if not self.lags:
            steps.append(Step("lag"))
        for name, pod in server.pods.items():
            if has_ended(pod):
                continue
            steps += [Step(what, name) for what in ("replace", "lose")]
            if get_node(pod):
                steps += [Step(what, name) for what in ("fail", "finish")]
        for name in server.pod_groups:
            steps += [Step("minimum 2", name)] if server.minimum[name] != 2 else [Step("minimum 3", name)]
        steps.append(Step("new leader"))
        return steps

    async def take(self, step: Step) -> None:
        """Let it happen, and all that follows from it at once."""
        self.is_quiet = False
        match step.what:
            case "go on":
                await self._go_on()
            case "answer" | "refuse" | "lose request" | "lose answer":
                self._answer(next(each for each in self.server.requests if each.key == step.where), step.what)
            case "wait":
                await asyncio.sleep(BATCH_SECONDS)
            case "lag":
                self.lags = True
            case "new leader":
                await self._change_leader()
            case "minimum 2" | "minimum 3":
                self._set_minimum(step.where, int(step.what[-1]))
            case _:
                self._lose(step.where, step.what)
        await self._settle()
        self.stood.update(filter(self.stands, self.server.minimum))
        self.excused -= {group for group in self.excused if self.stands(group)}

    async def _settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def _go_on(self) -> None:
        server = self.server
        if self.lags and not server.requests:
            self.show()
        elif server.requests:
            self._answer(server.requests[0], "answer")
        elif await self._pass_time(BATCH_SECONDS) or await self._pass_time(PATIENCE_SECONDS if not self.missing else 0):
            return
        elif self.missing:
            name = self.missing.pop(0)
            server.make(name.partition("-")[0], name)
        else:
            self.is_quiet = not await self._pass_time(KEPT_SECONDS + PATIENCE_SECONDS)

    def show(self) -> None:
        """Let the watch show what it holds back."""
        self.lags = False
        hidden, self.hidden = self.hidden, []
        for kind, item in hidden:
            self.operator.hear(kind, item)

    async def _pass_time(self, seconds: float) -> bool:
        """Let time pass until a binding is asked for; return whether one is."""
        self.server.asked.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.server.asked.wait(), seconds)
        return bool(self.server.requests)

    def _answer(self, request: Request, how: str) -> None:
        self.server.requests.remove(request)
        error: Exception | None = None
        if how in {"answer", "lose answer"}:
            error = self.server.bind(request)
        if how == "refuse":
            error = ApiError(403, "Forbidden", WEBHOOK)
        elif how in {"lose answer", "lose request"}:
            error = TransientClusterError("the connection was lost")
        if request.answered.done():
            return
        if error is None:
            request.answered.set_result(b"{}")
        else:
            request.answered.set_exception(error)

    def _lose(self, name: str, how: str) -> None:
        server = self.server
        pod = server.pods[name]
        group = pod["metadata"]["namespace"]
        if get_node(pod) and how != "finish" and self.stands(group) and not self.lags:
            self.owed.add(group)
        if how in {"fail", "finish"}:
            server.change_pod(name, lambda it: it["status"].update(phase="Failed" if how == "fail" else "Succeeded"))
            server.finished[group] += how == "finish"
        else:
            server.delete(name)
        if how == "replace":
            server.make(group, name)
        elif how == "lose":
            self.missing.append(name)
        elif how == "fail":
            server.make(group, f"{name}'")

    def _set_minimum(self, group: str, minimum: int) -> None:
        if minimum > self.server.minimum[group]:
            self.excused.add(group)
        self.server.set_minimum(group, minimum)

    async def _change_leader(self) -> None:
        """Let another one begin with what the API server holds; what was not carried out yet never will be."""
        await self.operator.kill()
        self.server.requests.clear()
        self.lags, self.hidden = False, []
        lost = {name.partition("-")[0] for name in self.missing}
        self.excused |= lost  # it cannot know of places that were kept
        self.owed -= lost
        self.excused |= set(filter(self._lacks_the_largest, self.stood))
        self.operator = Operator(self.server, self.clock)

    def _lacks_the_largest(self, group: str) -> bool:
        """Whether a member waits that is larger than all that are bound: the next leader takes it for one that grew."""
        members = self.server.list_members(group)
        bound = [count_cores(pod) for pod in members if get_node(pod)]
        waiting = [count_cores(pod) for pod in members if not get_node(pod)]
        return max(waiting, default=0) > max(bound, default=0)

    # --- judgement ---

    def count(self, group: str) -> int:
        """Return how many members are bound or have succeeded."""
        return sum(bool(get_node(pod)) for pod in self.server.list_members(group)) + self.server.finished[group]

    def stands(self, group: str) -> bool:
        return self.count(group) >= self.server.minimum[group]

    def find_complaints(self) -> list[str]:
        """Return what must not be at any time, and what must not be when nothing happens any more."""
        found = list(self.server.broken)
        if self.is_quiet:
            for group in self.setting.groups:
                found += self._judge_quiet(group.name)
        return found

    def _judge_quiet(self, group: str) -> list[str]:
        server = self.server
        count, minimum = self.count(group), server.minimum[group]
        waiting = [pod for pod in server.list_members(group) if not get_node(pod)]
        free = sum(map(server.count_free, server.nodes))
        lacking, words = (
            minimum - count,
            f"group {group}: {count} of {minimum} are bound, {len(waiting)} wait, {free} free",
        )
        reserved = any(each.tenant != f"ns/{group}" for each in self.operator.decider.reservations.list_all())
        is_put_back = reserved and group in self.excused  # it goes by shares, and capacity is reserved for the other
        if not is_put_back and any(map(server.fit, combinations(waiting, max(lacking, 1)))):
            return [f"{words}: no progress"]
        is_asked = group not in self.excused and (group in self.owed or group not in self.stood)
        if is_asked and count > 0 and 0 < lacking <= len(waiting) and not self._is_overdrawn():
            return [f"{words}: torn"]
        if waiting and f"{group}/{group}" not in {key and key.split(" ")[0] for key in self.operator.find_waits()}:
            return [f"{words}: it does not say why"]
        return []

    def _is_overdrawn(self) -> bool:
        """Whether groups that have begun cannot stand all at once, because the minimum of one was raised."""
        minimum, finished, asked = self.server.minimum, self.server.finished, 0
        if all(minimum[group.name] <= group.minimum for group in self.setting.groups):
            return False
        for group in filter(self.count, minimum):
            cores = sorted(map(count_cores, self.server.list_members(group)), reverse=True)
            asked += sum(cores[: minimum[group] - finished[group]])
        return asked > sum(self.setting.cores)

    def describe(self) -> tuple[object, ...]:
        """Return all that what follows depends on, as far as it can be told apart."""
        server = self.server
        pods = tuple(sorted((name, get_node(pod), pod["status"]["phase"]) for name, pod in server.pods.items()))
        groups = tuple(
            sorted((name, str(item["spec"]), _find_status(item)) for name, item in server.pod_groups.items())
        )
        requests = tuple((request.key, request.node) for request in server.requests)
        watch = self.lags, tuple((kind, item["metadata"]["name"]) for kind, item in self.hidden)
        return pods, groups, requests, watch, tuple(self.missing), self.is_quiet, self.operator.describe()

    async def close(self) -> None:
        await self.operator.kill()


def _find_status(item: Mapping[str, Any]) -> str:
    return "".join(each["status"] for each in (item.get("status") or {}).get("conditions", ()))
