"""The long run: see `differential.py`."""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from differential import living
from differential.compare import Asked, Difference, ask_oracle, compare, compare_pod
from differential.generate import Features, Generator
from differential.oracle import Oracle, run_oracle
from differential.ours import Ours
from localplane.plane import ControlPlane
from localplane.tools import ensure_tools

SEQUENCE_LENGTH = 30
FEATURES = Features(spread=True, affinity=True, volumes=True)
MOST_SHOWN = 20
FIRST_SEQUENCE_SEED = 10_000_000


def draw_worlds(oracle: Oracle, seeds: Iterable[int]) -> Iterator[Asked]:
    """Yield the worlds of these seeds with the verdicts."""
    for seed in seeds:
        generator = Generator(seed, FEATURES)
        yield ask_oracle(oracle, generator.draw_world(seed, most_nodes=60, asked=4))


def play_sequence(oracle: Oracle, seed: int) -> Iterator[Difference]:
    """Yield where the two differ while pods are placed one after the other, each where fairbind may place it."""
    generator = Generator(FIRST_SEQUENCE_SEED + seed, FEATURES)
    world = generator.draw_world(seed, most_nodes=20, asked=0)
    pods = oracle.create(world.pods)
    oracle.judge({"nodes": world.nodes, "pods": pods, "namespaces": world.namespaces, **world.storage}, [])
    ours = Ours(world.nodes, world.namespaces, pods, world.storage)
    placed: list[dict[str, object]] = []
    steps = 0
    while steps < SEQUENCE_LENGTH:
        waiting = oracle.create([generator.draw_waiting()])
        if not waiting:
            continue
        steps += 1
        (pod,) = waiting
        (verdict,) = oracle.place(placed, [pod])
        opinion = ours.judge(pod)
        yield from compare_pod(seed, pod, world.nodes, pods, verdict, opinion)
        placed = []
        if opinion.feasible:
            bound = {**pod, "spec": {**pod["spec"], "nodeName": min(opinion.feasible)}}
            ours.place(bound)
            pods.append(bound)
            placed = [bound]


def main() -> int:
    """Compare, print what differs, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="how many pods (20000)")
    parser.add_argument("--sequences", type=int, default=200, help=f"sequences of {SEQUENCE_LENGTH} placements (200)")
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first world's seed")
    parser.add_argument("--live", type=int, default=0, help="instead, how many pods the living kube-scheduler is given")
    parser.add_argument("--output", type=Path, help="where the result goes")
    arguments = parser.parse_args()
    if arguments.live:
        return run_live(arguments.live, arguments.output)
    started = time.monotonic()
    worlds = cases = 0
    on_purpose, faults = Counter[str](), list[Difference]()
    plugins, feasible = Counter[str](), 0

    def take(differences: Iterator[Difference]) -> None:
        for difference in differences:
            if difference.why:
                on_purpose[difference.why] += 1
                continue
            faults.append(difference)
            if len(faults) <= MOST_SHOWN:
                print(difference, flush=True)

    with run_oracle() as oracle:
        for asked in draw_worlds(oracle, itertools.count(arguments.seed)):
            if cases >= arguments.cases:
                break
            worlds += 1
            take(compare(asked))
            cases += len(asked.waiting)
            for verdict in asked.verdicts:
                plugins.update({refusal.plugin for refusal in verdict.values() if refusal is not None})
                feasible += any(refusal is None for refusal in verdict.values())
        for number in range(arguments.sequences):
            take(play_sequence(oracle, number))
    result = {
        "day": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "first_seed": arguments.seed,
        "worlds": worlds,
        "cases": cases,
        "cases_with_a_node": feasible,
        "cases_with_a_refusal_by": dict(sorted(plugins.items())),
        "sequences": arguments.sequences,
        "placements_in_each": SEQUENCE_LENGTH,
        "faults": len(faults),
        "on_purpose": dict(sorted(on_purpose.items())),
        "seconds": round(time.monotonic() - started),
    }
    write_result(result, arguments.output)
    return 1 if faults else 0


def run_live(pods: int, output: Path | None) -> int:
    """Give pods to the living kube-scheduler of a control plane of our own; see `living.py`."""
    started = time.monotonic()
    seeds = range(living.FIRST_SEED, living.FIRST_SEED + -(-pods // living.PODS_OF_A_WORLD))
    tools = ensure_tools(("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "kube-scheduler"), print)
    with run_oracle() as oracle, ControlPlane(tools, scheduler=True) as plane:
        stage = living.Stage(plane)
        stage.set_up()
        tally = living.play(stage, oracle, seeds)
    for fault in tally.faults[:MOST_SHOWN]:
        print(fault)
    result = {
        "day": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "first_seed": seeds[0],
        "worlds": len(seeds),
        "cases": tally.cases,
        "bound": tally.bound,
        "cases_with_a_refusal_by": dict(sorted(tally.plugins.items())),
        "asked_again": tally.again,
        "faults": len(tally.faults),
        "on_purpose": dict(sorted(tally.on_purpose.items())),
        "seconds": round(time.monotonic() - started),
    }
    write_result(result, output)
    return 1 if tally.faults else 0


def write_result(result: Mapping[str, object], output: Path | None) -> None:
    """Print a result, and write it to a file."""
    text = json.dumps(result, indent=2)
    print(text)
    if output is not None:
        output.write_text(f"{text}\n", encoding="utf-8")
