"""The order of things: planes of each size, rounds in alternating order, results to a file and a table."""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import uvloop

from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.model.policy import DEFAULT_POLICY
from localplane.nodes import mixed_nodes
from localplane.plane import ControlPlane
from localplane.tools import DEFAULT, Tools, ensure_tools
from perf.carrying_out import Report, carry_out
from perf.cluster import create_tenants
from perf.contenders import (
    GATE_LIMIT,
    GROUPS,
    LIMIT,
    NAMESPACE,
    OURS,
    THEIRS,
    BareBinder,
    Chart,
    Fairbind,
    FairbindWithGroups,
    KubeScheduler,
    Scheduler,
)
from perf.machine import PROGRAMS, describe_machine, describe_versions
from perf.modes import BareOpener, ExtenderMode, GateMode
from perf.plane import StillPlane
from perf.report import PAGE, RESULTS, ROOT, render_page, render_tables
from perf.rounds import (
    Arrivals,
    Backlog,
    Cluster,
    Idle,
    Singles,
    removing_pods,
    run_arrivals,
    run_backlog,
    run_bare_binds,
    run_idle,
    run_singles,
)
from perf.volcano import PATH, PROGRAM, Volcano
from perf.workload import VOLCANO, assign_in_turn, make_pods

CYCLE = Path(__file__).with_name("cycle.py")
GOOGLE = Path(__file__).with_name("google.py")
SERVICE_ACCOUNT = "fairbind"
OWN_NAME = "fairbind-bench"
"""Namespace, service account and binding of the benchmark itself."""
YOUNG_OBJECTS = 50_000
BESIDE = (GROUPS, VOLCANO)
"""Contenders of which a whole run has none."""
UNPUBLISHED = ROOT / "build" / "benchmark.json"
"""Where the raw results of a run go that is not the whole one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. nodes: sizes, one control plane each; in_flight: of the bare binder and the bare opener.

    gate_pods, extender_pods: of the backlogs in these modes, where they are fewer; gate_pods also of the bare openings.
    singles: so many pods come one at a time. arrival_rate: pods a second; with it, only arrivals are measured, in all
    rounds, for all at this rate. arrival_pods: at most so many arrive. cycle_servers: sizes of the pure cycle;
    google_servers: with Google's servers. Empty: all. has_cycle: whether the pure cycle is measured. only_backlogs:
    neither arrivals, single pods nor idling are.
    """

    nodes: tuple[int, ...] = (1000, 5000)
    pods: int = 10_000
    rounds: int = 2
    in_flight: int = 128
    contenders: tuple[str, ...] = (OURS, THEIRS, GateMode.name, GATE_LIMIT, ExtenderMode.name, LIMIT)
    gate_pods: int = 10_000
    extender_pods: int = 300
    singles: int = 200
    idle_seconds: float = 30.0
    settle_seconds: float = 60.0
    arrival_rate: float | None = None
    arrival_pods: int | None = None
    cycle_servers: tuple[int, ...] = ()
    google_servers: tuple[int, ...] = ()
    has_cycle: bool = True
    only_backlogs: bool = False

    @property
    def arrival_rounds(self) -> int:
        """How many rounds of arrivals there are."""
        if self.only_backlogs:
            return 0
        return 1 if self.arrival_rate is None else self.rounds


SMALL = Plan(
    nodes=(200,),
    pods=500,
    rounds=1,
    extender_pods=100,
    singles=20,
    idle_seconds=2.0,
    settle_seconds=2.0,
    arrival_pods=100,
    cycle_servers=(10, 20),  # of all that is run here, large ones would take most of the processor's time
    google_servers=(100,),
)


@dataclass(slots=True)
class Figures:
    """All that has been measured so far. arrival_limits: of the bare binds, at fairbind's rate."""

    backlogs: list[Backlog] = field(default_factory=list)
    arrivals: list[Arrivals] = field(default_factory=list)
    arrival_limits: list[Arrivals] = field(default_factory=list)
    singles: list[Singles] = field(default_factory=list)
    idles: list[Idle] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the command line asks for."""
    options = parse_arguments(arguments)
    wanted = Plan(options.nodes, options.pods, options.rounds, options.in_flight)
    plan = replace(
        SMALL if options.small else wanted,
        contenders=options.only,
        arrival_rate=options.arrivals_at,
        only_backlogs=options.only_backlogs,
    )
    is_whole = plan == Plan()
    if not is_whole and not options.small:
        plan = replace(plan, has_cycle=False)

    def measure(date: str, output: Path) -> dict[str, Any]:
        for count in plan.nodes:
            assign_in_turn(make_pods(plan.pods, "check"), mixed_nodes(count))  # better now than in half an hour
        return run(plan, date, output)

    if not is_whole and options.output is None:
        options.output = UNPUBLISHED
    carry_out(options, Report(RESULTS, render_tables, write_page), measure, is_whole=is_whole)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    plan = Plan()
    description = "Compare fairbind with kube-scheduler, with bare bind calls and with bare openings of gates."
    parser = argparse.ArgumentParser(prog="bench.py", description=description)
    parser.add_argument("--small", action="store_true", help="200 nodes, 500 pods, one round: shows only that it works")
    parser.add_argument("--nodes", type=_parse_sizes, default=plan.nodes, metavar="N,N", help="sizes (1000,5000)")
    parser.add_argument("--pods", type=int, default=plan.pods, help="pods in every backlog (10000)")
    parser.add_argument("--rounds", type=int, default=plan.rounds, help="rounds, in alternating order (2)")
    parser.add_argument(
        "--in-flight", type=int, default=plan.in_flight, help="bare binds and openings at the same time (128)"
    )
    parser.add_argument(
        "--only",
        type=_parse_names,
        default=plan.contenders,
        metavar="NAME,NAME",
        help=f"leave others and the pure cycle out ({', '.join((*plan.contenders, *BESIDE))})",
    )
    parser.add_argument(
        "--arrivals-at", type=float, metavar="RATE", help="measure only arrivals, so many pods a second"
    )
    parser.add_argument("--only-backlogs", action="store_true", help="measure neither arrivals nor idling")
    parser.add_argument(
        "--output",
        type=Path,
        help="where the raw results go (of a whole run docs/benchmarks/results/DATE.json, else build/benchmark.json)",
    )
    parser.add_argument("--render", type=Path, metavar="JSON", help="only make the page from raw results")
    return parser.parse_args(arguments)


def run(plan: Plan, date: str, output: Path) -> dict[str, Any]:
    """Measure everything and return the raw results; they are in the file after each turn, so a later one may fail."""
    started = time.monotonic()
    has_volcano = VOLCANO in plan.contenders
    tools = ensure_tools((*DEFAULT, "kube-scheduler", *([PROGRAM] if has_volcano else [])))
    results: dict[str, Any] = {
        "date": date,
        "machine": describe_machine(),
        "versions": describe_versions({**PROGRAMS, "Volcano": (VOLCANO, PATH)} if has_volcano else PROGRAMS),
        "plan": asdict(plan),
        "cycle": measure_cycle(plan) if plan.has_cycle else {"figures": []},
    }
    figures = Figures()

    def keep() -> None:
        results.update({**asdict(figures), "seconds": round(time.monotonic() - started)})
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    for count in plan.nodes:
        measure_size(tools, plan, count, figures, keep)
    return results


def measure_cycle(plan: Plan) -> dict[str, Any]:
    """Measure the pure cycle, without any API, by the programs beside this one."""
    sizes = [str(size) for size in plan.cycle_servers or sorted({100, *plan.nodes})]
    extra = ["--policies", DEFAULT_POLICY, "--servers", *sizes, "--repeats", str(plan.rounds)]
    google = ["--repeats", str(plan.rounds)]
    if plan.google_servers:
        own_sizes = [str(size) for size in plan.google_servers]
        google += ["--servers", *own_sizes, "--arrival-servers", *own_sizes]
    say("the pure cycle, without an API")
    return {**run_program(CYCLE, extra), "google": run_program(GOOGLE, google)}


def run_program(program: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run a program of this folder and return the figures that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        subprocess.run([sys.executable, program, "--json", file, *options], check=True, stdout=subprocess.DEVNULL)
        figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return figures


def measure_size(tools: Tools, plan: Plan, count: int, figures: Figures, keep: Callable[[], None]) -> None:
    """Measure all contenders on a fresh control plane with so many nodes. keep: called when there are new figures."""
    with StillPlane(tools) as plane:
        say(f"{count:,} nodes: creating them")
        nodes = mixed_nodes(count)
        plane.add_nodes(nodes)
        plane.wait_nodes_ready(timeout_seconds=900)
        uvloop.run(_measure_contenders(plane, nodes, plan, figures, keep))


async def _measure_contenders(
    plane: ControlPlane, nodes: Sequence[Any], plan: Plan, figures: Figures, keep: Callable[[], None]
) -> None:
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)
    chart = Chart(plane)
    await chart.set_mode("bind")
    api = ApiClient(load_credentials(make_own_kubeconfig(plane)))
    cluster = Cluster(api, plane.running(), nodes, plan.settle_seconds)
    contenders = [each for each in make_contenders(plane, chart, plan) if each.name in plan.contenders]
    try:
        await create_tenants(api)
        for turn in range(plan.rounds if plan.arrival_rate is None else 0):
            for contender in contenders if turn % 2 == 0 else contenders[::-1]:
                is_last = turn == plan.rounds - 1
                await _measure_turn(cluster, contender, plan, turn, figures, is_last=is_last)
                keep()
        for turn in range(plan.arrival_rounds):
            for contender in contenders if turn % 2 == 0 else contenders[::-1]:
                if not isinstance(contender, BareOpener):
                    await _measure_arrivals(cluster, contender, plan, turn, figures)
                    keep()
    finally:
        await api.close()


def make_contenders(plane: ControlPlane, chart: Chart, plan: Plan) -> list[Scheduler | BareBinder]:
    """Return all that can be compared."""
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
    return [
        Fairbind(chart, kubeconfig, plane.logs(OURS)),
        FairbindWithGroups(chart, kubeconfig, plane.logs(OURS)),
        Volcano(plane, chart),
        KubeScheduler(chart, plane),
        GateMode(plane, chart, kubeconfig),
        BareOpener(plane, chart, kubeconfig, plan.in_flight),
        ExtenderMode(plane, chart, kubeconfig),
        BareBinder(chart, kubeconfig, plan.in_flight),
    ]


def make_own_kubeconfig(plane: ControlPlane) -> Path:
    """Make a service account with all rights, for the benchmark itself, and return its kubeconfig."""
    client = plane.client
    client.post("/api/v1/namespaces", {"metadata": {"name": OWN_NAME}})
    client.post(f"/api/v1/namespaces/{OWN_NAME}/serviceaccounts", {"metadata": {"name": OWN_NAME}})
    binding = {
        "metadata": {"name": OWN_NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": OWN_NAME, "namespace": OWN_NAME}],
    }
    client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    return plane.service_account_kubeconfig(OWN_NAME, OWN_NAME)


async def _measure_turn(
    cluster: Cluster, contender: Scheduler | BareBinder, plan: Plan, turn: int, figures: Figures, *, is_last: bool
) -> None:
    """Measure one contender on a backlog, and in the last round also how it idles on the largest cluster."""
    count = len(cluster.nodes)
    run_name = f"{make_slug(contender)}-{turn}"
    fewer = {GateMode.name: plan.gate_pods, GATE_LIMIT: plan.gate_pods, ExtenderMode.name: plan.extender_pods}
    pods = min(plan.pods, fewer.get(contender.name, plan.pods))
    where = f"{count:,} nodes, round {turn + 1}: {contender.name}"
    if isinstance(contender, BareBinder):
        async with removing_pods(cluster, None, run_name):
            figures.backlogs.append(await run_bare_binds(cluster, contender, run_name, turn, plan.pods))
            _report_backlog(where, figures.backlogs[-1])
        return
    async with removing_pods(cluster, contender, run_name):
        backlog = await run_backlog(cluster, contender, run_name, turn, pods)
        figures.backlogs.append(backlog)
        _report_backlog(where, backlog)
        idles = not plan.only_backlogs and not isinstance(contender, BareOpener)
        if is_last and idles and count == max(plan.nodes):
            figures.idles.append(await run_idle(cluster, contender, backlog.bound, plan.idle_seconds))
            say(f"{where}: idle {figures.idles[-1].cores:.1%} of a core")


async def _measure_arrivals(
    cluster: Cluster, contender: Scheduler | BareBinder, plan: Plan, turn: int, figures: Figures
) -> None:
    """Measure one contender while pods come one at a time, then at half of its own rate; bare binds at fairbind's."""
    count = len(cluster.nodes)
    is_limit = isinstance(contender, BareBinder)
    paced_by = OURS if is_limit and OURS in plan.contenders else contender.name
    rates = [run.rate for run in figures.backlogs if (run.contender, run.nodes) == (paced_by, count)]
    rate = plan.arrival_rate or sum(rates) / len(rates) / 2
    run_name = f"{make_slug(contender)}-a{turn}"
    await contender.prepare(cluster.api)
    async with removing_pods(cluster, None if isinstance(contender, BareBinder) else contender, run_name):
        if not isinstance(contender, BareBinder):
            await contender.start()
            if plan.arrival_rate is None:
                await _measure_singles(cluster, contender, plan, figures)
        arrivals = await run_arrivals(cluster, contender, run_name, rate, plan.arrival_pods or plan.pods)
    (figures.arrival_limits if is_limit else figures.arrivals).append(arrivals)
    reached = (
        f"arriving at {arrivals.reached_rate:.0f}/s, p50 {arrivals.p50_seconds:.2f}, p99 {arrivals.p99_seconds:.2f} s"
    )
    say(f"{count:,} nodes: {contender.name}: {reached}")


async def _measure_singles(cluster: Cluster, contender: Scheduler, plan: Plan, figures: Figures) -> None:
    """Measure a running contender while one pod at a time comes."""
    run_name = f"{make_slug(contender)}-s"
    async with removing_pods(cluster, None, run_name):
        singles = await run_singles(cluster, contender, run_name, plan.singles)
    figures.singles.append(singles)
    reached = f"one pod at a time, p50 {singles.p50_seconds:.3f}, p99 {singles.p99_seconds:.3f} s"
    say(f"{singles.nodes:,} nodes: {contender.name}: {reached}")


def make_slug(contender: Scheduler | BareBinder) -> str:
    """Return the contender's name as a part of names of objects."""
    return contender.name.replace(" ", "-")


def _report_backlog(where: str, backlog: Backlog) -> None:
    say(f"{where}: backlog of {backlog.pods:,}, {backlog.bound:,} bound, {backlog.rate:.0f}/s")


def write_page(results: dict[str, Any], source: Path) -> None:
    """Write the page that people read."""
    PAGE.write_text(render_page(results, source.name), encoding="utf-8")
    print(f"page: {PAGE}")


def say(text: str) -> None:
    print(f"{datetime.now().astimezone():%H:%M:%S} {text}", flush=True)


def _parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - {*Plan().contenders, *BESIDE}:
        raise argparse.ArgumentTypeError(f"no contender is called {', '.join(sorted(unknown))}")
    return names
