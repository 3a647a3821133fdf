"""How long do single events hold the event loop? `.venv/bin/python tests/perf/events.py --help`.

A cache has 1,000 or 5,000 nodes and 5,000 waiting pods, of 40 tenants, of which no two are the same and which fit
nowhere; for one row 20,000 pods of one tenant. With --same-requests they all ask for the same amounts and differ in one
toleration each, or in what a row needs. One object changes, then changes back. Timed are the processor time until the
cache has taken it (its decoding not included: `make fuzz-cost` measures that), that of the next snapshot, and that of
the cycle that follows. Where it is taken over in parts, all snapshots and cycles are timed, and the longest counts. The
least of some rounds counts, and of the two ways the longer one. Last come the pods of a DaemonSet, all at once: their
row has the sums until all are decided. The garbage collector is set as the operator sets it once it knows a cluster.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from cluster.builders import Cluster, make_node, make_pod, read_node, read_pod  # noqa: E402  the path comes first
from fairbind.cluster.objects.facts import PodFacts  # noqa: E402
from fairbind.kube.operator.surroundings import freeze_heap  # noqa: E402
from fairbind.model import PolicySettings  # noqa: E402
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle  # noqa: E402
from perf.machine import describe_machine, describe_versions  # noqa: E402

Json = dict[str, Any]
Spec = Callable[[int], Json]
Times = tuple[float, float, float, int]
"""Milliseconds: until the cache has it, of the longest snapshot that follows, of the longest cycle. Last, the parts."""
LIMITS = {1_000: 20.0, 5_000: 100.0}
"""Milliseconds that an event may take, by the number of nodes."""
TENANTS = 40
MANY_KINDS = 20_000
NEW_NODE = 1_000_000
TERMS, APPS = 32, 5
NAMES = ("k7", "h7")
IMAGE = "registry.example.com/new:1"
MIB = 1 << 20
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """What an event costs at so many nodes, in milliseconds.

    taken: until the cache has it. snapshot, cycle: the longest of its parts. parts: how many there are.
    """

    event: str
    nodes: int
    taken: float
    snapshot: float
    cycle: float
    parts: int = 1

    @property
    def until_snapshot(self) -> float:
        """What the limit is for."""
        return self.taken + self.snapshot


# --- pods of which no two are the same ---


def tolerate(n: int) -> Json:
    """Another toleration each."""
    return {"tolerations": [{"key": f"k{n}", "operator": "Exists"}]}


def avoid(n: int) -> Json:
    """Another node affinity each."""
    expression = {"key": "host", "operator": "NotIn", "values": [f"h{n}", f"h{n + 1}"]}
    return {"affinity": {"nodeAffinity": require({"matchExpressions": [expression]})}}


def select(n: int) -> Json:
    """Another node selector each."""
    return {"nodeSelector": {"host": f"h{n}"}}


def label(n: int) -> Json:
    """Another label each."""
    return {"labels": {"app": f"a{n % APPS}", "own": str(n)}}


def await_label(n: int) -> Json:
    """All wait for one label, and differ besides."""
    return {"nodeSelector": {"fresh": "yes"}, **tolerate(n)}


def await_image(n: int) -> Json:
    """All have one image, and differ besides."""
    return {"image": IMAGE, **tolerate(n)}


def make_waiting(name: str, namespace: str, cpu: str, *, image: str = "", **fields: Any) -> Json:
    """Return a pod that waits."""
    pod = make_pod(name, namespace=namespace, requests={"cpu": cpu}, **fields)
    if image:
        pod["spec"]["containers"][0]["image"] = image
    return pod


def require(term: Json) -> Json:
    """Return a required node affinity of one term."""
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


# --- what happens ---


@dataclass(frozen=True, slots=True)
class Event:
    """specs: kinds of the pods that wait; the costliest counts. make: the object as it becomes; beside: another.

    is_new: a node that comes and goes.
    """

    name: str
    specs: tuple[Spec, ...]
    make: Callable[[], Json]
    is_pod: bool = False
    is_new: bool = False
    beside: Callable[[], Json] | None = None


def make_repelling() -> Json:
    """Return a placed pod with terms of anti-affinity that select four in five of the pods with labels."""
    apps = {"key": "app", "operator": "In", "values": [f"a{n}" for n in range(APPS - 1)]}
    terms = [
        {
            "topologyKey": "host",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [apps, {"key": f"absent{n}", "operator": "DoesNotExist"}]},
        }
        for n in range(TERMS)
    ]
    anti_affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return make_pod("evil", namespace="other", node="n0", phase="Running", affinity=anti_affinity)


def make_some_node(number: int, **options: Any) -> Json:
    """Return a node with a label of its own."""
    labels = {"host": f"n{number}", **options.pop("labels", {})}
    return make_node(f"n{number}", labels=labels, **options)


def offer(count: int, number: int = 0) -> Json:
    """Return a node that offers so many resources besides, of its own."""
    devices = {f"example.com/n{number}-{n:04}": "4" for n in range(count)}
    return make_some_node(number, allocatable={"cpu": "4", "memory": "8Gi", "pods": "110", **devices})


def make_node_with_image() -> Json:
    """Return a node that has the new image."""
    return make_some_node(0, images={IMAGE: 900 * MIB})


def taint(key: str) -> Json:
    """Return a node with a taint."""
    return make_some_node(0, taints=[{"key": key, "effect": "NoSchedule"}])


ALL = (tolerate, avoid, select)
CORDON = Event("a node is cordoned", ALL, lambda: make_some_node(0, unschedulable=True))
EVENTS = (
    Event(
        f"a placed pod with {TERMS} anti-affinity terms that select four in five pods",
        (label,),
        make_repelling,
        is_pod=True,
    ),
    CORDON,
    Event("a taint that no pod tolerates", ALL, lambda: taint("other")),
    Event("a taint that one pod tolerates", (tolerate,), lambda: taint(NAMES[0])),
    Event("a label that no pod asks for", ALL, lambda: make_some_node(0, labels={"new": "x"})),
    Event("a label that one pod asks for", (avoid, select), lambda: make_some_node(0, labels={"host": NAMES[1]})),
    Event("a label that all pods wait for", (await_label,), lambda: make_some_node(0, labels={"fresh": "yes"})),
    Event("an image that all pods have", (await_image,), make_node_with_image),
    Event("a node comes, or goes", ALL, lambda: make_some_node(NEW_NODE), is_new=True),
    Event("a node offers 64 more resources", (tolerate,), lambda: offer(64)),
    Event("a node offers 1,000 more resources", (tolerate,), lambda: offer(1_000)),
    Event(
        "the same, where another node offers 1,000 others",
        (tolerate,),
        lambda: offer(1_000),
        beside=lambda: offer(1_000, number=1),
    ),
)
MANY_OF_ONE = f"a node is cordoned, where {MANY_KINDS:,} pods of one tenant wait"
DAEMON_SET = "a DaemonSet of our own: a pod for each node comes, all are decided"


class World:
    """A cluster in which pods wait that fit nowhere."""

    def __init__(self, nodes: int, pods: int, spec: Spec, *, tenants: int = TENANTS, differ: bool = True) -> None:
        self.cluster = Cluster()
        self.cluster.add_nodes(*map(make_some_node, range(nodes)))
        for n in range(pods):
            cpu = f"{100_000 + n if differ else 100_000}m"
            self.cluster.add_pods(make_waiting(f"w{n}", f"t{n % tenants}", cpu, **spec(n)))
        self._state, self._unschedulable = CycleState(), UnschedulableCache()
        for _ in range(3):
            self.cluster.cache.build_snapshot()
            self.decide()
        gc.unfreeze()  # the world before
        freeze_heap()

    def decide(self) -> None:
        """Run a cycle, and remember why pods wait."""
        snapshot = self.cluster.cache.build_snapshot()
        report = run_cycle(snapshot, PolicySettings(), 0.0, state=self._state, unschedulable=self._unschedulable)
        self.cluster.cache.note_waits(report.waits)

    def measure(self, happen: Callable[[], None]) -> Times:
        """Return milliseconds: until it is taken, and until all is taken over the longest snapshot and cycle."""
        cache, taken, parts = self.cluster.cache, _time(happen), list[tuple[float, float]]()
        is_current = False
        while not is_current:
            snapshot = _time(cache.build_snapshot)
            is_current = cache.build_snapshot().is_current and not cache.state.queues.to_image
            parts.append((snapshot, _time(self.decide)))
        (first, _), *others = parts
        longest = max([taken + first, *(snapshot for snapshot, _ in others)])
        return taken, longest - taken, max(cycle for _, cycle in parts), len(parts)

    def measure_event(self, event: Event) -> Times:
        """Let it happen and be undone, some times."""
        pods, nodes = self.cluster.cache.pods, self.cluster.cache.nodes
        there, back = [], []
        if event.beside is not None:
            nodes.apply(read_node(event.beside()))
            self.cluster.cache.build_snapshot()
            self.decide()
        for _ in range(ROUNDS):
            if event.is_pod:
                there.append(self.measure(partial(pods.apply, read_pod(event.make()))))
                back.append(self.measure(partial(pods.delete, read_pod(event.make()))))
            elif event.is_new:
                there.append(self.measure(partial(nodes.apply, read_node(event.make()))))
                back.append(self.measure(partial(nodes.delete, read_node(event.make()))))
            else:
                there.append(self.measure(partial(nodes.apply, read_node(event.make()))))
                back.append(self.measure(partial(nodes.apply, read_node(make_some_node(0)))))
        return max(find_least(there), find_least(back), key=sum_until_snapshot)


def _time(step: Callable[[], object]) -> float:
    started = time.process_time()
    step()
    return 1000.0 * (time.process_time() - started)


def sum_until_snapshot(times: Times) -> float:
    """Return what the limit is for."""
    return times[0] + times[1]


def find_least(rounds: Sequence[Times]) -> Times:
    """Return the least of each figure."""
    taken, snapshot, cycle, parts = (min(each) for each in zip(*rounds, strict=True))
    return taken, snapshot, cycle, int(parts)


def measure_daemon_set(nodes: int) -> Times:
    """Have a pod come for each node, as the controller pins it; all of them fit."""
    rounds = []
    for _ in range(ROUNDS):
        cluster = Cluster()
        cluster.add_nodes(*map(make_some_node, range(nodes)))
        cluster.cache.build_snapshot()
        pods = [read_pod(make_pinned(n)) for n in range(nodes)]
        taken, snapshot, cycle = _time(partial(_apply_all, cluster, pods)), 0.0, 0.0
        state, unschedulable = CycleState(), UnschedulableCache()
        while cluster.cache.queries.has_waiting:
            snapshot += _time(cluster.cache.build_snapshot)
            built, started = cluster.cache.build_snapshot(), time.process_time()
            report = run_cycle(built, PolicySettings(), 0.0, state=state, unschedulable=unschedulable)
            cycle += 1000.0 * (time.process_time() - started)
            for bind in report.bindings:
                assert cluster.cache.assume(bind.task.uid, bind.server)
        rounds.append((taken, snapshot, cycle, 1))
    return find_least(rounds)


def _apply_all(cluster: Cluster, pods: Iterable[PodFacts]) -> None:
    for pod in pods:
        cluster.cache.pods.apply(pod)


def make_pinned(number: int) -> Json:
    """Return a pod for one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}
    affinity = {"nodeAffinity": require({"matchFields": [field]})}
    return make_pod(f"d{number}", namespace="t0", requests={"cpu": "100m", "memory": "64Mi"}, affinity=affinity)


def measure(nodes: int, pods: int, *, differ: bool = True) -> Iterator[Row]:
    """Yield a row for each event. differ: whether each of the pods asks for another amount."""
    found: dict[str, list[Times]] = {event.name: [] for event in EVENTS}
    for spec in dict.fromkeys(itertools.chain.from_iterable(event.specs for event in EVENTS)):
        world = World(nodes, pods, spec, differ=differ)
        for event in EVENTS:
            if spec in event.specs:
                found[event.name].append(world.measure_event(event))
    for name, times in found.items():
        yield make_row(name, nodes, max(times, key=sum_until_snapshot))
    crowd = World(nodes, MANY_KINDS, tolerate, tenants=1, differ=differ)
    yield make_row(MANY_OF_ONE, nodes, crowd.measure_event(CORDON))
    yield make_row(DAEMON_SET, nodes, measure_daemon_set(nodes))


def make_row(event: str, nodes: int, times: Times) -> Row:
    """Return a row of the table."""
    taken, snapshot, cycle, parts = times
    return Row(event, nodes, round(taken, 1), round(snapshot, 1), round(cycle, 1), parts)


def render(rows: Sequence[Row]) -> str:
    """Return a table: what each event costs until the next snapshot, or the longest of its parts, and the cycle."""
    sizes = sorted({row.nodes for row in rows})
    head = "".join(f" {nodes:,} nodes: until the snapshot (ms) | the cycle (ms) |" for nodes in sizes)
    lines = [f"| event |{head}", "| --- |" + " ---: | ---: |" * len(sizes)]
    for name in dict.fromkeys(row.event for row in rows):
        cells = [row for nodes in sizes for row in rows if (row.event, row.nodes) == (name, nodes)]
        figures = "".join(f" {row.until_snapshot:,.0f} | {row.cycle:,.0f} |" for row in cells)
        lines.append(f"| {name} |{figures}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, show a table and what is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=sorted(LIMITS), help="numbers of nodes (1000 5000)")
    parser.add_argument("--pods", type=int, default=5_000, help="so many wait (5000)")
    parser.add_argument("--same-requests", action="store_true", help="all pods ask for the same amounts")
    parser.add_argument("--output", type=Path, help="write the numbers here, too")
    options = parser.parse_args(arguments)
    rows = [row for nodes in options.nodes for row in measure(nodes, options.pods, differ=not options.same_requests)]
    print(render(rows))
    for row in rows:
        limit = LIMITS.get(row.nodes)
        if limit is not None and row.until_snapshot > limit and row.event != DAEMON_SET:
            print(f"above {limit:.0f} ms at {row.nodes:,} nodes: {row.event} ({row.until_snapshot:.0f} ms)")
    if options.output:
        about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "pods": options.pods}
        about |= {"machine": describe_machine(), "versions": describe_versions()}
        text = json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
