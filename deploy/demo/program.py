"""The demo from its options to its exit code."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3
from rich.console import Console

from demo import interruption, keeping, view, workload
from demo.interruption import Interrupted
from demo.keeping import Leash
from demo.play import Play, open_screen
from demo.stage import DemoError, Stage, prepare, remove_finished
from demo.summary import compute_outcome, format_summary
from fairbind.model.policy import DEFAULT_POLICY
from fairbind.scheduling import POLICIES
from localplane.client import ApiError
from localplane.failures import ToolError
from localplane.plane import PlaneError
from localplane.ports import NoFreePortError
from localplane.tools import DEFAULT

SHORTEST_SECONDS, FEWEST_NODES, MOST_NODES = 10, 6, 1000
KUBECTL = "kubectl"
LASTING_SECONDS = 60.0
"""How long a kept cluster is still fed: until pods that never end have taken the place of those that do."""
FAILURES = (DemoError, PlaneError, ToolError, NoFreePortError, ApiError, urllib3.exceptions.HTTPError, OSError)
NO_READER = (errno.EPIPE, errno.EIO)
"""Whoever read our output has had enough; the terminal is closed."""
NO = ("", "0", "no", "false", "off")


@dataclass(frozen=True, slots=True)
class Options:
    """What the user wants. picture: where the live table is drawn at the end, or None."""

    duration_seconds: int
    nodes: int
    policy: str
    keep: bool
    picture: Path | None


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Read the command line, then the environment; say what is wrong and exit with 2."""
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Share a local Kubernetes cluster between four tenants and watch.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--duration",
        type=int,
        metavar="SECONDS",
        default=environment.get("DURATION") or "50",
        help="or DURATION=; default 50",
    )
    parser.add_argument("--nodes", type=int, default=environment.get("NODES") or "60", help="or NODES=; default 60")
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=environment.get("POLICY") or DEFAULT_POLICY,
        help="or POLICY=",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        default=environment.get("KEEP", "").lower() not in NO,
        help="or KEEP=1; leave the cluster running",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the live table into a file at the end")
    given = parser.parse_args(arguments)
    if given.policy not in POLICIES:  # argparse does not look at defaults
        parser.error(f"POLICY is {given.policy!r}; choose one of {', '.join(POLICIES)}")
    if given.duration < SHORTEST_SECONDS:
        parser.error(f"DURATION is {given.duration}; it takes {SHORTEST_SECONDS} s at least")
    if not FEWEST_NODES <= given.nodes <= MOST_NODES:
        parser.error(f"NODES is {given.nodes}; choose from {FEWEST_NODES} to {MOST_NODES}")
    return Options(given.duration, given.nodes, given.policy, given.keep, given.svg)


def main(arguments: Sequence[str]) -> int:
    """Run the demo and return its exit code: 0, 1 when it failed, 130 when it was interrupted."""
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
    except FAILURES as error:
        if isinstance(error, OSError) and error.errno in NO_READER:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return interruption.EXIT_CODE
        _complain(f"make demo: {error}")
        return 1


def run(options: Options, stack: contextlib.ExitStack, leash: Leash | None) -> int:
    """Set up, play, sum up; a kept cluster then stays until somebody ends this process."""
    tenants = len(workload.TENANTS)
    print(f"fairbind shares {options.nodes} nodes between {tenants} tenants for {options.duration_seconds} s")
    stage = prepare(
        stack,
        nodes=options.nodes,
        policy=options.policy,
        duration_seconds=options.duration_seconds,
        tool_names=DEFAULT if leash is None else (*DEFAULT, KUBECTL),
    )
    print(flush=True)
    play = Play(stage, duration_seconds=options.duration_seconds, nodes=options.nodes, policy=options.policy)
    with open_screen(Console(highlight=False)) as screen:
        scene = play.run(screen)
    if options.picture is not None:
        view.write_picture(scene, options.picture)
    outcome = compute_outcome(play.samples, policy=options.policy, pinned_limit=stage.pinned_limit)
    print(f"\n{format_summary(outcome)}", flush=True)
    if leash is not None:
        _keep(stage, play, leash)
    return 0


def _keep(stage: Stage, play: Play, leash: Leash) -> None:
    """Say how to reach the cluster, let the command end, fill the cluster with pods that stay, and wait."""
    print(f"\n{format_kept(stage)}", flush=True)
    leash.let_go(stage.plane.logs("demo"))
    stage.stream.is_lasting = True
    deadline = time.monotonic() + LASTING_SECONDS
    with contextlib.suppress(Interrupted):
        while time.monotonic() < deadline:
            if play.look():
                play.feed()
            time.sleep(1.0)
        remove_finished(stage.plane.client)
        while stage.operator.poll() is None:  # not wait(): see `interruption`
            time.sleep(1.0)


def format_kept(stage: Stage) -> str:
    """Return how to reach and how to stop a kept cluster."""
    kubectl = stage.plane.tools.path(KUBECTL)
    return "\n".join(
        [
            "The cluster, the operator and the tenants stay, with pods that do not end:",
            f"  export KUBECONFIG={shlex.quote(str(stage.plane.kubeconfig))}",
            f"  export PATH={shlex.quote(str(kubectl.parent))}:$PATH",
            "  kubectl get tenants",
            f"  kubectl get events --namespace {workload.PINNED.namespace} --field-selector reason=FailedScheduling",
            f"  curl {stage.metrics.server}/metrics",
            f"  kill {os.getpid()}    stops everything",
        ]
    )


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(text, file=sys.stderr, flush=True)
