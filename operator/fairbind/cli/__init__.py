"""The command line: the only place that puts the parts together.

Errors are one line on stderr. Exit status 2: what was typed, the problem or the kubeconfig is invalid. 1: it
failed while it ran. A traceback only with --debug. Imports that cost time are made by the command that needs them, so
that `fairbind --version` answers at once.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fairbind import __version__
from fairbind.cli.cluster_options import (
    context_option,
    extender_options,
    file_argument,
    gate_options,
    kubeconfig_option,
    listed_scheduler_name_option,
    namespace_option,
    own_namespace_option,
    scheduler_name_option,
    show_taints_option,
)
from fairbind.cli.exit_status import EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED
from fairbind.cli.logs import LOG_FORMATS, LOG_LEVELS, LogFormat
from fairbind.cli.mechanisms.commands import COMMANDS as MECHANISM_COMMANDS
from fairbind.cli.open_gates_command import open_gates
from fairbind.cli.options import debug_option, output_option
from fairbind.cli.reproduce_command import reproduce
from fairbind.cli.simulate import simulate
from fairbind.cli.snapshot_commands import replay, snapshot
from fairbind.cli.standard_output import drop_unwritten_output, reserve_standard_output
from fairbind.cli.sweep_command import sweep
from fairbind.cli.trace_command import trace
from fairbind.cli.what_if_command import advise, what_if


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="fairbind", message="%(prog)s %(version)s")
@debug_option
def commands() -> None:
    """Share a Kubernetes cluster fairly between tenants, also when its nodes differ."""


for _command in (*MECHANISM_COMMANDS, simulate, sweep, trace, snapshot, replay, what_if, advise, reproduce, open_gates):
    commands.add_command(_command)


@commands.command(short_help="Watch a cluster and bind its pods.")
@kubeconfig_option
@namespace_option("Namespace of the lease that decides which replica leads.")
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    envvar="FAIRBIND_METRICS_ADDRESS",
    default=":8080",
    show_default=True,
    show_envvar=True,
    help="Where to serve /metrics, /healthz and /readyz. No host means every address, of IPv4 and IPv6. Port 0 takes a "
    "free one and logs it.",
)
@click.option(
    "--metrics-tls",
    metavar="FOLDER",
    envvar="FAIRBIND_METRICS_TLS",
    show_envvar=True,
    help="Serve them by HTTPS with tls.crt and tls.key of this folder, which are read again when they change; the word "
    "self-signed makes a certificate at each start, which readers cannot verify.",
)
@click.option(
    "--metrics-authentication",
    is_flag=True,
    envvar="FAIRBIND_METRICS_AUTHENTICATION",
    show_envvar=True,
    help="Show /metrics only for a bearer token whose owner may `get` the path /metrics, as the API server says.",
)
@click.option(
    "--metrics-audience",
    "metrics_audiences",
    metavar="NAME",
    multiple=True,
    envvar="FAIRBIND_METRICS_AUDIENCE",
    show_default="that of the API server",
    show_envvar=True,
    help="Take only tokens that are made for this audience: a stolen one is worth nothing elsewhere. May be repeated.",
)
@scheduler_name_option("Bind the pods whose spec.schedulerName is this.")
@show_taints_option
@gate_options
@extender_options
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    envvar="FAIRBIND_LOG_FORMAT",
    default="console",
    show_default=True,
    show_envvar=True,
    help="Lines for people, coloured on a terminal, or JSON objects.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    envvar="FAIRBIND_LOG_LEVEL",
    default="info",
    show_default=True,
    show_envvar=True,
    help="The least level that is shown. debug shows every binding and every cycle.",
)
@click.option(
    "--journal",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="FAIRBIND_JOURNAL",
    show_envvar=True,
    help="Append each cycle with its decisions to this file as a JSON line. At 64 MiB it is renamed to FILE.1.",
)
@debug_option
def operator(
    *,
    kubeconfig: Path | None,
    namespace: str,
    metrics_address: str,
    metrics_tls: str | None,
    metrics_authentication: bool,
    metrics_audiences: tuple[str, ...],
    scheduler_name: str,
    show_taints: bool,
    mode: str,
    gate_scheduler_name: str,
    max_ungated: int,
    ungated_timeout: float,
    max_scale_up: int,
    gate_placement: str,
    extender_scheduler_names: tuple[str, ...],
    extender_address: str,
    extender_tls: Path | None,
    extender_client_names: tuple[str, ...],
    extender_service: str | None,
    extender_pod_ip: str | None,
    max_turns: int,
    turn_timeout: float,
    log_format: LogFormat,
    log_level: str,
    journal: Path | None,
) -> None:
    """Watch a cluster and bind its pods, fairly between tenants.

    Several replicas may run: one leads and binds, the others keep watch and take over when it ends. SIGTERM or Ctrl-C
    finishes the bindings in flight, gives the lease back and exits with 0; a second one ends at once.
    """
    from fairbind.cli.operator import ExtenderOptions, GateOptions, serve  # noqa: PLC0415 - half a second of imports

    gates = GateOptions(
        scheduler_name=gate_scheduler_name,
        most=max_ungated,
        timeout_seconds=ungated_timeout,
        most_scale_ups=max_scale_up,
        narrows_to_nodes=gate_placement == "node",
    )
    extender = ExtenderOptions(
        scheduler_names=frozenset(extender_scheduler_names),
        address=extender_address,
        folder=extender_tls,
        client_names=extender_client_names,
        service=extender_service,
        pod_ip=extender_pod_ip,
        most=max_turns,
        timeout_seconds=turn_timeout,
    )
    serve(
        kubeconfig=kubeconfig,
        namespace=namespace,
        metrics_address=metrics_address,
        metrics_tls=metrics_tls,
        metrics_authentication=metrics_authentication,
        metrics_audiences=metrics_audiences,
        scheduler_name=scheduler_name,
        gates=gates if mode == "gate" else None,
        extender=extender if mode == "extender" else None,
        shows_taints=show_taints,
        log_format=log_format,
        log_level=log_level,
        journal=journal,
    )


@commands.command(
    short_help="Say who envies whom in a cluster, and who would do better alone.",
    epilog="\b\nExample:\n  $ fairbind audit cluster.json",
)
@file_argument
@kubeconfig_option
@context_option
@own_namespace_option
@listed_scheduler_name_option("Pods wait for fairbind when their spec.schedulerName is this.")
@output_option("table", "json", "yaml")
@debug_option
def audit(*, file: str | None, output: str, **given: Any) -> None:
    """Say who envies whom in a cluster, and who would do better in a cluster of their own, as things stand now.

    FILE is from `fairbind snapshot`, - for standard input; without it the cluster of the kubeconfig is listed. The
    operator and its CRDs need not be installed: with --scheduler-name default-scheduler it audits any cluster. Each
    finding says what it comes from: tasks that cannot be divided, pods that run on, a demand that is missing, or the
    policy's own idea of fairness.
    """
    from fairbind.cli.audit import print_audit  # noqa: PLC0415 - imports what speaks to clusters
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - as above

    print_audit(Source("audit", file, **given), output)


@commands.command(short_help="Write a cluster as a problem file.")
@file_argument
@kubeconfig_option
@context_option
@own_namespace_option
@listed_scheduler_name_option("Pending pods count when their spec.schedulerName is this.")
@output_option("yaml", "json", "csv")
@debug_option
def problem(*, file: str | None, output: str, **given: Any) -> None:
    """Write the cluster as it is now as a problem that `fairbind allocate`, `check` and `compare` read.

    FILE is from `fairbind snapshot`, - for standard input; without it the cluster of the kubeconfig is listed. Servers
    are the classes of equal nodes with their counts. Tenants have the demand, the number of tasks, the eligibility and
    the weight of their running and schedulable pending pods. A tenant whose pods differ becomes several (ada, ada#2,
    ...), which share its weight. The operator and its CRDs need not be installed.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - imports what speaks to clusters
    from fairbind.cli.problem import print_problem  # noqa: PLC0415 - as above

    print_problem(Source("problem", file, **given), output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    arguments: None means those of the process, whose standard output is then for the command's answer alone.
    """
    if arguments is not None:
        return _run(list(arguments))
    reserve_standard_output()
    status = _run(sys.argv[1:])
    drop_unwritten_output()
    return status


def _run(words: list[str]) -> int:
    try:
        result = commands.main(words, prog_name="fairbind", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_BAD_INPUT
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "fairbind"
        return _fail(f"{' '.join(error.format_message().split())} (try '{command} --help')", EXIT_BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last one to say in a line what went wrong
        return _report_failure(error, shows_traceback="--debug" in words)
    return result if isinstance(result, int) else 0


def _report_failure(error: Exception, *, shows_traceback: bool) -> int:
    from fairbind.kube.client.errors import PermanentClusterError  # noqa: PLC0415 - only failures need it
    from fairbind.model.errors import FairbindError, InvalidProblemError  # noqa: PLC0415

    if shows_traceback:
        traceback.print_exception(error)
    if isinstance(error, PermanentClusterError | InvalidProblemError):
        return _fail(str(error), EXIT_BAD_INPUT)
    if isinstance(error, FairbindError):
        return _fail(str(error), EXIT_FAILURE)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("fairbind."):
        missing = f"the operator's image has no {error.name}"
        return _fail(f"{missing}: install the wheel for simulations and research (pip install fairbind)", EXIT_FAILURE)
    if isinstance(error, OSError) and error.strerror:  # a full disk below the output, say
        where = "" if error.filename is None else f": {error.filename}"
        return _fail(f"{error.strerror}{where}", EXIT_FAILURE)
    hint = "" if shows_traceback else " (a bug; --debug shows where)"
    return _fail(f"{type(error).__name__}: {error}{hint}", EXIT_FAILURE)


def _fail(message: str, status: int) -> int:
    click.echo(f"fairbind: {message}", err=True)
    return status
