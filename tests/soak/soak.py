"""Compressed time: pods, tenants, nodes and names that come and go without end, and what stays of them in memory.

Each round brings new namespaces with their Tenants, a new node for an old one, and pods with labels and resources that
nobody has named before. Pods are created, decided, bound, run, finish and are deleted; some ask for what no node offers
and are deleted while they wait. At the end of a round nothing is left, so whatever memory has grown by has leaked.

`python tests/soak/soak.py --lives 1000000` judges a whole run.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import sys
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from cluster.builders import SCHEDULER, Json, make_namespace, make_node, make_pod, next_version
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.loop.pacing import Pacing
from fairbind.cluster.loop.pacing_events import (
    Announce,
    BindEnded,
    BindResult,
    CycleEnded,
    Decided,
    Forget,
    Instruction,
    NothingWaits,
    Resume,
    RunCycle,
    Tick,
    WakeAt,
)
from fairbind.cluster.loop.pacing_events import Changed as SomethingChanged
from fairbind.cluster.messages import format_unschedulable
from fairbind.cluster.objects.decode import NAMESPACES, NODES, PODS, Changed
from fairbind.cluster.objects.facts import Interner
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import Bind, Plan, list_binds
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.web.metrics import Metrics
from recorded import read_commit

NODES_IN_CLUSTER = 20
PODS_PER_ROUND = 200
TENANTS_PER_ROUND = 2
"""10,000 of them in a million lives."""
MAX_BYTES_PER_100_000 = 1 << 20
WARM_UP = 0.5
SAMPLES = 100
MAX_INTERNED = 2000
LEAST_TURNS = 4
"""A pause for a batch, and perhaps an old timer before it, come before the first decisions."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Summary:
    """What a run found. slope_*: bytes for each 100,000 pods after the warm-up. interned: what is shared at the end."""

    lives: int = 0
    bound: int = 0
    tenants: int = 0
    nodes: int = 0
    cycles: int = 0
    seconds: float = 0.0
    series_before: int = 0
    series_after: int = 0
    interned: int = 0
    resident_bytes: int = 0
    slope_resident: float = 0.0
    slope_traced: float | None = None
    samples: list[tuple[int, int, int]] = field(default_factory=list)

    def find_faults(self, most_bytes: float = MAX_BYTES_PER_100_000) -> list[str]:
        """Return what is wrong, in words."""
        slope = self.slope_resident if self.slope_traced is None else self.slope_traced
        faults = []
        if slope > most_bytes:
            faults.append(f"memory grows by {slope:.0f} bytes for each 100,000 pods")
        if self.series_after > self.series_before:
            faults.append(f"{self.series_after} metric series, {self.series_before} at the start")
        if self.interned > MAX_INTERNED:
            faults.append(f"{self.interned} shared objects are left")
        return faults


class Soak:
    """A cluster whose time is compressed."""

    def __init__(self, pods_per_round: int = PODS_PER_ROUND) -> None:
        self._pods_per_round = pods_per_round
        self.cache = ClusterCache(SCHEDULER, self._wake)
        self.metrics = Metrics()
        self.summary = Summary()
        self._pacing = Pacing()
        self._now, self._wake_at = 0.0, 0.0
        self._state, self._unschedulable = CycleState(), UnschedulableCache()
        self._bindings: list[Bind] = []
        self._nodes: list[Json] = []
        for _ in range(NODES_IN_CLUSTER):
            self._add_node()

    # --- what pacing asks for ---

    def _wake(self) -> None:
        self._obey(self._pacing.handle(SomethingChanged(), self._now))

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case WakeAt(at):
                    self._wake_at = at
                case Forget(uid, postponed):
                    self.cache.forget(uid, postponed=postponed)
                case Resume(uid):
                    self.cache.resume(uid)
                case RunCycle():
                    self._obey(self._run_cycle(instruction))
                case Announce(uid) if (pod := self.cache.find_pod(uid)) is not None:
                    self.metrics.pod_scheduled(pod.tenant, 0.1)

    def _run_cycle(self, order: RunCycle) -> Sequence[Instruction]:
        self.summary.cycles += 1
        snapshot = self.cache.build_snapshot()
        if not snapshot.task_classes:
            self.cache.note_waits(())
            return self._pacing.handle(NothingWaits(), self._now)
        report = run_cycle(
            snapshot,
            self.cache.settings,
            self._now,
            limit=order.limit,
            unschedulable=self._unschedulable,
            state=self._state,
            explains=order.explains,
        )
        begun = self._pacing.handle(Decided(report.plans, report.complete, len(snapshot.task_classes)), self._now)
        for bind in list_binds([plan for plan in begun if isinstance(plan, Plan)]):
            assert self.cache.assume(bind.task.uid, bind.server)
            self._bindings.append(bind)
        for wait in report.waits:
            format_unschedulable(wait, len(snapshot.servers.names))
        is_next_different = self.cache.note_waits(report.waits, rotates=order.rotates)
        self.metrics.cycle_finished(0.001)
        return self._pacing.handle(CycleEnded(0.001, is_next_different), self._now)

    def _decide_all(self, pods: dict[str, Json]) -> None:
        """Let time pass until no binding is under way and nothing more is decided."""
        for turn in range(40):
            self._now = max(self._now + 0.1, self._wake_at)
            self._obey(self._pacing.handle(Tick(), self._now))
            bindings, self._bindings = self._bindings, []
            for bind in bindings:
                pod = pods[bind.task.uid]
                pod["spec"]["nodeName"] = bind.server
                self._obey(self._pacing.handle(BindEnded(bind.task.uid, BindResult.BOUND), self._now))
                self.metrics.binding_finished("bound")
                self._tell_pod(pod)
                self.summary.bound += 1
            if turn >= LEAST_TURNS and not bindings:
                return

    # --- what the API server tells ---

    def _tell_pod(self, pod: Json, kind: str = "MODIFIED") -> None:
        pod["metadata"]["resourceVersion"] = next_version()
        read = PODS.decode_event(json.dumps({"type": kind, "object": pod}).encode())
        assert isinstance(read, Changed)
        (self.cache.pods.delete if read.deleted else self.cache.pods.apply)(read.item)

    def _add_node(self) -> None:
        number = self.summary.nodes
        self.summary.nodes += 1
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110", f"example.com/device{number}": "1"}
        node = make_node(f"node-{number}", allocatable=offered, labels={f"label-{number}": f"value-{number}"})
        self._nodes.append(node)
        self.cache.nodes.apply(NODES.decode_item(json.dumps(node).encode()))

    def _remove_node(self) -> None:
        node = self._nodes.pop(0)
        node["metadata"]["resourceVersion"] = next_version()
        self.cache.nodes.delete(NODES.decode_item(json.dumps(node).encode()))

    def _tell_namespace(self, name: str, *, deleted: bool) -> None:
        read = NAMESPACES.decode_item(json.dumps(make_namespace(name, {f"of-{name}": name})).encode())
        (self.cache.namespaces.delete if deleted else self.cache.namespaces.apply)(read)

    def _make_pods(self, number: int, names: Sequence[str]) -> dict[str, Json]:
        pods = {}
        for place in range(self._pods_per_round):
            name = f"pod-{number}-{place}"
            requests = {"cpu": f"{100 + number % 97}m", "memory": f"{64 + number % 89}Mi"}
            if place % 10 == 0:
                requests[f"example.com/nobody-offers-{number}-{place % 3}"] = "1"
            pod = make_pod(
                name,
                namespace=names[place % len(names)],
                requests=requests,
                labels={f"label-{number}": f"value-{place % 7}"},
                tolerations=[{"key": f"taint-{number}", "operator": "Exists"}],
                scheduler=SCHEDULER if place % 50 else f"other-scheduler-{number}",
            )
            pods[pod["metadata"]["uid"]] = pod
        return pods

    # --- a round ---

    def live(self, number: int) -> None:
        """Bring tenants, pods and a node, let all of them live, and take everything away again."""
        names = [f"team-{number}-{place}" for place in range(TENANTS_PER_ROUND)]
        for name in names:
            self._tell_namespace(name, deleted=False)
            self.cache.set_tenant(
                parse_tenant({"metadata": {"name": name, "uid": name}, "spec": {"namespaces": [name]}})
            )
        self.summary.tenants += len(names)
        self._add_node()
        pods = self._make_pods(number, names)
        for pod in pods.values():
            self._tell_pod(pod, "ADDED")
        self._decide_all(pods)
        for phase in ("Running", "Succeeded"):
            for pod in pods.values():
                if "nodeName" in pod["spec"]:
                    pod["status"]["phase"] = phase
                    self._tell_pod(pod)
            self._show()
        for pod in pods.values():
            self._tell_pod(pod, "DELETED")
        self.summary.lives += len(pods)
        for name in names:
            self.cache.delete_tenant(name)
            self._tell_namespace(name, deleted=True)
        self._remove_node()
        self._decide_all({})

    def _show(self) -> None:
        self.metrics.overview_changed(self.cache.queries.build_overview())
        self.cache.queries.tenant_states()

    def count_series(self) -> int:
        """Return how many series a scrape would see now."""
        self._show()
        page = self.metrics.render("")[0].decode()
        return sum(not line.startswith("#") for line in page.splitlines())


def find_caches() -> dict[str, functools._lru_cache_wrapper[object]]:
    """Return the caches of all functions of the package, by name."""
    return {
        f"{module}.{name}": value
        for module, loaded in list(sys.modules.items())
        if module.startswith("fairbind.")
        for name, value in vars(loaded).items()
        if isinstance(value, functools._lru_cache_wrapper)
    }


def empty_caches() -> None:
    """Empty the caches that have a bound: a short run would count as a leak that they are filled."""
    for cached in find_caches().values():
        if cached.cache_info().maxsize is not None:
            cached.cache_clear()


def count_interned() -> int:
    """Return how many objects all interners hold."""
    return sum(len(each._values) for each in gc.get_objects() if isinstance(each, Interner))


def read_resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def compute_slope(points: Sequence[tuple[int, int]]) -> float:
    """Return the bytes by which memory grows for each 100,000 lives, after the warm-up.

    It is the median of many slopes: a table that grows once, and then holds for long, is no leak.

    >>> compute_slope([(0, 0), (1000, 50), (2000, 60), (3000, 70), (4000, 80), (5000, 90)])
    1000.0
    """
    later = np.array(points[int(len(points) * WARM_UP) :], dtype=float)
    apart = max(len(later) // 2, 1)
    lives, held = (later[apart:] - later[:-apart]).T
    return round(float(np.median(held / lives)) * 100_000, 3)


def run(lives: int, *, traced: bool, pods_per_round: int = PODS_PER_ROUND) -> Summary:
    """Let so many pods live. traced: count Python's own memory, which is exact and slow."""
    soak, rounds = Soak(pods_per_round), max(lives // pods_per_round, 8)
    summary, started = soak.summary, time.monotonic()
    soak.live(-1)
    summary.series_before = soak.count_series()
    if traced:
        tracemalloc.start()
    for number in range(rounds):
        soak.live(number)
        if number % max(rounds // SAMPLES, 1) == 0:
            if traced:
                empty_caches()
            gc.collect()
            summary.samples.append((summary.lives, read_resident_bytes(), tracemalloc.get_traced_memory()[0]))
    summary.series_after = soak.count_series()
    gc.collect()
    summary.interned = count_interned()
    summary.resident_bytes = read_resident_bytes()
    summary.slope_resident = compute_slope([(count, resident) for count, resident, _ in summary.samples])
    if traced:
        summary.slope_traced = compute_slope([(count, held) for count, _, held in summary.samples])
        tracemalloc.stop()
    summary.seconds = round(time.monotonic() - started, 1)
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=1_000_000)
    parser.add_argument("--traced", action="store_true", help="judge Python's own memory instead of the process's")
    parser.add_argument("--output", type=Path, help="where the summary goes as JSON")
    chosen = parser.parse_args(arguments)
    summary = run(chosen.lives, traced=chosen.traced)
    faults = summary.find_faults()
    about = {"python": sys.version.split()[0], "commit": read_commit(), "faults": faults}
    text = json.dumps({**asdict(summary), **about}, sort_keys=True)
    if chosen.output is not None:
        chosen.output.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
