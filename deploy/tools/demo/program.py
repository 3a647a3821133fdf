"""The demo from its options to its exit code."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3
from rich.console import Console

from demo import interruption, keeping, kind_stage, local_stage, stage, view, workload
from demo.feeding import Patience
from demo.interruption import Interrupted
from demo.keeping import Leash
from demo.play import Play, open_screen
from demo.servers import DemoError
from demo.stage import RETRY_SECONDS, Stage, remove_finished
from demo.summary import COMMAND, GATE_COMMAND, KIND_COMMAND, compute_outcome, format_summary
from fairbind.model.policy import DEFAULT_POLICY
from fairbind.scheduling import POLICIES
from kindcluster.commands import KindError
from kindcluster.engine import NoEngineError, check_engine
from localplane.client import ApiError
from localplane.failures import ToolError
from localplane.plane import PlaneError
from localplane.ports import NoFreePortError

SHORTEST_SECONDS, FEWEST_NODES, MOST_NODES = 10, 6, 1000
LOCAL, KIND = "local", "kind"
CLUSTERS = (LOCAL, KIND)
BIND, GATE = "bind", "gate"
MODES = (BIND, GATE)
USUAL_SECONDS = {LOCAL: workload.USUAL_SECONDS, KIND: 60}
LASTING_SECONDS = 60.0
"""A kept cluster is fed until nothing was bound for so long: pods that never end have the place of those that did.

Only what was looked at counts: who sees nothing for a while does not know.
"""
FAILURES = (
    DemoError,
    PlaneError,
    KindError,
    ToolError,
    NoFreePortError,
    ApiError,
    urllib3.exceptions.HTTPError,
    OSError,
)
NO_READER = (errno.EPIPE, errno.EIO)
"""The reader of our output has had enough; the terminal is closed."""
NO = ("", "0", "no", "false", "off")


@dataclass(frozen=True, slots=True)
class Options:
    """What the user wants. nodes: of a local cluster. picture: where the live table is drawn at the end, or None."""

    cluster: str
    duration_seconds: int
    nodes: int
    policy: str
    keep: bool
    picture: Path | None
    mode: str = BIND


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Read the command line, then the environment; say what is wrong and exit with 2."""
    parser = _make_parser(environment)
    given = parser.parse_args(arguments)
    if given.cluster not in CLUSTERS:  # argparse does not look at defaults
        parser.error(f"CLUSTER is {given.cluster!r}; choose one of {', '.join(CLUSTERS)}")
    if given.mode not in MODES:
        parser.error(f"MODE is {given.mode!r}; choose one of {', '.join(MODES)}")
    if (given.cluster, given.mode) == (KIND, GATE):
        parser.error("MODE=gate is shown on a local cluster only")
    if given.policy not in POLICIES:
        parser.error(f"POLICY is {given.policy!r}; choose one of {', '.join(POLICIES)}")
    duration = USUAL_SECONDS[given.cluster] if given.duration is None else given.duration
    if duration < SHORTEST_SECONDS:
        parser.error(f"DURATION is {duration}; it takes {SHORTEST_SECONDS} s at least")
    if not FEWEST_NODES <= given.nodes <= MOST_NODES:
        parser.error(f"NODES is {given.nodes}; choose from {FEWEST_NODES} to {MOST_NODES}")
    return Options(given.cluster, duration, given.nodes, given.policy, given.keep, given.svg, given.mode)


def _make_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Share a Kubernetes cluster between four tenants and watch.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--cluster",
        choices=CLUSTERS,
        default=environment.get("CLUSTER") or LOCAL,
        help="or CLUSTER=; local: a control plane with fake nodes; kind: real kubelets and containers, needs Docker",
    )
    parser.add_argument(
        "--duration",
        type=int,
        metavar="SECONDS",
        default=environment.get("DURATION") or None,
        help=f"or DURATION=; default {USUAL_SECONDS[LOCAL]}, on kind {USUAL_SECONDS[KIND]}",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=environment.get("NODES") or str(workload.USUAL_NODES),
        help=f"or NODES=; of a local cluster, default {workload.USUAL_NODES}",
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=environment.get("POLICY") or DEFAULT_POLICY,
        help="or POLICY=",
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default=environment.get("MODE") or BIND,
        help="or MODE=; bind: fairbind places the pods; gate: kube-scheduler does, in the order that fairbind decides",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        default=environment.get("KEEP", "").lower() not in NO,
        help="or KEEP=1; leave the cluster running",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the live table into a file at the end")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the demo and return its exit code: 0, 1 when it failed, 2 without an engine, 130 when it was interrupted."""
    options = parse_options(arguments, os.environ)
    if options.keep:
        return keeping.run_on_leash(lambda leash: _run_safely(options, leash))
    return _run_safely(options, None)


def _run_safely(options: Options, leash: Leash | None) -> int:
    try:
        with contextlib.ExitStack() as stack:
            return run(options, stack, leash)
    except Interrupted as interruption_:
        _complain(f"stopped by {interruption_}; nothing is left running")
        return interruption.EXIT_CODE
    except NoEngineError as error:
        _complain(f"make demo: {error}")
        return 2
    except FAILURES as error:
        if isinstance(error, OSError) and error.errno in NO_READER:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return interruption.EXIT_CODE
        _complain(f"make demo: {error}")
        return 1


def run(options: Options, stack: contextlib.ExitStack, leash: Leash | None) -> int:
    """Set up, play, sum up; a kept cluster then stays until a user ends this process."""
    seconds = options.duration_seconds
    setting = _prepare(options, stack, is_kept=leash is not None)
    print(flush=True)
    play = Play(setting, duration_seconds=seconds, policy=options.policy)
    with open_screen(Console(highlight=False)) as screen:
        last = play.run(screen)
    if options.picture is not None:
        view.write_picture(last, options.picture)
    outcome = compute_outcome(
        play.samples, policy=options.policy, limited=setting.cast.limited, gpus=stage.find_gpus(setting)
    )
    command = KIND_COMMAND if options.cluster == KIND else GATE_COMMAND if options.mode == GATE else COMMAND
    print(f"\n{format_summary(outcome, command, setting.format_report())}", flush=True)
    if leash is not None:
        _keep(setting, play, leash)
    return 0


def _prepare(options: Options, stack: contextlib.ExitStack, *, is_kept: bool) -> Stage:
    """Say what will be shown where, and build it."""
    tenants = len(workload.CAST.top)
    if options.cluster == KIND:
        check_engine()
        print(f"fairbind shares a kind cluster between {tenants} tenants for {options.duration_seconds} s")
        return kind_stage.prepare(stack, policy=options.policy, duration_seconds=options.duration_seconds)
    who = "; kube-scheduler places the pods" if options.mode == GATE else ""
    print(f"fairbind shares {options.nodes} nodes between {tenants} tenants for {options.duration_seconds} s{who}")
    return local_stage.prepare(
        stack,
        nodes=options.nodes,
        policy=options.policy,
        duration_seconds=options.duration_seconds,
        is_kept=is_kept,
        is_gated=options.mode == GATE,
    )


def _keep(setting: Stage, play: Play, leash: Leash) -> None:
    """Say how to reach the cluster, let the command end, fill the cluster with pods that stay, and wait."""
    print(f"\n{setting.format_kept()}", flush=True)
    leash.let_go(setting.log)
    setting.stream.is_lasting = True
    with contextlib.suppress(Interrupted):
        _fill(play)
        patience = Patience()
        while not patience.attempt(lambda: remove_finished(setting)):
            time.sleep(RETRY_SECONDS)
        while not setting.has_ended():  # not a blocking wait: see `interruption`
            time.sleep(1.0)


def _fill(play: Play) -> None:
    """Feed until all looks for so long have seen as many bound pods."""
    bound, since = -1, time.monotonic()
    is_full = False
    while not is_full:
        if play.look():
            if play.samples[-1].bound != bound:
                bound, since = play.samples[-1].bound, time.monotonic()
            is_full = time.monotonic() >= since + LASTING_SECONDS
            play.feed()
        else:
            bound = -1
        time.sleep(1.0)


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(text, file=sys.stderr, flush=True)
