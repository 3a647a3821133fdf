"""The driver: a virtual clock that moves from instant to instant, and at each one lets the operator's code decide.

At an instant everything that happens is told to the cache first: tasks end, then events and bought nodes come, then
tasks arrive. Then pacing is asked, as the operator's loop asks it, until it has nothing left to decide. Time stands
still meanwhile: cycles, bindings and the pause in which the loop collects a batch take none of the simulated time.

A pod is made as many "seconds" after the epoch (after the snapshot, if there is one) as pods had arrived before it,
because only the order matters: of tasks that arrive together, those of the first workload entry come first, then those
of the lowest index.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple

import msgspec

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.facts import HOSTNAME, NamespaceFacts, NodeFacts, PodFacts
from fairbind.model import Bind, PolicySettings, RunningTask
from fairbind.simulator.autoscaler import Autoscaler, find_marked
from fairbind.simulator.baselines.base import find_base
from fairbind.simulator.baselines.registry import build_baseline
from fairbind.simulator.gang_log import GangLog
from fairbind.simulator.measuring import Measures
from fairbind.simulator.parse_pods import SCHEDULER
from fairbind.simulator.results import Run, TaskRow
from fairbind.simulator.scenario import (
    Action,
    AddNodes,
    Cordon,
    NodeNames,
    RemoveNodes,
    RemoveTenant,
    Scenario,
    SetTenant,
    Shape,
    StartAutoscaler,
)
from fairbind.simulator.slots import SLOTS, divide_into_slots, set_policy
from fairbind.simulator.summary import TaskTimes, compute_summary
from fairbind.simulator.task_pods import TaskPods
from fairbind.simulator.workload import FOREVER, Workload
from fairbind.what_if.fair_shares import FairShares
from fairbind.what_if.listed_objects import build_cache
from fairbind.what_if.reading import NANOSECONDS
from fairbind.what_if.virtual_operator import VirtualOperator

MOST_SOLVES = 1_000
"""So often in a run targets are made at most, and no more often than the operator makes them."""
SOLVES_EVERY = 2 * NANOSECONDS

NEW_NODE = "(a new node)"
"""The name by which autoscalers ask what a node would take: no pod can select it, as no label may have such a value."""


class _Running(NamedTuple):
    """An attempt that runs."""

    start: int
    server: str
    attempt: int


@dataclass(slots=True)
class _Node:
    """A node that is there. pods: what runs on it, by the task's number."""

    shape: str
    facts: NodeFacts
    pods: dict[int, None]


class StopRun(BaseException):
    """May be raised at any time, by a signal's handler say, to end a run that is amid a long instant."""


def simulate(
    scenario: Scenario,
    workload: Workload,
    policy: str,
    watch: Callable[[float], bool] = lambda _part: False,
    *,
    yardsticks: Sequence[str] = (),
) -> Run:
    """Return the run of one policy.

    yardsticks: policies to whose exact fair shares it is held. The first one's are those of the tables and of audits;
    without any they are its own.

    watch: told before each instant and each cycle which part of the run is over, about; True ends the run there.
    `StopRun` ends it at once.
    """
    simulation = Simulation(scenario, workload, policy, watch, yardsticks)
    simulation.live()
    return simulation.conclude()


class Simulation:
    """One run: `live`, then `conclude`. Tasks are known by their number in the workload. The rest: see `simulate`."""

    def __init__(
        self,
        scenario: Scenario,
        workload: Workload,
        policy: str,
        watch: Callable[[float], bool],
        yardsticks: Sequence[str] = (),
    ) -> None:
        self._scenario = scenario = divide_into_slots(scenario) if policy == SLOTS else scenario
        self._policy = policy
        self._watch = watch
        self._now = 0
        self._is_stopped = False
        self._is_cut = True
        self._arrival = workload.arrival_t.tolist()
        self._duration = workload.duration_t.tolist()
        self._first_created = 0.0 if scenario.start is None else scenario.start.time
        self._tasks = TaskPods(scenario, workload, self._first_created)
        baseline = build_baseline(policy, scenario, workload)
        self._cluster = VirtualOperator(
            partial(_make_cache, scenario, policy),
            find_base(policy),
            self._start,
            baseline=baseline,
            explains=any(isinstance(event.action, StartAutoscaler) for event in scenario.events),
            epoch=self._first_created,
            find_start=self._find_start,
            find_end=self._find_end,
            solves_every=self._compute_pause(),
        )
        self._measures = self._make_measures(yardsticks)
        self._gangs = GangLog()
        self._arrived = 0
        self._happened = 0
        self._next_measure = 0
        self._ends: list[tuple[int, int, int]] = []
        self._deliveries: list[tuple[int, int, str]] = []
        self._orders = 0
        self._nodes: dict[str, _Node] = {}
        self._names = NodeNames(scenario.shapes)
        self._autoscalers: dict[str, Autoscaler] = {}
        self._number_of: dict[str, int] = {}
        self._running: dict[int, _Running] = {}
        self._pods: dict[int, PodFacts] = {}
        self._attempts: dict[int, int] = {}
        self._over: list[tuple[int, _Running, int | None]] = []

    def _compute_pause(self) -> int:
        """Return how long targets are good for at least."""
        horizon = self._scenario.horizon
        span = max(self._arrival, default=0) if horizon is None else horizon
        return max(SOLVES_EVERY, span // MOST_SOLVES)

    def _make_measures(self, yardsticks: Sequence[str]) -> Measures:
        scenario = self._scenario
        changes = [event.action.spec for event in scenario.events if isinstance(event.action, SetTenant)]
        specs = [*scenario.tenants, *changes]
        home = {namespace: spec.name for spec in specs for namespace in spec.namespaces}
        shapes = {name: shape.node for name, shape in scenario.shapes.items()}
        names = dict.fromkeys(spec.name for spec in specs)
        cache = self._cluster.cache
        own, base = self._cluster.fair_shares, find_base(self._policy)  # of the solution that it is guided by
        held_to = {name: own if find_base(name) == base else FairShares(cache, find_base(name)) for name in yardsticks}
        fair_shares = next(iter(held_to.values()), own)
        return Measures(self._policy, names, shapes, home, cache, fair_shares, held_to)

    # --- time ---

    def live(self) -> None:
        """Let time pass until the run ends, or is ended."""
        horizon = self._scenario.horizon
        try:
            for shape in self._scenario.shapes.values():
                for node in shape.present:
                    self._add_node(shape, node)
                self._add_nodes(shape, shape.count)
            at: int | None = 0
            while at is not None and (horizon is None or at <= horizon) and not self._should_stop():
                self._measure(at - 1)
                self._now = at
                self._live_through_instant()
                at = self._find_next()
            if not self._is_stopped:  # else the last instant may have been cut short
                self._is_cut = at is not None and self._is_work_left()
                self._now = self._now if horizon is None else horizon
                self._measure(self._now)
        except StopRun:
            self._is_stopped = True

    def _should_stop(self) -> bool:
        horizon = self._scenario.horizon
        part = len(self._over) / max(1, len(self._arrival)) if horizon is None else self._now / horizon
        self._is_stopped = self._is_stopped or self._watch(min(part, 1.0))
        return self._is_stopped

    def _find_next(self) -> int | None:
        """Return when something happens next; None when nothing waits or runs, or nothing can change any more."""
        if self._scenario.horizon is None and not self._is_work_left():
            return None
        times = [heap[0][0] for heap in (self._ends, self._deliveries) if heap]
        if self._arrived < len(self._arrival):
            times.append(self._arrival[self._arrived])
        if self._happened < len(self._scenario.events):
            times.append(self._scenario.events[self._happened].at)
        return min(times, default=None)

    def _is_work_left(self) -> bool:
        """Whether a task is still to arrive, waits or runs."""
        return self._arrived < len(self._arrival) or bool(self._number_of)

    def _measure(self, until: int) -> None:
        while self._next_measure <= until:
            self._measures.measure(self._next_measure)
            self._next_measure += self._scenario.measure_every

    def _live_through_instant(self) -> None:
        self._end_tasks()
        events = self._scenario.events
        while self._happened < len(events) and events[self._happened].at <= self._now:
            self._act(events[self._happened].action)
            self._happened += 1
        self._deliver()
        while self._arrived < len(self._arrival) and self._arrival[self._arrived] <= self._now:
            self._arrive(self._arrived)
            self._arrived += 1
        self._cluster.flush(self._now, self._should_stop)
        self._scale()
        self._measures.follow(self._cluster.scale, self._now)
        self._gangs.follow(self._now)

    # --- tasks ---

    def _arrive(self, number: int) -> None:
        self._measures.arrive(self._get_tenant(number))
        self._gangs.arrive(self._tasks.find_group(number), self._tasks.get_entry(number), self._now)
        listed = self._tasks.find_listed(number)
        if listed is None or listed.server is None:
            self._queue(number)
        else:
            self._number_of[listed.placed.uid] = number
            self._place(number, listed.server)
            self._run(number, listed.server)

    def _queue(self, number: int) -> None:
        facts = self._pods[number] = self._tasks.make(number)
        self._number_of[facts.uid] = number
        self._cluster.cache.pods.apply(facts)

    def _get_tenant(self, number: int) -> str:
        return self._tasks.get_entry(number).tenant

    def _start(self, bind: Bind) -> None:
        number = self._number_of[bind.task.uid]
        if self._pods[number].claims:  # what is planned for its volumes has come true
            self._place(number, bind.server)
        self._run(number, bind.server)

    def _find_start(self, task: RunningTask) -> float:
        """Return when a running task began; of one that is none of the workload, what is told of it."""
        number = self._number_of.get(task.uid)
        running = None if number is None else self._running.get(number)
        return task.start if running is None else self._first_created + running.start / NANOSECONDS

    def _find_end(self, task: RunningTask) -> float | None:
        """Return when a running task ends, where the scenario says that this is known."""
        number = self._number_of.get(task.uid) if self._scenario.knows_run_times else None
        running = None if number is None else self._running.get(number)
        if number is None or running is None:
            return None
        length = self._duration[number]
        return inf if length == FOREVER else self._first_created + (running.start + length) / NANOSECONDS

    def _place(self, number: int, server: str) -> None:
        """Tell the cache of a pod that is placed. Where one of its own decisions does that, it knows already."""
        pod = self._pods[number] = self._tasks.make(number, server)
        self._cluster.cache.pods.apply(pod)

    def _run(self, number: int, server: str) -> None:
        node = self._nodes[server]
        attempt = self._attempts[number] = self._attempts.get(number, 0) + 1
        self._running[number] = _Running(self._now, server, attempt)
        node.pods[number] = None
        self._measures.start(self._get_tenant(number), node.shape, self._pods[number])
        self._gangs.start(self._tasks.find_group(number))
        if self._duration[number] != FOREVER:
            heapq.heappush(self._ends, (self._now + self._duration[number], number, attempt))

    def _end_tasks(self) -> None:
        while self._ends and self._ends[0][0] <= self._now:
            _, number, attempt = heapq.heappop(self._ends)
            running = self._running.get(number)
            if running is None or running.attempt != attempt:
                continue  # it lost its node meanwhile
            pod = self._stop(number, self._now)
            del self._number_of[pod.uid]
            self._measures.end(self._get_tenant(number), self._nodes[running.server].shape, pod)
            self._gangs.end(self._tasks.find_group(number))

    def _lose(self, number: int) -> None:
        """Let a task wait again whose node goes."""
        running = self._running[number]
        pod = self._stop(number, None)
        self._measures.lose(self._get_tenant(number), self._nodes[running.server].shape, pod)
        self._gangs.lose(self._tasks.find_group(number))
        self._queue(number)

    def _stop(self, number: int, end: int | None) -> PodFacts:
        running = self._running.pop(number)
        del self._nodes[running.server].pods[number]
        self._over.append((number, running, end))
        pod = self._pods.pop(number)
        if (
            end is not None and pod.group is not None
        ):  # it counts towards its group's minimum when it is not there any more
            self._cluster.cache.pods.apply(msgspec.structs.replace(pod, finished=True, succeeded=True))
        self._cluster.cache.pods.delete(pod)
        return pod

    # --- nodes and tenants ---

    def _act(self, action: Action) -> None:
        match action:
            case AddNodes(shape, count):
                self._add_nodes(self._scenario.shapes[shape], count)
            case RemoveNodes(names):
                for name in names:
                    self._remove_node(name)
            case Cordon(names, is_cordoned):
                for name in names:
                    self._cordon(name, is_cordoned=is_cordoned)
            case SetTenant(spec):
                self._cluster.cache.set_tenant(spec)
            case RemoveTenant(name):
                self._cluster.cache.delete_tenant(name)
            case StartAutoscaler(shape, most, delay):
                self._start_autoscaler(shape, most, delay)

    def _add_nodes(self, shape: Shape, count: int) -> list[str]:
        names = self._names.take(shape.name, count)
        for name in names:
            self._add_node(shape, name_node(shape.node, name))
        return names

    def _add_node(self, shape: Shape, facts: NodeFacts) -> None:
        self._nodes[facts.name] = _Node(shape.name, facts, {})
        self._cluster.cache.nodes.apply(facts)
        self._measures.utilisation.add_capacity(shape.name, facts.allocatable)

    def _remove_node(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return  # one that an autoscaler might have bought
        for number in sorted(node.pods):
            self._lose(number)
        del self._nodes[name]
        self._cluster.cache.nodes.delete(node.facts)
        self._measures.utilisation.add_capacity(node.shape, node.facts.allocatable, -1)
        if node.shape in self._autoscalers:
            self._autoscalers[node.shape].bought.pop(name, None)

    def _cordon(self, name: str, *, is_cordoned: bool) -> None:
        node = self._nodes.get(name)
        if node is not None:
            node.facts = msgspec.structs.replace(node.facts, unschedulable=is_cordoned)
            self._cluster.cache.nodes.apply(node.facts)

    # --- autoscalers ---

    def _start_autoscaler(self, shape: str, most: int, delay: int) -> None:
        known = self._autoscalers.get(shape)
        if known is None:
            node = name_node(self._scenario.shapes[shape].node, NEW_NODE)
            self._autoscalers[shape] = Autoscaler(node, most, delay)
        else:
            known.most, known.delay = most, delay

    def _deliver(self) -> None:
        while self._deliveries and self._deliveries[0][0] <= self._now:
            _, _, shape = heapq.heappop(self._deliveries)
            autoscaler = self._autoscalers[shape]
            autoscaler.ordered -= 1
            autoscaler.bought.update(dict.fromkeys(self._add_nodes(self._scenario.shapes[shape], 1)))

    def _scale(self) -> None:
        """Let autoscalers remove what is empty and order what is missing, after the instant's last cycle."""
        if not self._autoscalers:
            return
        marked = find_marked(self._cluster.waits, self._find_pod)
        has_removed = False
        for autoscaler in self._autoscalers.values():
            empty = [name for name in autoscaler.bought if not self._nodes[name].pods]
            for name in empty:
                self._remove_node(name)
                has_removed = True
        if has_removed:
            self._cluster.flush(self._now, self._should_stop)
        for shape, autoscaler in self._autoscalers.items():
            for _ in range(autoscaler.order(marked)):
                self._orders += 1
                heapq.heappush(self._deliveries, (self._now + autoscaler.delay, self._orders, shape))

    def _find_pod(self, uid: str) -> PodFacts:
        return self._pods[self._number_of[uid]]

    # --- the end ---

    def conclude(self) -> Run:
        """Return what was decided, in order."""
        attempts = [*self._over, *((number, running, None) for number, running in self._running.items())]
        attempts.sort(key=lambda each: (each[0], each[1].attempt))
        times = TaskTimes(self._measures.tenants, self._now)
        rows: list[TaskRow] = []
        place = 0
        for number in range(self._arrived):
            own = []
            while place < len(attempts) and attempts[place][0] == number:
                _, running, end = attempts[place]
                own.append(self._make_row(number, running, end))
                place += 1
            own = own or [self._make_row(number, None, None)]
            times.add(own, self._duration[number], is_running=number in self._running)
            rows += own
        return Run(
            policy=self._policy,
            end=self._now,
            interrupted=self._is_stopped,
            tasks=tuple(rows),
            shares=tuple(self._measures.shares),
            utilisation=tuple(self._measures.utilisation.rows),
            summary=compute_summary(self._measures, times, self._gangs, is_cut=self._is_cut),
            findings=None if self._measures.audits is None else self._measures.audits.list_rows(),
            closeness=self._measures.compute_closeness(self._now),
        )

    def _make_row(self, number: int, running: _Running | None, end: int | None) -> TaskRow:
        return TaskRow(
            policy=self._policy,
            tenant=self._get_tenant(number),
            task=self._tasks.describe(number),
            arrival=self._arrival[number],
            start=None if running is None else running.start,
            end=end,
            server=None if running is None else running.server,
            attempts=0 if running is None else running.attempt,
        )


def name_node(node: NodeFacts, name: str) -> NodeFacts:
    """Return a node of a shape under a name of its own."""
    labels = dict(node.labels) | {HOSTNAME: name}
    return msgspec.structs.replace(node, name=name, labels=tuple(sorted(labels.items())))


def _make_cache(scenario: Scenario, policy: str, on_change: Callable[[], None]) -> ClusterCache:
    """Return the cache of the scenario's cluster, before there is a node in it."""
    if scenario.start is not None:
        cache = build_cache(scenario.start, on_change)
        cache.set_policy(set_policy(cache.settings, policy))
        known = {namespace.metadata.name for namespace in scenario.start.namespaces}
        _add_namespaces(cache, scenario, known)
        return cache
    # A scheduler of slots is no operator, so all of a tenant's jobs are looked at, however many there are.
    cache = ClusterCache(SCHEDULER, on_change, is_limited=policy != SLOTS)
    settings = PolicySettings(
        seed=scenario.seed, reservations=scenario.reservations, guided=scenario.guided, fit=scenario.fit
    )
    cache.set_policy(set_policy(settings, policy))
    cache.replace_tenants(scenario.tenants)
    _add_namespaces(cache, scenario, set())
    return cache


def _add_namespaces(cache: ClusterCache, scenario: Scenario, known: set[str]) -> None:
    for namespace in sorted({entry.waiting.namespace for entry in scenario.workload} - known):
        cache.namespaces.apply(NamespaceFacts(namespace, "", ()))
