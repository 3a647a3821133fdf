"""What one object costs on its way through the operator: CPU time step by step, and memory that stays.

A world of 1,000 nodes stands still. One object comes by watch and by list, the next snapshot, cycle, overview and page
of metrics are made, and it goes again. CPU time of this process counts, and is compared with a loop of fixed work that
is timed beside it, so that a slow or busy machine does not matter. A step that looks too slow is repeated, and the
fastest time counts.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.builders import SCHEDULER, Json, make_namespace, make_node, make_pod, next_version
from cluster.devices import make_slice
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.messages import compute_condition_reason, format_unschedulable
from fairbind.cluster.objects.decode import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Changed,
    ResourceType,
)
from fairbind.cluster.tenancy.policies import parse_policy
from fairbind.cluster.tenancy.tenants import TenantSpec, parse_tenant
from fairbind.model import CycleReport, InvalidProblemError, PolicySettings
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.web.metrics import Metrics
from fuzz.recipes import Recipe

NODES_IN_WORLD = 1000
LOOP_STEPS = 40_000
LOOP_MILLISECONDS = 5.0
"""What `time_loop` takes on the machine on which the limits were chosen; elsewhere the limits scale with it."""
LIMIT_MILLISECONDS = 20.0
"""A step may take so long beyond what it takes for a small object..."""
WORLD_LIMIT_MILLISECONDS = 100.0
"""...or so long for what only administrators and kubelets write: the arrays of all nodes are made anew..."""
READ_LIMIT_MILLISECONDS_PER_MIB = 150.0
"""...and reading an object so long for each MiB of it."""
KEPT_BYTES_PER_BYTE = 6.0
KEPT_BYTES = 256 * 1024
LEFT_BYTES = 320 * 1024
"""What stays of an object while it is there, and after it has gone."""
WORLD_BYTES = 3 << 20
"""The arrays of all nodes, which count as new memory when they are made anew."""
REPEATS = 4
READING = ("decode", "decode in a list")
WATCHED: dict[str, ResourceType[Any]] = {
    "pod": PODS,
    "node": NODES,
    "namespace": NAMESPACES,
    "claim": RESOURCE_CLAIMS,
    "slice": RESOURCE_SLICES,
    "class": DEVICE_CLASSES,
}
"""By the kind's name in recipes."""


def time_loop() -> float:
    """Return the seconds of CPU time of a fixed amount of work."""
    started = time.process_time()
    texts: dict[str, int] = {}
    for number in range(LOOP_STEPS):
        texts[str(number % 1000)] = number
    return time.process_time() - started


@dataclass
class Costs:
    """What an object costs. seconds: of CPU time by step. kept: bytes while it is there. left: once it is gone."""

    size: int
    is_of_tenant: bool = True
    seconds: dict[str, float] = field(default_factory=dict)
    kept: int = 0
    left: int = 0


class World:
    """A cluster in which everything stands still but one object."""

    def __init__(self) -> None:
        self.cache = ClusterCache(SCHEDULER, lambda: None)
        self.metrics = Metrics()
        self._state, self._unschedulable = CycleState(), UnschedulableCache()
        fed = ((PODS, self.cache.pods), (NODES, self.cache.nodes), (NAMESPACES, self.cache.namespaces))
        named: list[tuple[ResourceType[Any], Any]] = [*fed, *self.cache.device_feeds]
        self.feeds = {kind.name: feed for kind, feed in named}
        for namespace in range(6):
            self._apply("namespace", make_namespace(f"team{namespace}", {"team": str(namespace)}))
        for number in range(NODES_IN_WORLD):
            taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}] if number % 5 == 0 else []
            labels = {"kubernetes.io/hostname": f"node-{number}", "zone": str(number % 3)}
            self._apply("node", make_node(f"node-{number}", labels=labels, taints=taints))
        for number in range(NODES_IN_WORLD):
            self._apply("pod", self._make_other(number, node=f"node-{number}", phase="Running"))
        for number in range(NODES_IN_WORLD):  # of no claim yet
            node = f"node-{number}"
            self._apply("slice", make_slice(f"slice-{number}", 8, node=node, driver="driver"))
        for number in range(60):  # too large for every node: they wait
            self._apply("pod", self._make_other(number, name=f"waits-{number}", cpu=f"{100 + number}"))
        for _ in range(2):
            list(self._follow())
        self.base = {
            name: min(each[name] for each in map(self._time_follow, range(3))) for name in self._time_follow(0)
        }

    def _make_other(self, number: int, *, name: str = "", cpu: str = "1", **options: Any) -> Json:
        return make_pod(
            name or f"other-{number}",
            namespace=f"team{number % 6}",
            requests={"cpu": cpu, "memory": "64Mi"},
            labels={"app": f"app{number % 9}"},
            **options,
        )

    def _apply(self, kind: str, made: Json) -> None:
        steps = Passage(self, kind, made)
        steps.read()
        steps.apply()

    def _time_follow(self, _: int) -> dict[str, float]:
        """Return what each step costs when a small pod has come."""
        passage = Passage(self, "pod", make_pod("odd", requests={"cpu": "100m"}))
        seconds = {name: _time(step) for name, step in passage.get_steps()}
        passage.remove()
        list(self._follow())
        return seconds

    def _follow(self) -> Iterator[None]:
        for _, step in self.get_steps():
            yield step()

    def get_steps(self) -> list[tuple[str, Callable[[], None]]]:
        """Return what happens after a change, by name."""
        return [
            ("snapshot", self._make_snapshot),
            ("cycle", self._run_cycle),
            ("overview", self._show_overview),
            ("metrics", self._render),
        ]

    def _make_snapshot(self) -> None:
        self.cache.build_snapshot()

    def _run_cycle(self) -> None:
        snapshot = self.cache.build_snapshot()
        report = run_cycle(
            snapshot, self.cache.settings, 0.0, unschedulable=self._unschedulable, state=self._state, limit=100
        )
        self.cache.note_waits(report.waits)
        self._word(report)

    def _word(self, report: CycleReport) -> None:
        for wait in report.waits:
            compute_condition_reason(wait)
            format_unschedulable(wait, NODES_IN_WORLD)

    def _show_overview(self) -> None:
        self.metrics.overview_changed(self.cache.queries.build_overview())
        self.cache.queries.tenant_states()

    def _render(self) -> None:
        self.metrics.render("")


class Passage:
    """One object on its way."""

    def __init__(self, world: World, kind: str, made: Json) -> None:
        made["metadata"]["resourceVersion"] = next_version()
        self._world, self._cache = world, world.cache
        self._kind, self._made = kind, made
        self.body = json.dumps(made).encode()
        self._line = b'{"type": "MODIFIED", "object": %s}' % self.body
        self._page = b'{"metadata": {"resourceVersion": "1"}, "items": [%s]}' % self.body
        self._read: Any = None

    def get_steps(self) -> list[tuple[str, Callable[[], None]]]:
        """Return all steps, by name and in order."""
        listed = [("decode in a list", self._read_page)] if self._kind in WATCHED else []
        return [("decode", self.read), *listed, ("apply", self.apply), *self._world.get_steps()]

    def read(self) -> None:
        """Decode and convert."""
        match self._kind:
            case kind if kind in WATCHED:
                self._read = WATCHED[kind].decode_event(self._line)
            case "tenant":
                self._read = self._parse(parse_tenant)
            case _:
                self._read = self._parse(parse_policy)

    def _parse(self, parse: Callable[[Json], Any]) -> Any:
        with suppress(InvalidProblemError):  # what the operator reports as a condition
            return parse(msgspec.json.decode(self.body))
        return None

    def _read_page(self) -> None:
        WATCHED[self._kind].decode_page(self._page)

    def apply(self) -> None:
        """Take it into the cache."""
        read = self._read
        if isinstance(read, TenantSpec):
            self._cache.set_tenant(read)
        elif isinstance(read, PolicySettings):
            self._cache.set_policy(read)
        elif isinstance(read, Changed):
            self._world.feeds[WATCHED[self._kind].name].apply(read.item)

    def remove(self) -> None:
        """Take it out of the cache, and forget it here."""
        self._made["metadata"]["resourceVersion"] = next_version()
        read, self._read = self._read, None
        if isinstance(read, TenantSpec):
            self._cache.delete_tenant(read.name)
        elif isinstance(read, PolicySettings):
            self._cache.set_policy(None)
        elif isinstance(read, Changed):
            gone = msgspec.structs.replace(read.item, version=next_version())
            self._world.feeds[WATCHED[self._kind].name].delete(gone)


def _time(step: Callable[[], None]) -> float:
    started = time.process_time()
    step()
    return time.process_time() - started


def measure_time(world: World, recipe: Recipe) -> Costs:
    """Return what an object costs in time. Raises whatever the operator would have raised."""
    passage = Passage(world, recipe.kind, recipe.make())
    costs = Costs(len(passage.body), recipe.kind == "pod")
    try:
        costs.seconds = {name: _time(step) for name, step in passage.get_steps()}
    finally:
        costs.seconds["remove"] = _time(passage.remove)
        for name, step in world.get_steps():
            costs.seconds[f"{name} after it"] = _time(step)
    return costs


def measure_memory(world: World, recipe: Recipe) -> tuple[int, int]:
    """Return the bytes that an object keeps while it is there, and those that stay when it is gone."""
    small = Recipe("pod", "labels", {"count": 1})
    measure_time(world, small)  # so that what is remembered of the last object is a small one's
    tracemalloc.start()
    try:
        passage = Passage(world, recipe.kind, recipe.make())
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _, step in passage.get_steps():
            step()
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
        passage.remove()
        for _, step in world.get_steps():
            step()
        measure_time(world, small)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    return kept, left


def find_excess(world: World, costs: Costs, loop_seconds: float) -> list[str]:
    """Return what is above its limit, in words."""
    scale = loop_seconds * 1000 / LOOP_MILLISECONDS
    found = []
    least = LIMIT_MILLISECONDS if costs.is_of_tenant else WORLD_LIMIT_MILLISECONDS
    arrays = 0 if costs.is_of_tenant else WORLD_BYTES
    for name, seconds in costs.seconds.items():
        per_size = READ_LIMIT_MILLISECONDS_PER_MIB * costs.size / 2**20 if name in READING else 0.0
        base = 2000 * world.base.get(name.removesuffix(" after it"), 0.0)
        limit = base + scale * (least + per_size)
        if seconds * 1000 > limit:
            found.append(f"{name} takes {seconds * 1000:.1f} ms, more than {limit:.1f}")
    if costs.kept > arrays + KEPT_BYTES + KEPT_BYTES_PER_BYTE * costs.size:
        found.append(f"{costs.kept} bytes are kept of {costs.size}")
    if costs.left > arrays + LEFT_BYTES:
        found.append(f"{costs.left} bytes are left of {costs.size}")
    return found


def judge(world: World, recipe: Recipe, *, with_memory: bool) -> tuple[Costs, list[str]]:
    """Return what an object costs and what of it is too much; an exception is too much as well."""
    try:
        costs = measure_time(world, recipe)
        loop_seconds = time_loop()
        for _ in range(REPEATS):
            if not find_excess(world, costs, loop_seconds):
                break
            again = measure_time(world, recipe)
            loop_seconds = max(loop_seconds, time_loop())
            costs.seconds = {name: min(seconds, again.seconds[name]) for name, seconds in costs.seconds.items()}
        if with_memory:
            costs.kept, costs.left = measure_memory(world, recipe)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
        return Costs(0), [f"{type(error).__name__}: {error}"]
    return costs, find_excess(world, costs, loop_seconds)
