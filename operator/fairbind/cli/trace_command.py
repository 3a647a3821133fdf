"""What `fairbind trace` takes. What it does is imported when it runs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from fairbind.cli.mechanisms.commands import Seed
from fairbind.cli.options import debug_option

FORMATS = ("openb", "dlrm", "google2011", "bitbrains", "table")
NODE_FORMATS = ("openb", "table")
MOST_SECONDS = 1e9
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


class Source(click.ParamType[tuple[str, Path]]):
    """A format and a file, as FORMAT:FILE."""

    name = "format:file"

    def __init__(self, formats: tuple[str, ...]) -> None:
        self._formats = formats

    def convert(
        self, value: str | tuple[str, Path], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path]:
        """Return both, or fail as the command line's errors do."""
        if isinstance(value, tuple):
            return value
        kind, separator, path = value.partition(":")
        if not separator or kind not in self._formats:
            self.fail(f"must be FORMAT:FILE with a format of {', '.join(self._formats)}, not {value!r}", param, ctx)
        return kind, Path(_file.convert(path, param, ctx))


class Unknown(click.ParamType[str | float]):
    """What is assumed of tasks without a length."""

    name = "choice"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> str | float:
        """Return a word or seconds, or fail as the command line's errors do."""
        if isinstance(value, float) or value in {"median", "forever", "leave-out"}:
            return value
        if not re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII) or not 0 < float(value) <= MOST_SECONDS:
            self.fail(
                f"must be median, forever, leave-out or seconds up to {MOST_SECONDS:g}, not {value!r}", param, ctx
            )
        return float(value)


@click.command(
    short_help="Make a scenario of a workload trace.",
    epilog="\b\nExample:\n  $ fairbind trace openb pods.csv --nodes openb:nodes.csv --out scenario.json",
)
@click.argument("kind", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("tasks", type=_file)
@click.option(
    "--nodes",
    required=True,
    type=Source(NODE_FORMATS),
    help=f"Read the cluster from FORMAT:FILE, with a format of {', '.join(NODE_FORMATS)}.",
)
@click.option(
    "--pods",
    type=Source(tuple(kind for kind in FORMATS if kind != "google2011")),
    help="Draw from another trace, FORMAT:FILE, what each task asks for; the result is called a composite.",
)
@click.option(
    "--usage",
    metavar="FILE",
    type=_file,
    help="Read the fragments of bitbrains. CPU requests are then the most that was used.",
)
@click.option(
    "--gpu",
    type=click.Choice(["whole", "milli"]),
    default="whole",
    show_default=True,
    help="Count a part of a GPU as a whole one, or GPUs in thousandths of all of a node's. Only openb.",
)
@click.option(
    "--ignore",
    "ignored",
    metavar="RESOURCE",
    multiple=True,
    help="Leave this resource out of what tasks ask for. May be repeated.",
)
@click.option(
    "--outliving",
    type=click.Choice(["forever", "trace-end", "leave-out"]),
    default="forever",
    show_default=True,
    help="Let tasks that outlive the trace run for ever, end where it ends, or leave them out.",
)
@click.option(
    "--unknown",
    type=Unknown(),
    default="median",
    show_default=True,
    help="Let tasks without a length in the trace run for the median of the others, forever or so many seconds, or "
    "leave them out: median, forever, leave-out or a number.",
)
@click.option(
    "--from",
    "first",
    metavar="SECONDS",
    type=click.FloatRange(0, MOST_SECONDS),
    default=0.0,
    help="Keep only arrivals from this time on.",
)
@click.option(
    "--until",
    metavar="SECONDS",
    type=click.FloatRange(0, MOST_SECONDS),
    help="Keep only arrivals before this time; it is the horizon.",
)
@click.option("--gangs", is_flag=True, help="Read the groups of a table, whose tasks start together. Only table.")
@click.option("--seed", metavar="NUMBER", type=Seed(), default=0, help="Draw from --pods by this whole number, from 0.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the scenario to this file. Without it: to standard output.",
)
@debug_option
def trace(
    *,
    kind: str,
    tasks: Path,
    nodes: tuple[str, Path],
    pods: tuple[str, Path] | None,
    usage: Path | None,
    gpu: str,
    ignored: tuple[str, ...],
    outliving: str,
    unknown: str | float,
    first: float,
    until: float | None,
    gangs: bool,
    seed: int,
    out: Path | None,
) -> int:
    """Make a scenario for `fairbind simulate` of TASKS, a workload trace in FORMAT.

    Files may be gzipped. Equal tasks of a tenant become one workload entry. Invalid rows are left out and named. The
    command says what it assumes and of how many tasks; the scenario's notes keep it.
    """
    from fairbind.cli.trace_scenario import Request, write_scenario  # noqa: PLC0415 - numpy and the simulator

    request = Request(
        kind=kind,
        tasks=tasks,
        nodes=nodes,
        pods=pods,
        usage=usage,
        has_gpu_parts=gpu == "milli",
        ignored=ignored,
        outliving=outliving,
        unknown=unknown,
        first=first,
        until=until,
        seed=seed,
        keeps_groups=gangs,
    )
    write_scenario(request, out)
    return 0
