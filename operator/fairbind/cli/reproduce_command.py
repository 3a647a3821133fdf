"""The command `fairbind reproduce`: the papers' evaluations, done again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.tables import write_text
from fairbind.cli.options import debug_option, output_option

if TYPE_CHECKING:
    from fairbind.simulator.reproduction.outcome import Outcome


@click.command(
    short_help="Do the papers' evaluations again.",
    epilog="\b\nExample:\n  $ fairbind reproduce drfh --figure 5 --out results",
)
@click.argument("paper")
@click.option("--figure", metavar="N", help="Do only this figure; table-2 is table 2.")
@click.option(
    "--scale",
    type=click.Choice(["small", "full"]),
    default="small",
    show_default=True,
    help="Choose the size: small takes seconds a figure, full is the paper's own size as far as it is printed.",
)
@click.option(
    "--trace",
    metavar="bitbrains:FILE",
    help="Draw cpu and memory from this trace's machines, for figures 7 and 12 of ps-dsf.",
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Write PAPER-figure-N.csv, the pictures and index.html to this folder.",
)
@output_option("table", "json", "yaml")
@debug_option
def reproduce(*, paper: str, figure: str | None, scale: str, trace: str | None, out: Path, output: str) -> int:
    """Do the evaluation of PAPER again: drf, drfh, ps-dsf, drbf, dynamic-drf, or all.

    Each figure gives a table and a picture with the paper's axes; index.html says what the paper says, what comes out
    here and why they differ. Nothing is tuned to meet a figure. Workloads that papers take from traces are synthetic,
    but for what --trace gives.
    Needs the extra `simulate`.
    """
    from fairbind.model.errors import InvalidProblemError  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.reproduction.drawing import check_can_draw, draw  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.reproduction.outcome import Lab  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.reproduction.page import (  # noqa: PLC0415 - numpy and the scheduler
        INDEX,
        compute_page,
        write_table,
    )
    from fairbind.simulator.reproduction.registry import find_figures  # noqa: PLC0415 - numpy and the scheduler

    figures = find_figures(paper, figure)
    check_can_draw()
    machines = [] if trace is None else _read_machines(trace)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidProblemError(f"--out: {out} cannot be a folder: {error.strerror}") from error
    lab = Lab(is_full=scale == "full", clock=time.perf_counter, machines=machines)
    outcomes = []
    for _, do in figures:
        outcome = do(lab)
        write_table(outcome, out)
        draw(outcome, out / f"{outcome.name}.svg")
        outcomes.append(outcome)
        if output == "table":
            _print(outcome)
    files = [path.name for path in out.iterdir() if path.is_file()]
    (out / INDEX).write_text(compute_page(outcomes, scale, files), encoding="utf-8")
    if output != "table":
        write_text(format_document({"figures": [_describe(outcome) for outcome in outcomes]}, output))
    return 0


def _print(outcome: Outcome) -> None:
    lines = [f"{outcome.name}: {outcome.title}"]
    for each in outcome.comparisons:
        lines += [f"  paper: {each.paper}", f"  here:  {each.ours}", f"  why:   {each.why}"]
    write_text("\n".join(lines))


def _describe(outcome: Outcome) -> dict[str, Any]:
    compared = [{"paper": each.paper, "here": each.ours, "why": each.why} for each in outcome.comparisons]
    return {"figure": outcome.name, "title": outcome.title, "comparisons": compared}


def _read_machines(trace: str) -> list[tuple[float, float]]:
    """Return GHz and GB of each machine of a trace, which is given as FORMAT:FILE."""
    from fairbind.model.errors import InvalidProblemError  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.traces import bitbrains  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.traces.rows import LeftOut  # noqa: PLC0415 - numpy and the scheduler

    kind, colon, name = trace.partition(":")
    if kind != "bitbrains" or not colon or not name:
        raise InvalidProblemError(f"--trace: {trace} must be bitbrains:FILE, with the list of machines")
    left_out = LeftOut(Path(name))
    machines = bitbrains.read_machines(left_out.path, left_out)
    for each in left_out.named:
        click.echo(f"left out: {each}", err=True)
    if not machines:
        raise InvalidProblemError(f"--trace: {name} has no machine that can be read")
    return machines
