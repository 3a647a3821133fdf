"""Tries the thefts, then the attacks, one after the other, and writes a line of JSON about each."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from adversary.attacks import ATTACKS, Attack, Repeater, ordinary_pods, remove_all
from adversary.report import renew, write_page
from adversary.stage import ALONE, Memory, Size, Stage
from adversary.thefts import THEFTS, Theft, clean_up
from e2e.api import ApiError
from e2e.modes import BIND, MODES
from e2e.waiting import wait_for
from faults.judge import LEASE_SECONDS
from localplane.tools import DEFAULT, ensure_tools
from recorded import read_commit

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_TIMES_LONGER = 2.0
LIMIT_MEBIBYTES = 1024.0
MOST_MEMORY = 0.8 * LIMIT_MEBIBYTES
"""Of the memory limit that the chart gives the container."""
SCRAPES, LEAST_SCRAPES = 20, 0.95
REPEAT_SECONDS = 0.5
POLICY_REFUSAL = "ValidatingAdmissionPolicy 'fairbind-"
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "reliability" / "results"
AUTHENTICATED = {"authentication": {"enabled": True}, "tls": {"secretName": "unused-without-the-operator"}}
SMALL = Size(nodes=200, tenants=20, probes=25, rounds=2, scale=0.1)


@dataclass(slots=True)
class Outcome:
    """What became of an attack or a theft. without, during: p99 in seconds from creation to binding of a quiet tenant.

    ordinary: the same beside as many harmless pods as the attack has that wait, where that is measured. alone,
    alone_during: without and during, of pods that kube-scheduler places without fairbind, where that is measured.
    pause: the longest time between two renewals of the lease. memory: the most that the operator had, in MiB.
    """

    row: str
    name: str
    without: float | None = None
    during: float | None = None
    ordinary: float | None = None
    alone: float | None = None
    alone_during: float | None = None
    pause: float | None = None
    memory: float | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    seconds: float = 0.0


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="200 nodes and a tenth of each attack, as CI has them")
    parser.add_argument("--nodes", type=int, default=1000, help="how many nodes (1000)")
    parser.add_argument("--tenants", type=int, default=1000, help="how many other tenants (1000)")
    parser.add_argument("--scale", type=float, default=1.0, help="the part of what each attack makes in full (1.0)")
    parser.add_argument("--mode", choices=MODES, default=BIND, help="the operator's (bind)")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="what has this, or one of these|these, in its name or row"
    )
    parser.add_argument("--bearable", type=float, default=0.0, help="a p99 of so many seconds is never too long (0)")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts (2)")
    parser.add_argument("--probes", type=int, help="a p99 is of so many pods (100, small: 25)")
    parser.add_argument("--output", type=Path, help="where the lines go; by default what is recorded of this size")
    parser.add_argument("--renew", action="store_true", help="with --only: put it into what is recorded of this size")
    parser.add_argument("--page", action="store_true", help="write docs/reliability/adversary.md, too, but for --only")
    return parser


def find_output(arguments: argparse.Namespace) -> Path:
    """Return where the lines go. A run of some attacks, or in the small form, replaces nothing that is recorded."""
    if arguments.output:
        return Path(arguments.output)
    return ROOT / "build" / "adversary-some.jsonl" if arguments.only or arguments.small else find_recorded(arguments)


def find_recorded(arguments: argparse.Namespace) -> Path:
    """Return where the lines of all attacks at this size are."""
    mode = "" if arguments.mode == BIND else f"-{arguments.mode}"
    return RESULTS / f"adversary{mode}-{arguments.nodes}.jsonl"


def writes_page(arguments: argparse.Namespace) -> bool:
    """Whether the page changes."""
    return bool(arguments.page and not arguments.small and (arguments.renew or not arguments.only))


def main() -> int:
    """Do what the command line says; return the exit status: 1 when something did not hold."""
    arguments = make_parser().parse_args()
    whole = Size(nodes=arguments.nodes, tenants=arguments.tenants, probes=100, rounds=2, scale=arguments.scale)
    size = replace(SMALL if arguments.small else whole, rounds=arguments.rounds)
    size = replace(size, probes=arguments.probes or size.probes)
    output = find_output(arguments)
    outcomes = run(size, arguments, output)
    if arguments.only and arguments.renew and not arguments.small:
        renew(find_recorded(arguments), output)
    if writes_page(arguments):
        write_page(RESULTS)
    failed = [outcome for outcome in outcomes if outcome.found]
    print(f"{len(outcomes)} tried, {len(failed)} did not hold", flush=True)
    return 1 if failed or not outcomes else 0


def run(size: Size, arguments: argparse.Namespace, output: Path) -> list[Outcome]:
    """Try everything and return what became of it."""
    bearable = arguments.bearable
    outcomes: list[Outcome] = []
    output.parent.mkdir(parents=True, exist_ok=True)
    thefts, attacks = select(arguments)
    tools = ensure_tools(DEFAULT)
    with (
        tempfile.TemporaryDirectory() as folder,
        Stage(tools, size, Path(folder), arguments.mode) as stage,
        output.open("w", encoding="utf-8") as lines,
    ):

        def note(outcome: Outcome) -> None:
            outcomes.append(outcome)
            lines.write(json.dumps(asdict(outcome)) + "\n")
            lines.flush()
            print(describe(outcome), flush=True)

        about = {"day": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "commit": read_commit(), "bearable": bearable}
        lines.write(json.dumps({**about, "mode": arguments.mode, **asdict(size)}) + "\n")
        for theft in thefts:
            note(try_theft(stage, theft))
        if attacks:
            stage.fill()
            stage.settle()
        for attack in attacks:
            note(try_attack(stage, attack, bearable))
    return outcomes


def select(arguments: argparse.Namespace) -> tuple[list[Theft], list[Attack]]:
    """Return what is to be tried."""
    texts = arguments.only.split("|")
    thefts = [one for one in THEFTS if any(text in f"theft {one.name}" for text in texts)]
    attacks = [one for one in ATTACKS if any(text in f"row {one.row}: {one.name}" for text in texts)]
    return [one for one in thefts if one.in_small or not arguments.small], attacks


def try_theft(stage: Stage, theft: Theft) -> Outcome:
    """Try one and take away what it made."""
    outcome, began_at = Outcome("theft", theft.name), time.monotonic()
    try:
        outcome.found, outcome.figures = theft.attempt(stage)
    except (ApiError, AssertionError) as error:
        note_error(outcome, error)
    clean_up(stage)
    outcome.seconds = round(time.monotonic() - began_at, 1)
    return outcome


def try_attack(stage: Stage, attack: Attack, bearable: float) -> Outcome:
    """Time a quiet tenant before, during and after, with an operator that has seen nothing yet."""
    outcome, began_at = Outcome(attack.row, attack.name), time.monotonic()
    is_guarded = "--metrics-authentication" in attack.arguments
    stage.install_chart({"metrics": AUTHENTICATED} if is_guarded else None)
    operator = stage.start_operator(*attack.arguments)
    leases_before, starts, stage.waiting = len(stage.judge.leases), stage.starts, 0
    with Memory(operator.pid) as memory:
        try:
            stage.time_probe()  # connections, caches
            before = stage.measure()
            reader = find_reader(stage) if is_guarded else None
            with attack.apply(stage) as repeated, Repeater(repeated, REPEAT_SECONDS) as repeater:
                stage.time_probe()
                outcome.during = stage.measure()
                if stage.mode != BIND and outcome.during > max(bearable, MOST_TIMES_LONGER * before):
                    outcome.alone_during = stage.measure(ALONE)
                if reader is not None:
                    outcome.found += find_refused_scrapes(stage, reader, outcome)
            outcome.figures |= {"repeated": repeater.done, "refused": repeater.failed}
            is_bearable = outcome.during <= bearable  # then it matters little how long it takes without
            outcome.without = before if is_bearable else max(before, stage.measure())
            if outcome.alone_during is not None:
                outcome.alone = stage.measure(ALONE)
            measure_ordinary(stage, attack, outcome, bearable)
        except (ApiError, AssertionError) as error:
            note_error(outcome, error)
            remove_all(stage)
    outcome.memory = round(memory.peak, 1)
    outcome.pause = round(stage.find_longest_pause(leases_before), 2)
    outcome.found += find_broken(outcome, bearable)
    if not operator.is_running:
        outcome.found.append(f"the operator ended with {operator.process.returncode}")
    others = {write.owner for write in stage.judge.leases[leases_before:]} - {f"operator {starts}"}
    outcome.found += [f"{other} took the lease" for other in sorted(others)]
    outcome.seconds = round(time.monotonic() - began_at, 1)
    return outcome


def measure_ordinary(stage: Stage, attack: Attack, outcome: Outcome, bearable: float) -> None:
    """Time the quiet tenant beside harmless pods, where it waits too long and the attack has pods that wait."""
    if stage.mode == BIND or not stage.waiting or not find_broken(outcome, bearable):
        return
    with ordinary_pods(stage, stage.waiting, fits=attack.fits):
        stage.time_probe()
        outcome.ordinary = stage.measure()


def note_error(outcome: Outcome, error: ApiError | AssertionError) -> None:
    """Note why something ended early: what the chart's own policies refuse in a mode holds there."""
    if isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN and POLICY_REFUSAL in error.message:
        outcome.figures["refused by"] = "an admission policy of the chart"
    else:
        outcome.found.append(f"it could not be judged: {error}")


def find_broken(outcome: Outcome, bearable: float = 0.0) -> list[str]:
    """Return what is beyond a bound. bearable: seconds; a quiet tenant's p99 below is never too long."""
    found = []
    if outcome.during is not None and outcome.without is not None:
        ratio = outcome.during / max(outcome.without, outcome.ordinary or 0.0)
        alone = outcome.alone_during / outcome.alone if outcome.alone_during and outcome.alone else 1.0
        if ratio > MOST_TIMES_LONGER * max(alone, 1.0) and outcome.during > bearable:
            beside = " as beside ordinary pods" if outcome.ordinary else ""
            beside += f", and {alone:.1f} times without fairbind" if outcome.alone else ""
            found.append(f"the quiet tenant's p99 is {ratio:.1f} times as long{beside}")
    if outcome.pause is not None and outcome.pause > LEASE_SECONDS:
        found.append(f"the lease was not renewed for {outcome.pause:.1f} s")
    if outcome.memory is not None and outcome.memory > MOST_MEMORY:
        found.append(f"the operator took {outcome.memory:.0f} MiB")
    return found


def find_refused_scrapes(stage: Stage, token: str, outcome: Outcome) -> list[str]:
    """Scrape as Prometheus does, with a good token, while others knock with bad ones."""
    assert stage.operator is not None
    answers: Counter[int] = Counter()
    for _ in range(SCRAPES):
        answers[stage.operator.fetch("/metrics", Authorization=f"Bearer {token}")[0]] += 1
        time.sleep(0.5)
    outcome.figures["scrapes"] = ", ".join(f"{count} x {status}" for status, count in answers.items())
    refused = SCRAPES - answers[200]
    return [f"{refused} of {SCRAPES} scrapes refused"] if answers[200] < LEAST_SCRAPES * SCRAPES else []


def find_reader(stage: Stage) -> str:
    """Return the token of somebody who may read the metrics, once that is known to the operator."""
    token, operator = make_reader(stage), stage.operator
    assert operator is not None
    wait_for(
        lambda: operator.fetch("/metrics", Authorization=f"Bearer {token}")[0] == 200,
        120.0,
        lambda: f"the reader to be let in: {operator.fetch('/metrics', Authorization=f'Bearer {token}')}"[:300],
    )
    return token


def make_reader(stage: Stage) -> str:
    """Return the token of somebody who may read the metrics."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fairbind-metrics-reader"}
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}
    if not stage.api.exists(f"{accounts}/prometheus"):
        stage.api.post(accounts, {"metadata": {"name": "prometheus"}})
        stage.api.post(bindings, {"metadata": {"name": "prometheus"}, "roleRef": role, "subjects": [subject]})
    kubeconfig = stage.cluster.service_account_kubeconfig("default", "prometheus")
    token: str = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
    return token


def describe(outcome: Outcome) -> str:
    """Return a line for people."""
    parts: Sequence[str] = [f"{name} {value}" for name, value in outcome.figures.items()]
    if outcome.during is not None and outcome.without is not None:
        times = f"p99 {outcome.without * 1000:.0f} ms without, {outcome.during * 1000:.0f} ms with"
        times += f", {outcome.ordinary * 1000:.0f} ms beside ordinary pods" if outcome.ordinary else ""
        if outcome.alone_during is not None and outcome.alone is not None:
            times += f", kube-scheduler alone {outcome.alone * 1000:.0f} and {outcome.alone_during * 1000:.0f} ms"
        parts = [times, f"longest pause {outcome.pause} s", f"{outcome.memory} MiB", *parts]
    verdict = "; ".join(outcome.found) if outcome.found else "held"
    return f"{outcome.row:6} {outcome.name}: {verdict} ({', '.join(parts)}; {outcome.seconds:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
