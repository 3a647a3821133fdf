"""The command line: the only place that puts the parts together.

Imports that cost time are made by the command that needs them, so that `fairbind --version` answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fairbind import __version__
from fairbind.cli.cluster_options import (
    extender_options,
    gate_options,
    kept_places_option,
    kubeconfig_option,
    namespace_option,
    scheduler_names_option,
    show_taints_option,
    source_options,
    tenant_view_option,
    undo_options,
    volcano_inqueue_option,
)
from fairbind.cli.command_sections import SectionedGroup
from fairbind.cli.import_command import import_queues
from fairbind.cli.logs import LOG_FORMATS, LOG_LEVELS, LogFormat
from fairbind.cli.mechanisms.commands import COMMANDS as MECHANISM_COMMANDS
from fairbind.cli.open_gates_command import open_gates
from fairbind.cli.options import debug_option, output_option
from fairbind.cli.program import run_program
from fairbind.cli.reproduce_command import reproduce
from fairbind.cli.simulate import simulate
from fairbind.cli.snapshot_commands import replay, snapshot
from fairbind.cli.sweep_command import sweep
from fairbind.cli.trace_command import trace
from fairbind.cli.what_if_command import advise, what_if


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='\b\nCompletion in bash (zsh and fish likewise):\n  $ eval "$(_FAIRBIND_COMPLETE=bash_source fairbind)"',
)
@click.version_option(__version__, prog_name="fairbind", message="%(prog)s %(version)s")
@debug_option
def commands() -> None:
    """Share a Kubernetes cluster fairly between tenants, also when its nodes differ."""


for _command in (
    *MECHANISM_COMMANDS, simulate, sweep, trace, snapshot, replay, what_if, advise, reproduce, import_queues, open_gates
):  # fmt: skip
    commands.add_command(_command)


@commands.command(short_help="Watch a cluster and bind its pods.")
@kubeconfig_option
@namespace_option("Keep the lease that decides which replica leads in this namespace.")
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    envvar="FAIRBIND_METRICS_ADDRESS",
    default=":8080",
    show_default=True,
    show_envvar=True,
    help="Serve /metrics, /healthz and /readyz here. No host means every address, of IPv4 and IPv6. Port 0 takes a "
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
@scheduler_names_option("Bind the pods whose spec.schedulerName is this.")
@kept_places_option
@undo_options
@volcano_inqueue_option
@show_taints_option
@tenant_view_option
@gate_options
@extender_options
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    envvar="FAIRBIND_LOG_FORMAT",
    default="console",
    show_default=True,
    show_envvar=True,
    help="Write lines for people, coloured on a terminal, or JSON objects.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    envvar="FAIRBIND_LOG_LEVEL",
    default="info",
    show_default=True,
    show_envvar=True,
    help="Show this level and those above. debug shows every binding and every cycle.",
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
    scheduler_names: tuple[str, ...],
    kept_seconds: float,
    undo_groups: bool,
    undo_seconds: float,
    volcano_inqueue: bool,
    show_taints: bool,
    tenant_view: str,
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
        scheduler_names=scheduler_names,
        kept_seconds=kept_seconds,
        undo_groups=undo_groups,
        undo_seconds=undo_seconds,
        volcano_inqueue=volcano_inqueue,
        gates=gates if mode == "gate" else None,
        extender=extender if mode == "extender" else None,
        shows_taints=show_taints,
        tenant_view=tenant_view,
        log_format=log_format,
        log_level=log_level,
        journal=journal,
    )


@commands.command(
    short_help="Say who envies whom in a cluster, and who would do better alone.",
    epilog="\b\nExample:\n  $ fairbind audit cluster.json",
)
@source_options("Count pods of this spec.schedulerName as waiting for fairbind.")
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


@commands.command(
    short_help="Say who is below whom, and what each tenant holds.",
    epilog="\b\nExample:\n  $ fairbind tree cluster.json",
)
@source_options("Count pods of this spec.schedulerName as waiting for fairbind.")
@output_option("table", "json", "yaml")
@debug_option
def tree(*, file: str | None, output: str, **given: Any) -> None:
    """Print the tree of tenants: what each holds, is guaranteed, would be fair, and how many of its pods wait.

    FILE is from `fairbind snapshot`, - for standard input; without it the cluster of the kubeconfig is listed. The
    numbers of a tenant with others below it are of all of them together; pods of its own namespaces are one more
    child, of its own name.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - imports what speaks to clusters
    from fairbind.cli.tree import print_tree  # noqa: PLC0415 - as above

    print_tree(Source("tree", file, **given), output)


@commands.command(short_help="Write a cluster as a problem file.")
@source_options("Count pending pods of this spec.schedulerName.")
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
    """Run one command and return the exit status, see `run_program`."""
    return run_program(commands, "fairbind", arguments)
