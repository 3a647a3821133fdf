"""What `fairbind what-if` and `fairbind advise` take. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairbind.cli.cluster_options import source_options
from fairbind.cli.completion import FILE, complete_policies
from fairbind.cli.options import Words, debug_option, output_option, run_time_option

_SETTING = Words(
    "setting",
    r"tenant\.(.+)\.(weight|priority|lending|parent|(?:limit|guarantee)\.[^=]+)=(.*)",
    "tenant.a.weight=2 or tenant.a.limit.nvidia.com/gpu=16",
)
_NEW_NODES = Words("nodes", r"like=([^,=]+)(?:,count=([0-9]{1,9}))?", "like=gpu-1,count=10")


@click.command(
    "what-if",
    short_help="Say what would change: weights, nodes, the policy, a new job.",
    epilog="\b\nExamples:\n  $ fairbind what-if --set tenant.a.weight=2\n"
    "  $ fairbind what-if cluster.json --add-nodes like=gpu-1,count=10\n"
    "  $ fairbind what-if --submit job.yaml -o json",
)
@source_options("Count pods of this spec.schedulerName as waiting for fairbind.")
@click.option(
    "--set",
    "settings",
    metavar="tenant.NAME.FIELD=VALUE",
    type=_SETTING,
    multiple=True,
    help="Give a tenant a weight (tenant.a.weight=2), a priority, a parent (nothing: the root) or lending, or a limit "
    "or guarantee for all nodes (tenant.a.limit.nvidia.com/gpu=16). A namespace without a Tenant gets one.",
)
@click.option(
    "--add-nodes",
    metavar="like=NODE,count=N",
    type=_NEW_NODES,
    multiple=True,
    help="Add nodes with the capacity, the labels and the taints of a node, named NODE-new-0 and so on. They are empty "
    "except for pods of DaemonSets and static pods, as the node has them.",
)
@click.option(
    "--remove-node",
    metavar="NODE",
    multiple=True,
    help="Take a node away; its pods wait again, with no work done. Pods of DaemonSets and static pods go with it.",
)
@click.option("--cordon", metavar="NODE", multiple=True, help="Let a node take no new pods.")
@click.option("--uncordon", metavar="NODE", multiple=True, help="Let a cordoned node take pods again.")
@click.option("--policy", metavar="ID", shell_complete=complete_policies, help="Decide by another policy.")
@click.option(
    "--submit",
    metavar="MANIFEST",
    type=FILE,
    help="Submit the pods of a file with manifests, JSON or YAML: of a Pod, or anything with a pod template.",
)
@run_time_option
@output_option("table", "json", "yaml")
@debug_option
def what_if(
    *,
    file: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    scheduler_names: tuple[str, ...],
    tenants: tuple[tuple[str, str, str | None], ...],
    output: str,
    **given: Any,
) -> None:
    """Say what the operator would do now, before and after changes: who starts, who waits and why, and shares.

    FILE is from `fairbind snapshot`, - for standard input; without it the cluster of the kubeconfig is listed. Nothing
    is written to the cluster. Each option but --policy and --submit may be given several times. For --submit it also
    says what stands in the way, the smallest single change that would let it start, and an estimate of the wait. On a
    cluster --submit asks for the right to create pods, for a dry run; without it defaults come from what is listed.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.cli.what_if import print_answer  # noqa: PLC0415 - as above

    source = Source("what-if", file, kubeconfig, context, namespace, scheduler_names, tenants)
    print_answer(source, output, **given)


@click.command(
    short_help="Compare the policies on a cluster, and recommend one.",
    epilog="\b\nExample:\n  $ fairbind advise cluster.json",
)
@source_options("Count pods of this spec.schedulerName as waiting for fairbind.")
@output_option("table", "json", "yaml")
@debug_option
def advise(*, file: str | None, output: str, **given: Any) -> None:
    """Say what each tenant's fair share is under each policy, who loses by totals, and which policy fits.

    FILE is from `fairbind snapshot`, - for standard input; without it the cluster of the kubeconfig is listed. Nothing
    is written to the cluster.
    """
    from fairbind.cli.advice import print_advice  # noqa: PLC0415 - numpy and the solvers
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - as above

    print_advice(Source("advise", file, **given), output)
