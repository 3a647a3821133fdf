"""Draws faults, applies them one after the other, and writes a line of JSON about each.

Most of a fault's time is waiting: until it is over, until a lease has run out, until a status is written. So several
worlds, each with a control plane of its own, can share one machine (`--worlds`). Each is a process that appends its
lines to the same file. Results of several runs can be in one file (`--grow`): each begins with a line about itself.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3

from e2e.api import ApiError
from e2e.checks import View, is_held
from e2e.modes import BIND, MODES
from e2e.operators import LEASE
from e2e.stalls import Stalls
from faults.judge import BOUND, OPENED
from faults.kinds import KINDS, SCHEDULER_KINDS
from faults.plan import draw
from faults.report import read_lines, write_page
from faults.world import NAMESPACES, TENANT_WEIGHTS, WATCHED, World
from localplane.tools import DEFAULT, ensure_tools
from recorded import ROOT, read_commit

if TYPE_CHECKING:
    from faults.plan import Draw

STEADY_SECONDS = 30.0
"""Everything must be as ever so long after a fault, and the machine's own stalls."""
PATIENCE_SECONDS = 180.0
LOOK_SECONDS = 0.2
MOST_MISSING = 5
SHORT = 50
RESULTS = ROOT / "docs" / "reliability" / "results"


@dataclass(slots=True)
class Outcome:
    """What became of a fault. at: seconds since the first one began. seconds: for how long it lasted, its end included.

    steady: seconds from its end until all was as ever, None when that never came; stalls: those of the machine in
    between. waited: for so many of these seconds an operator that could run waited for a processor, by the kernel's
    account; the longer of both operators. found: what must not be. changes: how often the lease changed hands. missing:
    what was not as ever to the last, where that took longer than `STEADY_SECONDS`. binds, opened: how many pods were
    bound, and how many gates were opened, meanwhile. groups: how many groups stood
    at the end. torn: how many were torn then, or for too long.
    """

    number: int
    kind: str
    settings: list[dict[str, object]]
    at: float
    seconds: float
    steady: float | None
    stalls: float
    binds: int
    changes: int
    found: list[str]
    verdict: str = ""
    waited: float = 0.0
    missing: list[str] = field(default_factory=list)
    opened: int = 0
    groups: int = 0
    torn: int = 0

    def judge(self, notice: float) -> None:
        """Say it in a word. notice: seconds in which nobody can know of the fault."""
        excused = self.stalls + self.waited
        if self.found:
            self.verdict = "broken"
        elif self.steady is None:
            self.verdict = "never steady"
        else:
            self.verdict = "held" if self.steady <= STEADY_SECONDS + notice + excused else "late"


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=SHORT, help=f"how many faults ({SHORT})")
    parser.add_argument("--seed", type=int, default=None, help="what they are drawn from; drawn itself when not given")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one, to repeat some of a seed")
    parser.add_argument("--mode", choices=MODES, default=BIND, help="the operators' (bind)")
    parser.add_argument("--short", action="store_true", help="faults of few seconds, as CI has them")
    parser.add_argument("--only", metavar="TEXT", default="", help="kinds that have this in their name")
    parser.add_argument("--other", metavar="PATH", help="where the packages of another version are, for both at once")
    parser.add_argument("--minutes", type=float, default=None, help="begin no further fault after so long")
    parser.add_argument("--worlds", type=int, default=1, help="so many control planes at once, each with its share (1)")
    parser.add_argument("--grow", action="store_true", help="add to the lines those of the seed that are not there yet")
    parser.add_argument("--output", type=Path, help="where the lines go; docs/reliability/results by default")
    parser.add_argument("--page", action="store_true", help="write docs/reliability/faults.md of the lines, too")
    parser.add_argument("--world", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--numbers", type=parse_numbers, default=None, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Do what the command line says; return the exit status: 1 when something did not hold."""
    arguments = make_parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    output = arguments.output or RESULTS / "faults.jsonl"
    if arguments.world is not None:
        run_world(arguments, output)
        return 0
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 31)
    also = (
        f" MODE={arguments.mode}"
        + " SHORT=1" * arguments.short
        + (f" OTHER={arguments.other}" if arguments.other else "")
    )
    print(f"to try the same once more: make faults N={arguments.count} SEED={arguments.seed}{also}", flush=True)
    outcomes, ended_well = run(arguments, output)
    if arguments.page:
        write_page(output)
    failed = [outcome for outcome in outcomes if outcome["verdict"] != "held"]
    print(f"{len(outcomes)} faults, {len(failed)} did not hold", flush=True)
    return 0 if outcomes and not failed and ended_well else 1


def parse_numbers(text: str) -> list[int]:
    """Return the numbers of a list with commas."""
    return [int(number) for number in text.split(",")]


def run(arguments: argparse.Namespace, output: Path) -> tuple[list[dict[str, object]], bool]:
    """Apply the faults and return what became of them, and whether each world came to its end."""
    output.parent.mkdir(parents=True, exist_ok=True)
    grows = arguments.grow and output.exists()
    done = find_done(output, arguments.seed, arguments.mode) if grows else set()
    wanted = range(arguments.first, arguments.first + arguments.count)
    numbers = [number for number in wanted if number not in done]
    with output.open("ab" if grows else "wb") as lines:
        lines.write(json.dumps(make_head(arguments)).encode() + b"\n")
        begin = lines.tell()
    tools = ensure_tools(DEFAULT)  # built once, before worlds ask for them
    del tools
    shares = [numbers[index :: arguments.worlds] for index in range(arguments.worlds)]
    worlds = [start_world(index, share, arguments, output) for index, share in enumerate(shares) if share]
    try:
        statuses = [world.wait() for world in worlds]
    finally:
        for world in worlds:
            world.terminate()
        for world in worlds:
            world.wait()
    outcomes = [json.loads(line) for line in output.read_bytes()[begin:].splitlines()]
    return outcomes, not any(statuses)


def find_done(output: Path, seed: int, mode: str) -> set[int]:
    """Return the numbers of the faults of a seed that are there in this mode."""
    return {line["number"] for line in read_lines(output)[1] if (line["seed"], line["mode"]) == (seed, mode)}


def make_head(arguments: argparse.Namespace) -> dict[str, object]:
    """Return what is said of a run: all that its draw depends on, and of which code it is."""
    return {
        "seed": arguments.seed,
        "mode": arguments.mode,
        "day": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "short": arguments.short,
        "only": arguments.only,
        "commit": read_commit(),
        "other": (read_commit(Path(arguments.other)) or "unknown") if arguments.other else "",
        "worlds": arguments.worlds,
    }


def start_world(index: int, numbers: list[int], arguments: argparse.Namespace, output: Path) -> subprocess.Popen[bytes]:
    """Start a process that applies the faults of these numbers in a world of its own."""
    command = [sys.executable, sys.argv[0], f"--world={index}", f"--numbers={','.join(map(str, numbers))}"]
    command += [f"--seed={arguments.seed}", f"--output={output}", f"--only={arguments.only}"]
    command += [f"--mode={arguments.mode}"]
    command += ["--short"] if arguments.short else []
    command += [] if arguments.other is None else [f"--other={arguments.other}"]
    command += [] if arguments.minutes is None else [f"--minutes={arguments.minutes}"]
    return subprocess.Popen(command)


def run_world(arguments: argparse.Namespace, output: Path) -> None:
    """Apply the faults of one world and append a line about each."""
    begin = time.monotonic()
    seed = arguments.seed
    with (
        World(ensure_tools(DEFAULT), seed + 1000 * arguments.world, mode=arguments.mode, code=arguments.other) as world,
        output.open("ab", buffering=0) as lines,
    ):
        without = find_impossible(world)
        for name in sorted(without):
            print(f"not tried here: {name}", flush=True)
        without |= {kind.name for kind in KINDS if arguments.only not in kind.name}
        wait_steady(world)
        for number in arguments.numbers:
            if arguments.minutes is not None and time.monotonic() - begin > arguments.minutes * 60:
                break
            drawn = draw(seed, number, is_short=arguments.short, without=without)
            outcome = try_fault(world, drawn, begin)
            lines.write(json.dumps(asdict(outcome)).encode() + b"\n")  # at once, as other worlds write here, too
            print(describe(outcome), flush=True)
            if outcome.verdict != "held":
                keep_logs(world, output, f"{seed}-{number}")
            if outcome.steady is None:
                start_anew(world)


def find_impossible(world: World) -> set[str]:
    """Return the kinds of faults that cannot be brought about on this machine, or in this mode."""
    impossible = set() if world.has_clock_steps else {"clock stepped"}
    impossible |= set(SCHEDULER_KINDS) if world.mode == BIND else set()
    return impossible if world.code else impossible | {"two versions at once"}


def find_what_stays_broken(world: World) -> list[str]:
    """Return pods that are where their constraints do not let them be.

    Pods, claims and volumes are read one after the other while all of them come and go. What is seen twice is true.
    """
    first = world.find_broken(View.take(world.api))
    again = set(world.find_broken(View.take(world.api))) if first else set()
    return [words for words in first if words in again]


def try_fault(world: World, drawn: Draw, begin: float) -> Outcome:
    """Apply a fault, wait until all is as ever, and judge what happened meanwhile."""
    began_at = time.monotonic()
    done_before, leases_before = Counter(deed.what for deed in world.judge.deeds), len(world.judge.leases)
    with contextlib.ExitStack() as stack:
        for fault in drawn.faults:
            stack.enter_context(fault.kind.apply(world, fault.settings))
        time.sleep(drawn.seconds)
    lasted = time.monotonic() - began_at
    waits_before = {replica.name: replica.read_wait() for replica in world.replicas}
    with Stalls(lambda: world.api.exists(LEASE)) as stalls:
        found = restart_ended(world, drawn)
        steady, missing = wait_steady(world)
    waits = [compute_wait(replica.read_wait(), waits_before[replica.name]) for replica in world.replicas]
    torn = world.torn.find()
    found += world.judge.judge() + torn
    found += View.take(world.api).find_overcommitted() + find_what_stays_broken(world)
    done = Counter(deed.what for deed in world.judge.deeds) - done_before
    outcome = Outcome(
        number=drawn.number,
        kind=drawn.name,
        settings=[fault.settings for fault in drawn.faults],
        at=round(began_at - begin, 1),
        seconds=round(lasted, 2),
        steady=None if steady is None else round(steady, 2),
        stalls=round(stalls.seconds, 2),
        binds=done[BOUND],
        changes=world.judge.count_changes(leases_before),
        found=found,
        waited=round(max(waits), 2),
        opened=done[OPENED],
        groups=len(world.torn.whole),
        torn=len(torn),
    )
    outcome.missing = missing[:MOST_MISSING] if steady is None or steady > STEADY_SECONDS else []
    outcome.judge(max(fault.kind.notice for fault in drawn.faults))
    return outcome


def compute_wait(after: tuple[int, float], before: tuple[int, float]) -> float:
    """Return for how long a process waited between two readings; the later one alone counts for a new process."""
    return after[1] - before[1] if after[0] == before[0] else after[1]


def restart_ended(world: World, drawn: Draw) -> list[str]:
    """Start again who ended although nobody ended it, as its kubelet would, and say so."""
    found = []
    for replica in world.replicas:
        if not replica.is_running:
            status = replica.operator.process.returncode if replica.operator is not None else None
            found.append(f"operator {replica.name} ended with {status} during {drawn.name}")
            replica.end()
            replica.start()
    return found


def wait_steady(world: World) -> tuple[float | None, list[str]]:
    """Return after how many seconds all is as ever, None: never; and what was missing until then.

    Then pods are bound in each namespace, no pod waits that has room, new weights and settings are heeded, the Tenants'
    statuses count the pods that there are, and nothing of volumes is reserved for pods that are gone. The churn stands
    still meanwhile: else there would always be a pod whose room has just come to be.
    """
    began_at = time.monotonic()
    world.churn.pause()
    world.torn.begin()
    probes: dict[str, str] = {}
    changed: set[str] = set()
    missing: list[str] = []
    try:
        while time.monotonic() - began_at < PATIENCE_SECONDS:
            try:
                now = find_missing(world, probes, changed)
            except (ApiError, urllib3.exceptions.HTTPError) as error:
                now = [f"no answer: {error}"[:200]]
            if not now:
                return time.monotonic() - began_at, missing
            missing = now
            time.sleep(LOOK_SECONDS)
        return None, missing
    finally:
        for path in probes.values():
            world.remove(path)
        world.churn.go_on()


def find_missing(world: World, probes: dict[str, str], changed: set[str]) -> list[str]:
    """Return what is not as ever. probes: paths of the pods made for it, by namespace. changed: what has a new spec."""
    for namespace in NAMESPACES:
        if namespace not in probes:
            probes[namespace] = world.make_probe(namespace)
    for path in WATCHED:
        if path not in changed:
            world.change_spec(path)
            changed.add(path)
    view = View.take(world.api)
    waiting = world.find_forgotten(view)  # looked at each time, as it notes which groups are torn
    unbound = [path for path in probes.values() if not world.api.get(path)["spec"].get("nodeName")]
    if unbound:
        return [f"{path} is not bound" for path in unbound]
    unheeded = [f"the spec of {path} is not used" for path in WATCHED if not world.is_heeded(path)]
    miscounted = [f"the status of {name} miscounts its pods" for name in find_miscounted(world, view)]
    return [*unheeded, *miscounted] or [*waiting, *world.find_left_behind()]


def find_miscounted(world: World, view: View) -> list[str]:
    """Return the Tenants whose status tells of other pods than there are: the leader sees another cluster."""
    found = []
    for name in TENANT_WEIGHTS:
        pods = [pod for pod in view.pods if pod["metadata"]["namespace"] == name]
        counts = {"running": sum(map(is_held, pods)), "pending": sum(map(world.is_waiting, pods))}
        if (view.tenants[name].get("status") or {}).get("pods") != counts:
            found.append(name)
    return found


def start_anew(world: World) -> None:
    """Give the next fault a system that works."""
    for replica in world.replicas:
        replica.end()
        replica.start()
    wait_steady(world)


def keep_logs(world: World, output: Path, number: str) -> None:
    """Keep the ends of the operators' logs beside the lines."""
    for replica in world.replicas:
        if replica.operator is not None:
            target = output.with_name(f"{output.stem}-{number}-{replica.name}.log")
            target.write_text(replica.operator.read_log(400) + "\n", encoding="utf-8")


def describe(outcome: Outcome) -> str:
    """Return a line for people."""
    steady = "-" if outcome.steady is None else f"{outcome.steady:.1f}"
    line = f"{outcome.number:5} {outcome.verdict:12} {outcome.kind}: {outcome.seconds:.1f} s, steady after {steady} s"
    line += f" (stalls {outcome.stalls:.1f} s, waited {outcome.waited:.1f} s)"
    line += f", {outcome.binds} bound, {outcome.changes} changes of the lead, {outcome.groups} groups"
    return "\n".join([line, *(f"      {what}" for what in [*outcome.found[:5], *outcome.missing])])


if __name__ == "__main__":
    sys.exit(main())
