"""The command `fairbind open-gates`. What it does is imported late."""

from __future__ import annotations

from pathlib import Path

import click

from fairbind.cli.cluster_options import context_option, kubeconfig_option
from fairbind.cli.options import debug_option


@click.command(
    "open-gates",
    short_help="Open the scheduling gates of all pods, when gate mode ends.",
    epilog="\b\nExample:\n  $ fairbind open-gates --dry-run",
)
@kubeconfig_option
@context_option
@click.option("--dry-run", is_flag=True, help="List the pods that have the gate, and do nothing else.")
@debug_option
def open_gates(*, kubeconfig: Path | None, context: str | None, dry_run: bool) -> None:
    """Open the scheduling gate fairbind.io/turn of every pod of the cluster, the oldest first, in no fair order.

    For the end of gate mode: first `helm upgrade --set mode=bind`, so that new pods get no gate, then this, then an
    uninstall if that is wanted. It needs the rights to list and patch pods, and to update Tenants.
    """
    from fairbind.cli.open_gates import print_opened  # noqa: PLC0415 - imports what speaks to clusters

    print_opened(kubeconfig=kubeconfig, context=context, is_dry=dry_run)
