"""The options of `fairbind import`; the code behind them is imported when it runs."""

from __future__ import annotations

import click

from fairbind.cli.completion import FILE
from fairbind.cli.options import debug_option

SYSTEMS = ("kueue", "volcano", "yunikorn", "kai")


@click.command(
    "import",
    short_help="Write the queues of Kueue, Volcano, YuniKorn or KAI as Tenants.",
    epilog="\b\nExamples:\n  $ kubectl get clusterqueues,cohorts,localqueues,resourceflavors -A -o yaml |\n"
    "      fairbind import kueue - -o tenants.yaml\n"
    "  $ fairbind import kai queues.yaml -o tenants.yaml --snapshot cluster.json",
)
@click.argument("system", type=click.Choice(SYSTEMS))
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    type=FILE,
    required=True,
    help="Write the Tenants to this file, - for standard output.",
)
@click.option(
    "--snapshot",
    metavar="FILE",
    type=FILE,
    help="Simulate the next hour of this cluster (`fairbind snapshot`) under its own Tenants and under these, and name "
    "the namespaces that change by more than a tenth.",
)
@debug_option
def import_queues(*, system: str, files: tuple[str, ...], out: str, snapshot: str | None) -> None:
    """Write the queues of another scheduler as Tenants, and say what has no counterpart.

    FILE has YAML or JSON, - is standard input: ClusterQueues, Cohorts, LocalQueues and ResourceFlavors of Kueue, Queues
    of Volcano or KAI, or YuniKorn's queues.yaml, alone or in its ConfigMap. Each line that is printed names an object,
    a field and the reason why no Tenant has it.
    """
    from fairbind.cli.import_queues import write_tenants  # noqa: PLC0415 - only this command reads queues

    write_tenants(system, files, out, snapshot)
