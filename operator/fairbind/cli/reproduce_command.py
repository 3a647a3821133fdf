"""The command `fairbind reproduce`: the papers' evaluations, done again."""

from __future__ import annotations

import time
from pathlib import Path

import click

from fairbind.cli.options import debug_option


@click.command(
    short_help="Do the papers' evaluations again.",
    epilog="\b\nExample:\n  $ fairbind reproduce drfh --figure 5 --out results",
)
@click.argument("paper")
@click.option("--figure", metavar="N", help="Only this figure; table-2 is table 2.")
@click.option(
    "--scale",
    type=click.Choice(["small", "full"]),
    default="small",
    show_default=True,
    help="small takes seconds a figure, full is the paper's own size as far as it is printed.",
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Folder for PAPER-figure-N.csv, the pictures and index.html.",
)
@debug_option
def reproduce(*, paper: str, figure: str | None, scale: str, out: Path) -> int:
    """Do the evaluation of PAPER again: drf, drfh, ps-dsf, drbf, dynamic-drf, or all.

    Each figure gives a table and a picture with the paper's axes; index.html says what the paper says, what comes out
    here and why they differ. Nothing is tuned to meet a figure. Workloads that papers take from traces are synthetic.
    Needs the extra `simulate`.
    """
    from fairbind.model.errors import InvalidProblemError  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.reproduction.drawing import check_can_draw, draw  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.reproduction.outcome import Lab  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.reproduction.page import compute_page, write_table  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.simulator.reproduction.registry import find_figures  # noqa: PLC0415 - numpy and the scheduler

    figures = find_figures(paper, figure)
    check_can_draw()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidProblemError(f"--out: {out} cannot be a folder: {error.strerror}") from error
    lab = Lab(is_full=scale == "full", clock=time.perf_counter)
    outcomes = []
    for _, do in figures:
        outcome = do(lab)
        write_table(outcome, out)
        draw(outcome, out / f"{outcome.name}.svg")
        outcomes.append(outcome)
        click.echo(f"{outcome.name}: {outcome.title}")
        for each in outcome.comparisons:
            click.echo(f"  paper: {each.paper}\n  here:  {each.ours}\n  why:   {each.why}")
    (out / "index.html").write_text(compute_page(outcomes, scale), encoding="utf-8")
    return 0
