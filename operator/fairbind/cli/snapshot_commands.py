"""What the commands take that look at a cluster's state: `snapshot` and `replay`. What they do is imported late."""

from __future__ import annotations

from pathlib import Path

import click

from fairbind.cli.cluster_options import (
    context_option,
    kubeconfig_option,
    listed_scheduler_name_option,
    own_namespace_option,
    scheduler_name_option,
)
from fairbind.cli.options import debug_option, output_option


@click.command(
    short_help="Write a cluster's state to a file.",
    epilog="\b\nExample:\n  $ fairbind snapshot -o cluster.json && fairbind replay cluster.json",
)
@kubeconfig_option
@context_option
@own_namespace_option
@scheduler_name_option("Pods wait for fairbind when their spec.schedulerName is this.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Where to write it; - for standard output.")
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
    scheduler_name: str,
    output: str,
    anonymise: bool,
) -> None:
    """Write the objects of a cluster, as the operator reads them, to a file.

    It has the fields that decisions depend on: no environment, no image, no annotation, no Secret. `fairbind replay`,
    `what-if`, `advise` and `simulate --from` read it. It only lists: the operator and its CRDs need not be installed.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - imports what speaks to clusters
    from fairbind.cli.snapshots import write_snapshot  # noqa: PLC0415 - as above

    source = Source("snapshot", None, kubeconfig, context, namespace, scheduler_name)
    write_snapshot(source, output, is_anonymous=anonymise)


@click.command(
    short_help="Say what the operator decides about a snapshot.",
    epilog="\b\nExample:\n  $ fairbind replay cluster.json --journal journal.jsonl",
)
@click.argument("file")
@click.option(
    "--journal",
    metavar="FILE",
    help="Compare with what an operator has recorded (`fairbind operator --journal`). A difference is exit status 1.",
)
@listed_scheduler_name_option("Pods wait for fairbind when their spec.schedulerName is this.")
@output_option("table", "json", "yaml")
@debug_option
def replay(*, file: str, journal: str | None, scheduler_name: str | None, output: str) -> int:
    """Say what the operator decides about a snapshot, in order, with reasons, and which pods wait and why.

    FILE is from `fairbind snapshot`, or what kubectl prints as JSON of nodes, pods, namespaces, tenants and
    schedulingpolicies; - is standard input. With a journal the cycles run as it says that they ran; the comparison ends
    where the cluster had changed.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.cli.snapshots import print_replay  # noqa: PLC0415 - as above

    return print_replay(Source("replay", file, None, None, "", scheduler_name), journal, output)
