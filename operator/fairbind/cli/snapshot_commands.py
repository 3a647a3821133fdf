"""What the commands take that look at a cluster's state: `snapshot` and `replay`. What they do is imported late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairbind.cli.cluster_options import (
    context_option,
    kubeconfig_option,
    own_namespace_option,
    scheduler_names_option,
    source_options,
)
from fairbind.cli.completion import FILE
from fairbind.cli.options import debug_option, output_option


@click.command(
    short_help="Write a cluster's state to a file.",
    epilog="\b\nExample:\n  $ fairbind snapshot --out cluster.json && fairbind replay cluster.json",
)
@kubeconfig_option
@context_option
@own_namespace_option
@scheduler_names_option("Count pods of this spec.schedulerName as waiting for fairbind.")
@click.option(
    "--out", metavar="FILE", type=FILE, default="-", help="Write it to this file. Without it: to standard output."
)
@click.option(
    "--anonymise",
    is_flag=True,
    help="Replace names of nodes, namespaces, pods and tenants, labels and taints; amounts and times stay.",
)
@debug_option
def snapshot(
    *,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    scheduler_names: tuple[str, ...],
    out: str,
    anonymise: bool,
) -> None:
    """Write the objects of a cluster, as the operator reads them, to a file.

    It has the fields that decisions depend on: no environment, no image, no Secret, and no annotation but those of
    groups. `fairbind replay`, `what-if`, `advise` and `simulate --from` read it. It only lists: the operator and its
    CRDs need not be installed.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - imports what speaks to clusters
    from fairbind.cli.snapshots import write_snapshot  # noqa: PLC0415 - as above

    source = Source("snapshot", None, kubeconfig, context, namespace, scheduler_names)
    write_snapshot(source, out, is_anonymous=anonymise)


@click.command(
    short_help="Say what the operator decides now, in order, and why.",
    epilog="\b\nExample:\n  $ fairbind replay cluster.json --journal journal.jsonl",
)
@source_options("Count pods of this spec.schedulerName as waiting for fairbind.")
@click.option(
    "--journal",
    metavar="FILE",
    type=FILE,
    help="Compare with what an operator has recorded since FILE was written (`fairbind operator --journal`). A "
    "difference is exit status 1.",
)
@output_option("table", "json", "yaml")
@debug_option
def replay(*, file: str | None, journal: str | None, output: str, **given: Any) -> int:
    """Say what the operator decides about a cluster, in order, with reasons, and which pods wait and why.

    FILE is from `fairbind snapshot`, or what kubectl prints as JSON of nodes, pods, namespaces, tenants and
    schedulingpolicies; - is standard input. Without it the cluster of the kubeconfig is listed. Nothing is written to
    the cluster. With a journal the cycles run as it says that they ran; the comparison ends where the cluster had
    changed.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.cli.snapshots import print_replay  # noqa: PLC0415 - as above

    return print_replay(Source("replay", file, **given), journal, output)
