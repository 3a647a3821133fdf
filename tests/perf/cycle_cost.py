"""How long does one change hold the deciding loop? `.venv/bin/python tests/perf/cycle_cost.py --help`.

Three clusters: 1,000 nodes that are full, where 40 tenants wait with 5,000 pods of which no two ask for the same; 5,000
nodes and 900 tenants of which none waits; and the 12,583 nodes of Google's trace, with as many tenants. One small pod
comes and fits, or ends; in the full cluster also a large pod ends, and each of those that wait would fit in its place.
Timed is the processor time of the snapshot, the cycle and its assumptions, as the operator runs them between two
explanations. A row is the median of some rounds. `--operator PATH` measures the packages of another version.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]
if "--operator" in sys.argv:  # before anything of it is imported
    sys.path.insert(0, sys.argv[sys.argv.index("--operator") + 1])

from cluster.builders import Cluster, make_node, make_pod, read_pod  # noqa: E402  the path comes first
from fairbind.cluster.loop.deciding import Decider  # noqa: E402
from fairbind.cluster.loop.pacing import MAX_OUTSTANDING  # noqa: E402
from fairbind.cluster.loop.pacing_events import RunCycle  # noqa: E402
from fairbind.kube.operator.surroundings import freeze_heap  # noqa: E402
from fairbind.model import Bind, PolicySettings, Targets  # noqa: E402
from fairbind.model.policy import DEFAULT_POLICY  # noqa: E402
from fairbind.scheduling import POLICIES  # noqa: E402
from perf.google_servers import GOOGLE_SHAPES  # noqa: E402
from perf.machine import describe_machine, describe_versions  # noqa: E402

Json = dict[str, Any]
LARGEST_CPU, LARGEST_GIB = 192, 1_000
"""Of the largest of Google's servers, which the paper's table counts as 1."""
NODE = {"cpu": "16", "memory": "64Gi", "pods": "110"}
SMALL_KINDS = 8
COMES, ENDS, ALL_FIT = "a pod comes and fits", "a pod ends", "a pod ends, and each that waits would fit there"
ORDER = RunCycle(MAX_OUTSTANDING, explains=False)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster. nodes: what each has. waiting: so many pods wait, and all nodes are full; 0: half of each is free."""

    name: str
    nodes: Sequence[dict[str, str]]
    tenants: int
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """The median of some rounds, in milliseconds."""

    case: str
    change: str
    rounds: int
    snapshot: float
    cycle: float
    assume: float
    all: float


def make_google_nodes(part: float = 1.0) -> list[dict[str, str]]:
    """Return what each of the servers of Google's trace has. part: of them."""
    return [
        {"cpu": f"{cpu * LARGEST_CPU:.0f}", "memory": f"{memory * LARGEST_GIB:.0f}Gi", "pods": "110"}
        for count, cpu, memory in GOOGLE_SHAPES
        for _ in range(max(1, round(count * part)))
    ]


def list_cases(part: float = 1.0) -> list[Case]:
    """Return the clusters. part: of their nodes, tenants and pods."""
    some, many, google = round(1_000 * part), round(5_000 * part), make_google_nodes(part)
    return [
        Case(f"{some:,} nodes, {many:,} classes wait", [NODE] * some, max(2, round(40 * part)), many),
        Case(f"{many:,} nodes, none waits", [NODE] * many, max(2, round(900 * part))),
        Case(f"{len(google):,} nodes, none waits", google, max(2, round(900 * part))),
    ]


class World:
    """A cluster of a case, whose waiting pods were all decided about.

    _full: whether every CPU is taken; then small pods ask for none.
    """

    def __init__(self, case: Case, policy: str, *, guided: bool = False) -> None:
        self._case = case
        self._cluster, self._decider = Cluster(), Decider()
        self._cluster.cache.set_policy(PolicySettings(policy))
        self._full = case.waiting > 0
        self._number = 0
        self._cluster.add_nodes(*(make_node(f"n{n}", allocatable=each) for n, each in enumerate(case.nodes)))
        for n in range(2 * len(case.nodes)):
            self._apply(self._make_large(n))
        for n in range(case.waiting):
            self._apply(self._make_waiting(n))
        if guided:
            self._cluster.cache.set_targets(self._make_targets(POLICIES[policy].mechanism or ""))
        for _ in range(3):
            assert not self.decide()[1]
        gc.unfreeze()  # the world before
        freeze_heap()

    def _make_targets(self, mechanism: str) -> Targets:
        """Return targets by which all tenants hold equal parts of each class of nodes of one size."""
        sizes = {tuple(sorted(node.items())): n for n, node in reversed([*enumerate(self._case.nodes)])}
        index = {size: place for place, size in enumerate(sorted(sizes, key=sizes.__getitem__))}
        class_of = {f"n{n}": index[tuple(sorted(node.items()))] for n, node in enumerate(self._case.nodes)}
        names = tuple(f"n{sizes[size]}" for size in index)
        tenants = [f"ns/t{n}" for n in range(self._case.tenants)]
        part = 1 / len(tenants)
        by_class = dict.fromkeys(tenants, (part / len(names),) * len(names))
        return Targets(mechanism, ("cpu", "memory"), dict.fromkeys(tenants, (part, part)), names, class_of, by_class)

    def _apply(self, pod: Json) -> None:
        self._cluster.cache.pods.apply(read_pod(pod))

    def _delete(self, pod: Json) -> None:
        self._cluster.cache.pods.delete(read_pod(pod))

    def _make(self, name: str, tenant: int, requests: dict[str, str], node: str | None = None) -> Json:
        namespace = f"t{tenant % self._case.tenants}"
        return make_pod(name, namespace=namespace, requests=requests, node=node, phase="Running" if node else "Pending")

    def _make_large(self, number: int) -> Json:
        """Return one of the two pods that run on each node: half of it, or a quarter where none waits."""
        place = number % len(self._case.nodes)
        cpu = 1_000 * int(self._case.nodes[place]["cpu"]) // (2 if self._full else 4)
        return self._make(f"r{number}", number, {"cpu": f"{cpu}m", "memory": "1Gi"}, f"n{place}")

    def _make_waiting(self, number: int) -> Json:
        return self._make(f"w{number}", number, {"cpu": f"{1_000 + number}m", "memory": "1Gi"})

    def _make_small(self, number: int, node: str | None = None) -> Json:
        requests = {"memory": f"{64 + 8 * (number % SMALL_KINDS)}Mi"}
        return self._make(f"s{number}", number, requests if self._full else {"cpu": "100m", **requests}, node)

    def decide(self) -> tuple[tuple[float, float, float], list[Bind]]:
        """Decide as the loop does; return milliseconds of snapshot, cycle and assumptions, and what was decided."""
        cache, times = self._cluster.cache, [time.process_time()]
        snapshot = cache.build_snapshot()
        times.append(time.process_time())
        report = self._decider.decide(snapshot, cache.settings, 0.0, ORDER)
        times.append(time.process_time())
        assert all(cache.assume(bind.task.uid, bind.server) for bind in report.bindings)
        times.append(time.process_time())
        cache.note_waits(report.waits)
        snapshot_ms, cycle_ms, assume_ms = (1_000.0 * (end - start) for start, end in pairwise(times))
        return (snapshot_ms, cycle_ms, assume_ms), list(report.bindings)

    def have_pod_come(self) -> Iterator[tuple[str, tuple[float, float, float]]]:
        """Have a small pod come, which is bound, and end."""
        self._number += 1
        self._apply(self._make_small(self._number))
        times, (bind,) = self.decide()
        yield COMES, times
        self._apply(self._make_small(self._number, bind.server))
        self.decide()
        self._delete(self._make_small(self._number, bind.server))
        if self._full:  # else nothing waits, and the loop decides nothing
            times, _ = self.decide()
            yield ENDS, times

    def have_large_end(self) -> Iterator[tuple[str, tuple[float, float, float]]]:
        """Have a large pod end, whose room others take, and put all back."""
        self._number += 1
        number = self._number % len(self._case.nodes)
        self._delete(self._make_large(number))
        times, bindings = self.decide()
        assert bindings
        yield ALL_FIT, times
        for bind in bindings:
            self._delete(self._make_waiting(int(bind.task.uid.removeprefix("uid-w"))))
        self._apply(self._make_large(number))
        for bind in bindings:
            self._apply(self._make_waiting(int(bind.task.uid.removeprefix("uid-w"))))
        assert not self.decide()[1]


def measure(case: Case, rounds: int, policy: str = DEFAULT_POLICY, *, guided: bool = False) -> Iterator[Row]:
    """Yield the rows of a case. policy: decides. guided: there are targets."""
    world, found = World(case, policy, guided=guided), dict[str, list[tuple[float, float, float]]]()
    happenings: list[Callable[[], Iterator[tuple[str, tuple[float, float, float]]]]] = [world.have_pod_come]
    happenings += [world.have_large_end] if case.waiting else []
    for happen in happenings:
        for _ in range(rounds):
            for change, times in happen():
                found.setdefault(change, []).append(times)
    for change, all_times in found.items():
        whole = [(*times, sum(times)) for times in all_times]
        snapshot, cycle, assume, together = (round(statistics.median(part), 3) for part in zip(*whole, strict=True))
        yield Row(case.name, change, rounds, snapshot, cycle, assume, together)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a row for each case and change, and write the numbers where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often each change happens (200)")
    parser.add_argument("--only", type=int, choices=(0, 1, 2), nargs="+", default=(0, 1, 2), help="of the clusters")
    parser.add_argument("--policy", choices=list(POLICIES), default=DEFAULT_POLICY, help=f"decides ({DEFAULT_POLICY})")
    parser.add_argument("--guided", action="store_true", help="there are targets, as if solved for")
    parser.add_argument("--operator", metavar="PATH", help="the folder of the packages of another version")
    parser.add_argument("--output", type=Path, help="write the numbers here, too")
    options = parser.parse_args(arguments)
    rows, cases = [], list_cases()
    print(f"{'cluster':34} {'change':46} {'snapshot':>8} {'cycle':>8} {'assume':>8} {'all (ms)':>8}")
    for n in options.only:
        for row in measure(cases[n], options.rounds, options.policy, guided=options.guided):
            rows.append(row)
            figures = (row.snapshot, row.cycle, row.assume, row.all)
            print(f"{row.case:34} {row.change:46} " + " ".join(f"{each:8.3f}" for each in figures), flush=True)
    if options.output:
        about: Json = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        about |= {"rounds": options.rounds, "policy": options.policy, "guided": options.guided}
        about |= {"machine": describe_machine(), "versions": describe_versions()}
        text = json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
