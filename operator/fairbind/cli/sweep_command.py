"""What `fairbind sweep` takes. What it does is imported when it runs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from fairbind.cli.completion import FILE
from fairbind.cli.options import debug_option, output_option
from fairbind.cli.simulate import MOST_JOBS


class Address(click.ParamType[str]):
    """Where a Dask scheduler listens."""

    name = "address"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the address, or fail as the command line's errors do."""
        found = re.fullmatch(r"(tcp|tls)://[^\s/]+:(\d{1,5})", value, re.ASCII)
        if found is None or not 0 < int(found[2]) < 2**16:
            self.fail(f"must be as tcp://host:8786, not {value!r}", param, ctx)
        return value


@click.command(
    short_help="Simulate a grid of policies, seeds, weights and sizes.",
    epilog="\b\nExample:\n  $ fairbind sweep sweep.yaml --out results --jobs 1",
)
@click.argument("file", type=FILE)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    required=True,
    help="Write the tables, summary.json and finished cells to this folder. Cells that are there are not recomputed.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, MOST_JOBS),
    show_default="one for each core",
    help="Simulate so many cells at a time on this machine.",
)
@click.option(
    "--scheduler",
    metavar="tcp://HOST:PORT",
    type=Address(),
    help="Simulate on the workers of this Dask scheduler. Needs the extra `distributed`, also where the workers run.",
)
@click.option(
    "--tables",
    type=click.Choice(["parquet", "csv"]),
    show_default="parquet where pyarrow is installed, else csv",
    help="Write the tables in this format. Parquet needs the extra `simulate`.",
)
@output_option("table", "json", "yaml")
@debug_option
def sweep(*, file: str, out: Path, jobs: int | None, scheduler: str | None, tables: str | None, output: str) -> int:
    """Simulate every cell of the grid that FILE describes.

    FILE is a JSON or YAML file, or - for standard input; `fairbind schema sweep` describes it. A cell is one policy,
    seed, set of weights and set of sizes. Each finished cell is kept, so the same command goes on after an
    interruption. The files are the same, byte for byte, however many workers there are. Means over seeds come with
    bootstrap intervals. Needs the extra `simulate`.
    """
    from fairbind.cli.sweep import run_sweep  # noqa: PLC0415 - numpy and the scheduler

    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs: must not stand beside --scheduler, whose workers decide how many run")
    return run_sweep(file, folder=out, jobs=jobs, scheduler=scheduler, tables=tables, output=output)
