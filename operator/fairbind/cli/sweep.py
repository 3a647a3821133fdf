"""The command `fairbind sweep`: reads a grid, has its missing cells computed, and writes what all cells say.

Where cells are computed decides nothing about their results: here one after the other, in processes of this machine,
or on the workers of a Dask scheduler. A finished cell is in its file before the next one is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import click

from fairbind.cli.documents import format_document
from fairbind.cli.exit_status import EXIT_INTERRUPTED
from fairbind.cli.mechanisms.limits import FileError
from fairbind.cli.mechanisms.reading import STANDARD_INPUT, name_file, read_document
from fairbind.cli.mechanisms.tables import lay_out_side_by_side, write_text
from fairbind.cli.progress import Progress
from fairbind.cli.simulation import make_folder
from fairbind.cli.sweep_dask import compute_on_dask
from fairbind.cli.sweep_processes import compute_in_processes
from fairbind.model.errors import InvalidProblemError
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.sweep.cells import CellFolder, compute_cell
from fairbind.simulator.sweep.confidence import check_has_scipy
from fairbind.simulator.sweep.grid import Cell, Sweep, parse_sweep
from fairbind.simulator.sweep.results import IntervalRow, write_sweep
from fairbind.simulator.tables import choose_format

Results: TypeAlias = Generator[tuple[Cell, str], None, None]
"""Cells with their results, in any order."""
SHOWN = {
    "completed": "completed",
    "makespan_seconds": "makespan s",
    "utilisation.cpu": "cpu used",
    "jain": "jain",
    "share_error.mean": "share error",
}
"""Measures of the table on the terminal, with their headings."""


def run_sweep(
    source: str, *, folder: Path, jobs: int | None, scheduler: str | None, tables: str | None, output: str
) -> int:
    """Compute, write and print; return the exit status. Raises InvalidProblemError for invalid input.

    jobs: None: as many as there are cores. scheduler: the address of a Dask scheduler, in place of jobs.
    """
    check_has_scipy()
    grid = parse_sweep(read_sweep(source))
    table_format = choose_format(tables)
    cells = list(grid.list_cells())
    make_folder(folder)
    kept = CellFolder(folder)
    by_key = {cell.key: cell for cell in cells}
    missing = {key: cell for key, cell in by_key.items() if kept.read(key) is None}
    count = len(by_key) - len(missing)
    progress = Progress(f"{len(by_key):,} cells")
    try:
        kept.create()
        with closing(_choose(jobs, scheduler, len(missing))(list(missing.values()))) as results:
            for cell, result in results:
                kept.write(cell.key, result)
                count += 1
                progress.show(count / len(by_key))
    except KeyboardInterrupt:
        progress.clear()
        click.echo(
            f"fairbind: interrupted: {count:,} of {len(by_key):,} cells are finished; the same command goes on",
            err=True,
        )
        return EXIT_INTERRUPTED
    finally:
        progress.clear()
    summaries = {key: _find_summary(kept, key) for key in by_key}
    intervals = write_sweep(folder, grid, [(cell, summaries[cell.key]) for cell in cells], table_format)
    if output != "table":
        write_text(format_document({"intervals": [row._asdict() for row in intervals]}, output))
        return 0
    rows = compute_table(grid, intervals)
    write_text("\n".join(lay_out_side_by_side(rows, keys=rows[0].index(next(iter(SHOWN.values()))))))
    return 0


def read_sweep(source: str) -> object:
    """Return the document; a scenario that it names by its path, relative to its own, is put in its place."""
    document = read_document(source)
    if not isinstance(document, Mapping) or not isinstance(document.get("scenario"), str):
        return document
    folder = Path() if source == STANDARD_INPUT else Path(source).parent
    path = document["scenario"]
    if path == STANDARD_INPUT:
        raise InvalidProblemError("scenario: must be a scenario, or the path of its file, not standard input")
    return {**document, "scenario": _read_scenario(str(folder / path))}


def _read_scenario(source: str) -> object:
    """Return the scenario in a file that a sweep names.

    The sweep may come from someone who cannot read the file, and errors may be seen where its output is: they hold
    nothing of the content.
    """
    try:
        document = read_document(source)
        parse_scenario(document)
    except FileError:
        raise
    except InvalidProblemError:
        raise InvalidProblemError(
            f"scenario: {name_file(source)} is no scenario; `fairbind simulate` of that file says why"
        ) from None
    return document


def _choose(jobs: int | None, scheduler: str | None, missing: int) -> Callable[[Sequence[Cell]], Results]:
    """Return who computes cells."""
    if scheduler is not None:
        return lambda cells: compute_on_dask(scheduler, cells)
    count = min(len(os.sched_getaffinity(0)) if jobs is None else jobs, missing)
    if count > 1:
        return lambda cells: compute_in_processes(count, cells)
    return _compute_one_by_one


def _compute_one_by_one(cells: Iterable[Cell]) -> Results:
    for cell in cells:
        yield cell, compute_cell(cell.variant.text, cell.policy, cell.seed)


def _find_summary(kept: CellFolder, key: str) -> Mapping[str, Any]:
    summary = kept.read(key)
    if summary is None:
        raise InvalidProblemError(f"--out: the finished cell {key} is gone or was changed meanwhile")
    return summary


def compute_table(sweep: Sweep, intervals: Iterable[IntervalRow]) -> list[list[str]]:
    """Return the means of the whole cluster with their intervals, in lines for a terminal."""
    rows = [["policy", "weights", "sizes", *SHOWN.values()]]
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in intervals:
        if row.tenant is None and row.measure in SHOWN:
            found.setdefault((row.policy, row.weights, row.sizes), {})[row.measure] = _show(row)
    for names, shown in found.items():
        rows.append([*(name or "-" for name in names), *(shown.get(measure, "-") for measure in SHOWN)])
    if all(not variant.weights and not variant.sizes for variant in sweep.variants):
        return [[row[0], *row[3:]] for row in rows]
    return rows


def _show(row: IntervalRow) -> str:
    if row.mean is None:
        return "-"
    if row.low is None or row.high is None:
        return f"{row.mean:.3f}"
    return f"{row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]"
