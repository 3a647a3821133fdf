"""What `fairbind simulate` takes. What it does is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairbind.cli.cluster_options import listed_scheduler_names_option, live_options, tenant_option
from fairbind.cli.completion import FILE, complete_simulated
from fairbind.cli.mechanisms.commands import Seed
from fairbind.cli.options import debug_option, gather_run_times, is_typed, output_option, run_time_option

MOST_JOBS = 1024


@click.command(
    short_help="Simulate a workload under one or several policies.",
    epilog="\b\nExample:\n  $ fairbind simulate scenario.yaml --policy ps-dsf --out results --tables csv",
)
@click.argument("scenario", required=False, type=FILE)
@click.option("--from", "snapshot", metavar="FILE", type=FILE, help="Begin with a snapshot of a cluster.")
@click.option("--from-cluster", is_flag=True, help="Begin with the cluster of the kubeconfig as it is now.")
@live_options
@listed_scheduler_names_option("Count pods of that cluster with this spec.schedulerName as waiting.")
@tenant_option
@run_time_option
@click.option(
    "--policy",
    "policies",
    metavar="ID",
    multiple=True,
    shell_complete=complete_simulated,
    help="Simulate this policy, in place of those of the scenario. May be repeated.",
)
@click.option(
    "--seed", metavar="NUMBER", type=Seed(), help="Draw from this whole number, from 0, in place of the scenario's."
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the tables, summary.json and report.html to this folder. Without it only the policies are printed.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, MOST_JOBS),
    default=1,
    show_default=True,
    help="Simulate so many policies at a time. The results are the same.",
)
@click.option(
    "--tables",
    type=click.Choice(["parquet", "csv"]),
    show_default="parquet where pyarrow is installed, else csv",
    help="Write the tables in this format. Parquet needs the extra `simulate`.",
)
@output_option("table", "json", "yaml")
@debug_option
def simulate(
    *,
    scenario: str | None,
    snapshot: str | None,
    from_cluster: bool,
    run_times: tuple[tuple[str, str], ...],
    policies: tuple[str, ...],
    seed: int | None,
    out: Path | None,
    jobs: int,
    tables: str | None,
    output: str,
    **given: Any,
) -> int:
    """Simulate SCENARIO: the operator's own decisions on a virtual clock.

    SCENARIO is a JSON or YAML file, or - for standard input; `fairbind schema scenario` describes it. The same seed
    gives the same arrivals and durations to all policies, and the same bytes in each file. Ctrl-C writes what was
    decided until then and exits with 130.

    With --from (`fairbind snapshot`) or --from-cluster pods that run and wait now are simulated until their run times
    are over; a pod of which no run time is known never ends. SCENARIO, if it is there too, says what else happens:
    nodes, tenants, tasks and events, none of which is required then.
    """
    from fairbind.cli.cluster_listing import Source  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.cli.simulation import run_scenario  # noqa: PLC0415 - as above

    if snapshot is not None and from_cluster:
        raise click.UsageError("--from: must be left out beside --from-cluster")
    begins = snapshot is not None or from_cluster
    for option, name in (("tenants", "--tenant"), *((name, f"--{name}") for name in ("context", "kubeconfig"))):
        if not begins and is_typed(option):
            raise click.UsageError(f"{name}: must stand beside --from or --from-cluster")
    return run_scenario(
        scenario,
        start=Source("simulate", snapshot, **given) if begins else None,
        run_times=gather_run_times(run_times),
        policies=policies,
        seed=seed,
        folder=out,
        jobs=jobs,
        tables=tables,
        output=output,
    )
