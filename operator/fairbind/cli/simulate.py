"""What `fairbind simulate` takes. What it does is imported when it runs."""

from __future__ import annotations

from pathlib import Path

import click

from fairbind.cli.mechanisms.commands import Seed
from fairbind.cli.options import debug_option, gather_run_times, run_time_option

MOST_JOBS = 1024


@click.command(
    short_help="Simulate a workload under one or several policies.",
    epilog="\b\nExample:\n  $ fairbind simulate scenario.yaml --policy ps-dsf --out results --tables csv",
)
@click.argument("scenario", required=False)
@click.option("--from", "snapshot", metavar="FILE", help="Begin with a snapshot of a cluster.")
@run_time_option
@click.option(
    "--policy",
    "policies",
    metavar="ID",
    multiple=True,
    help="Simulate this policy, in place of those of the scenario. May be given several times.",
)
@click.option("--seed", metavar="NUMBER", type=Seed(), help="A whole number from 0, in place of the scenario's.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder for the tables, summary.json and report.html. Without it only the table of the policies is printed.",
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
    help="How the tables are written. Parquet needs the extra `simulate`.",
)
@debug_option
def simulate(
    *,
    scenario: str | None,
    snapshot: str | None,
    run_times: tuple[tuple[str, str], ...],
    policies: tuple[str, ...],
    seed: int | None,
    out: Path | None,
    jobs: int,
    tables: str | None,
) -> int:
    """Simulate SCENARIO: the operator's own decisions on a virtual clock.

    SCENARIO is a JSON or YAML file, or - for standard input; `fairbind schema scenario` describes it. The same seed
    gives the same arrivals and durations to all policies, and the same bytes in each file. Ctrl-C writes what was
    decided until then and exits with 130.

    With --from (`fairbind snapshot`) pods that run and wait now are simulated until their run times are over; a pod of
    which no run time is known never ends. SCENARIO, if it is there too, says what else happens: nodes, tenants, tasks
    and events, none of which is required then.
    """
    from fairbind.cli.simulation import run_scenario  # noqa: PLC0415 - numpy and the scheduler

    return run_scenario(
        scenario,
        snapshot=snapshot,
        run_times=gather_run_times(run_times),
        policies=policies,
        seed=seed,
        folder=out,
        jobs=jobs,
        tables=tables,
    )
