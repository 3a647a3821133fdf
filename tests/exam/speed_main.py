"""The order of things: a control plane for each case, on which both schedulers play it in turn."""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from exam.cases import PLAIN, Case, keeps_nodes, read_chosen
from exam.speed_report import LARGE_RESULTS, PAGE, RESULTS, find_version, list_cases, render_page, render_table
from exam.steps import Measured, Player
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from localplane.tools import DEFAULT, Tools, ensure_tools, find_module_folder
from perf.contenders import NAMESPACE, OURS, Chart, Fairbind, KubeScheduler, Scheduler
from perf.machine import describe_machine, describe_versions
from perf.main import SERVICE_ACCOUNT, YOUNG_OBJECTS, make_own_kubeconfig, say
from perf.measure import CpuMeter, CpuUse, wait_quiet
from perf.plane import StillPlane

LEAST_ROUNDS, MOST_ROUNDS, LEAST_PODS = 2, 8, 1_000
"""A case is played until each scheduler had so many measured pods, within these bounds: few pods take a moment."""
SETTLE_SECONDS = 20.0
MODULE = "exam"

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the cases that the command line asks for, print the table and write the result."""
    options = parse(arguments)
    if options.render:
        write_page()
        return
    tools = ensure_tools((*DEFAULT, "kube-scheduler"))
    cases = list(
        read_chosen(
            find_module_folder(MODULE, "k8s.io/kubernetes"), options.only, small=options.small, large=options.large
        )
    )
    result: Json = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "runs": [],
    }
    if options.renew:
        check_renewable(read(options.output), result)
    started = time.monotonic()
    for case in cases:
        result["runs"] += play_case(tools, case, options.rounds or int(options.small or options.large))
        result["seconds"] = round(time.monotonic() - started)
        write(options, result)
    print(render_table(result))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="speed.py", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases with this in their name; writes no page")
    parser.add_argument("--renew", action="store_true", help="with --only: put these cases into the recorded result")
    parser.add_argument("--large", action="store_true", help="5,000 nodes, one round; a result of its own")
    parser.add_argument("--small", action="store_true", help="a few nodes and one round: shows only that it works")
    parser.add_argument(
        "--rounds",
        type=int,
        default=0,
        help=f"rounds of both, in alternating order (2, more until {LEAST_PODS:,} pods)",
    )
    parser.add_argument("--output", type=Path, help="where the raw result goes")
    parser.add_argument("--render", action="store_true", help="only make the page from the raw results")
    options = parser.parse_args(arguments)
    options.output = options.output or (LARGE_RESULTS if options.large else RESULTS)
    if options.renew and (options.small or not options.only):
        parser.error("--renew is for some cases as they are: name them with --only, without --small")
    if options.renew and not options.output.exists():
        parser.error(
            f"--renew puts cases into a recorded result, and there is none at {options.output}: play all first"
        )
    return options


def write(options: argparse.Namespace, result: Json) -> None:
    """Write what has been measured so far, and the page where it is the published result.

    A part of the cases goes into the published result only by `renew`.
    """
    if options.renew:
        result = renew(read(options.output), result)
    elif options.output in {RESULTS, LARGE_RESULTS} and (options.only or options.small):
        return
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.output in {RESULTS, LARGE_RESULTS}:
        write_page()


def write_page() -> None:
    """Make the page from the recorded results."""
    large = read(LARGE_RESULTS) if LARGE_RESULTS.exists() else None
    PAGE.write_text(render_page(read(RESULTS), large), encoding="utf-8")


def read(path: Path) -> Json:
    """Return a recorded result."""
    result: Json = json.loads(path.read_text(encoding="utf-8"))
    return result


def play_case(tools: Tools, case: Case, rounds: int) -> list[Json]:
    """Let both schedulers play a case on one API server, in alternating order; return what each run gave.

    rounds: 0 for as many as `compute_rounds` says.
    """
    with StillPlane(tools) as plane:
        plane.install_chart({"operator": {"enabled": False}})
        kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)
        chart = Chart(plane)
        contenders: list[Scheduler] = [
            Fairbind(chart, kubeconfig, plane.logs("fairbind")),
            KubeScheduler(chart, plane),
        ]
        return uvloop.run(_play_rounds(plane, case, contenders, rounds))


async def _play_rounds(plane: StillPlane, case: Case, contenders: Sequence[Scheduler], rounds: int) -> list[Json]:
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)
    runs: list[Json] = []
    turn, most = 0, rounds or LEAST_ROUNDS
    api = ApiClient(load_credentials(make_own_kubeconfig(plane)))
    player: Player | None = None
    try:
        while turn < most:
            for contender in contenders if turn % 2 == 0 else contenders[::-1]:
                if player is not None:
                    await player.clear(keeps_nodes=keeps_nodes(case))
                nodes = {} if player is None else player.nodes
                player = Player(api, f"{contender.name[0]}{turn}", contender.scheduler, nodes)
                await player.prepare(case)
                await wait_quiet(plane.running(), timeout_seconds=SETTLE_SECONDS)
                measured, use = await _play_turn(player, case, contender, plane)
                runs.append(describe(case, contender.name, turn, measured, use))
                rates = ", ".join(f"{part.rate:.0f}/s ({part.bound:,} of {part.pods:,})" for part in measured)
                say(f"{case.name}, round {turn + 1}: {contender.name}: {rates}")
            turn += 1
            most = rounds or compute_rounds(sum(part["pods"] for part in runs[0]["parts"]))
    finally:
        await api.close()
    return runs


async def _play_turn(
    player: Player, case: Case, contender: Scheduler, plane: StillPlane
) -> tuple[list[Measured], CpuUse]:
    """Let a scheduler play a case; return what it gave, and what all programs took of the processors meanwhile."""
    await contender.start()
    try:
        async with player:
            meter = CpuMeter({**plane.running(), **contender.pids})
            measured = await player.play(case)
            return measured, meter.read()
    finally:
        await contender.stop()


def describe(case: Case, contender: str, turn: int, measured: Sequence[Measured], use: CpuUse) -> Json:
    """Return a run as JSON."""
    parts = [
        {
            "pods": part.pods,
            "bound": part.bound,
            "seconds": round(part.seconds, 3),
            "spent": {
                name: {"seconds": round(spent.seconds, 3), "bound": spent.bound} for name, spent in part.spent.items()
            },
        }
        for part in measured
    ]
    numbers = {"numbers": dict(case.numbers)} if case.numbers else {}
    return {
        "case": case.name,
        "workload": case.workload,
        **numbers,
        "contender": contender,
        "turn": turn,
        "parts": parts,
        "cpu": asdict(use),
    }


def compute_rounds(pods: int) -> int:
    """Return in how many rounds a case with so many measured pods is played.

    >>> [compute_rounds(pods) for pods in (6_000, 1_000, 400, 100)]
    [2, 2, 3, 8]
    """
    return min(max(LEAST_ROUNDS, math.ceil(LEAST_PODS / max(pods, 1))), MOST_ROUNDS)


def check_renewable(recorded: Json, result: Json) -> None:
    """Raise ValueError where figures of a later run cannot stand beside recorded ones."""
    for name in ("machine", "versions"):
        before, after = ({**setting[name], OURS: ""} for setting in (recorded, result))
        if before != after:
            raise ValueError(f"recorded with another {name}, so play all cases: {before}, now {after}")


def renew(recorded: Json, result: Json) -> Json:
    """Return a recorded result with the cases of a later run of some in the place of theirs; each says when it ran.

    Where the plain case is among them, the earlier one stays for the cases that were measured beside it.
    """
    later = list_cases(result)
    runs = []
    for case in dict.fromkeys([*list_cases(recorded), *later]):
        runs += select_case(result if case in later else recorded, case)
    renewed = {case: {"date": result["date"], OURS: result["versions"][OURS]} for case in later}
    merged = {**recorded, "renewed": {**recorded.get("renewed", {}), **renewed}, "runs": runs}
    plains = {**recorded.get("plains", {}), find_version(recorded, PLAIN): select_case(recorded, PLAIN)}
    still = {find_version(merged, case) for case in list_cases(merged)} - {find_version(merged, PLAIN)}
    return {**merged, "plains": {version: plain for version, plain in plains.items() if version in still}}


def select_case(result: Json, case: str) -> list[Json]:
    """Return the runs of a case."""
    return [run for run in result["runs"] if run["case"] == case]
