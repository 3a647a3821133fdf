"""How long does the event loop stand still in a large cluster? `.venv/bin/python tests/perf/gaps.py --help`.

One whole operator runs in virtual time before an API server in memory (`tests/kube/assembled`). Each callback of its
loop is timed by the processor time that its thread takes, so neither the network nor other programs count; collections
of garbage do. Exact fair shares are left out: another process solves for them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import logging
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from cluster.builders import make_namespace, make_node, make_pod  # noqa: E402  the path comes first
from fairbind.kube.operator.surroundings import freeze_heap  # noqa: E402
from kube.assembled.apiserver import ApiServer, Request  # noqa: E402
from kube.assembled.processes import run_processes  # noqa: E402
from kube.assembled.replicas import Replica, Scene  # noqa: E402
from perf.machine import describe_machine, describe_versions  # noqa: E402
from perf.meter import Meter, metering  # noqa: E402

Json = dict[str, Any]
LARGE = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "200Gi", "pods": "110"}
SMALL = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
ZONES = 6
NAMESPACES = ("team", "other")
STANDBY_SECONDS, CALM_SECONDS = 90.0, 20.0
"""Virtual. In so much time all that is done at intervals has been done: overviews, audits, statuses, events."""
ALMOST_ALL = 0.95
"""Some nodes are full when the pods of a DaemonSet come."""


@dataclass(frozen=True, slots=True)
class Size:
    """pods: besides those of DaemonSets; waiting: of them. sets: DaemonSets in tenants' namespaces."""

    nodes: int
    pods: int
    sets: int
    waiting: int


class QuickServer(ApiServer):
    """Does not look at all pods for each binding."""

    def _check_room(self, who: str, key: str, node: str) -> None:
        del who, key, node

    def _check_writer(self, request: Request) -> None:
        del request


def make_nodes(count: int) -> Iterator[Json]:
    """Nodes of two sizes, with labels as those of a cloud provider."""
    for n in range(count):
        size = "large" if n % 3 == 0 else "small"
        labels = {
            "kubernetes.io/hostname": f"node-{n:05d}",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": size,
            "topology.kubernetes.io/zone": f"zone-{n % ZONES}",
            "topology.kubernetes.io/region": "region",
            "example.com/pool": f"pool-{n % 20}",
        }
        yield make_node(f"node-{n:05d}", allocatable=LARGE if size == "large" else SMALL, labels=labels)


def make_daemon_set(number: int, nodes: int, **fields: Any) -> Iterator[Json]:
    """A pod for each node, pinned to it as the controller of DaemonSets does it."""
    for n in range(nodes):
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{n:05d}"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        yield make_pod(
            f"daemon-{number}-{n:05d}",
            namespace=NAMESPACES[number % 2],
            requests={"cpu": "50m", "memory": "64Mi"},
            labels={"app": f"daemon-{number}"},
            affinity={"nodeAffinity": required},
            tolerations=[{"operator": "Exists"}],
            **fields,
        )


def make_bound_daemon_sets(size: Size) -> Iterator[Json]:
    """The pods of all DaemonSets, as another scheduler has bound them."""
    for number in range(size.sets):
        for n, pod in enumerate(make_daemon_set(number, size.nodes, phase="Running", scheduler="default-scheduler")):
            pod["spec"]["nodeName"] = f"node-{n:05d}"
            yield pod


def make_pods(name: str, count: int, nodes: int | None = None) -> Iterator[Json]:
    """Pods of a thousand kinds. nodes: on so many they run; None: they wait."""
    for n in range(count):
        running: dict[str, Any] = {} if nodes is None else {"node": f"node-{n % nodes:05d}", "phase": "Running"}
        yield make_pod(
            f"{name}-{n:06d}",
            namespace=NAMESPACES[n % 2],
            requests={"cpu": ("100m", "250m", "500m")[n % 3], "memory": ("256Mi", "1Gi", "2Gi")[n % 3]},
            labels={"app": f"app-{n % 500}"},
            **running,
        )


async def play(size: Size, meter: Meter) -> None:
    """Let an operator start, lead, decide and stand by, and let things happen to it; the meter has a phase of each."""
    scene = Scene(solves=False)
    server = scene.server = QuickServer()
    server.put("namespaces", *map(make_namespace, (*NAMESPACES, "fairbind-system")))

    async def pass_until_bound(pods: Sequence[Json], patience: float) -> None:
        server.put("pods", *pods)
        keys = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]
        least = ALMOST_ALL * len(keys)
        await scene.pass_until(lambda: sum(map(bool, map(server.find_node, keys))) >= least, patience, step=0.5)

    server.put("nodes", *make_nodes(size.nodes))
    server.put("pods", *make_bound_daemon_sets(size), *make_pods("run", size.pods - size.waiting, size.nodes))
    for kind in server.kinds.values():
        kind.history.clear()
    waiting = list(make_pods("wait", size.waiting))
    server.put("pods", *waiting)
    gc.collect()
    gc.freeze()  # what the server keeps is not the operator's to look through
    meter.begin("start, lists, first decisions")
    scene.replicas.append(Replica(server, 0, 0, solves=False, on_listed=freeze_heap))
    await pass_until_bound(waiting, 600.0)
    meter.begin(f"standing by for {STANDBY_SECONDS:.0f} s")
    await asyncio.sleep(STANDBY_SECONDS)
    meter.begin("100 pods come and are bound")
    await pass_until_bound(list(make_pods("later", 100)), 60.0)
    await asyncio.sleep(CALM_SECONDS)
    meter.begin("a label of a node changes")
    server.change("nodes", "node-00000", lambda node: node["metadata"]["labels"].update(new="label"))
    await asyncio.sleep(CALM_SECONDS)
    meter.begin("a node goes, another comes")
    server.delete("nodes", f"node-{size.nodes - 1:05d}")
    server.put("nodes", *itertools.islice(make_nodes(size.nodes + 1), size.nodes, None))
    await asyncio.sleep(CALM_SECONDS)
    meter.begin("a DaemonSet of our own comes")
    await pass_until_bound(list(make_daemon_set(size.sets, size.nodes - 1)), 900.0)
    await asyncio.sleep(CALM_SECONDS)
    meter.begin("the end")
    await scene.end()


def render(meter: Meter) -> str:
    """Return a table of the phases."""
    lines = [
        "| what happens | longest (ms) | above 20 ms | above 100 ms | above 1 s | all (s) |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for phase in meter.phases:
        above = " | ".join(f"{count:,}" for count in phase.above)
        lines.append(f"| {phase.name} | {phase.longest * 1e3:,.0f} | {above} | {phase.seconds:,.1f} |")
    return "\n".join(lines)


def find_too_long(meter: Meter, most: float) -> list[str]:
    """Return in words the phases with a callback that took longer than so many seconds."""
    return [f"{phase.name}: {phase.longest:.2f} s at a stretch" for phase in meter.phases if phase.longest > most]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, show a table and the longest callbacks; 1: one was too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=15_000)
    parser.add_argument("--pods", type=int, default=100_000, help="besides those of DaemonSets (100000)")
    parser.add_argument("--sets", type=int, default=20, help="DaemonSets in tenants' namespaces (20)")
    parser.add_argument("--waiting", type=int, default=2_000, help="so many of the pods wait (2000)")
    parser.add_argument("--most", type=float, default=math.inf, help="fail when a callback takes so many seconds")
    parser.add_argument("--output", type=Path, help="write the numbers here, too")
    options = parser.parse_args(arguments)
    size = Size(options.nodes, options.pods, options.sets, options.waiting)
    logging.disable(logging.CRITICAL)
    with metering() as meter:
        run_processes(play(size, meter))
    print(render(meter))
    for phase in meter.phases:
        if phase.where:
            print(f"{phase.name}: {phase.where}")
    if options.output:
        about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "size": asdict(size)}
        about |= {"machine": describe_machine(), "versions": describe_versions()}
        text = json.dumps({**about, "phases": [asdict(phase) for phase in meter.phases]}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")
    too_long = find_too_long(meter, options.most)
    for words in too_long:
        print(f"too long: {words}")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
