"""Computes cells on the workers of a Dask scheduler.

Cells are handed over a few at a time, whole: nothing that a cell needs lies on one worker only, so the scheduler gives
the cells of a lost worker to others. The workers need the same version of fairbind.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from fairbind import __version__
from fairbind.model.errors import FairbindError, InvalidProblemError
from fairbind.simulator.sweep.cells import compute_cell
from fairbind.simulator.sweep.grid import Cell

CONNECT_SECONDS: Final = 30.0
AHEAD: Final = 2
"""For each thread of a worker so many cells are with the scheduler, so that none waits for us."""
LEAST_AHEAD: Final = 8


def compute_on_dask(address: str, cells: Sequence[Cell]) -> Generator[tuple[Cell, str], None, None]:
    """Yield cells with their results, in any order. Raises FairbindError when the scheduler cannot be reached."""
    try:
        from distributed import Client  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise InvalidProblemError(
            "--scheduler: distributed is not installed: pip install 'fairbind[distributed]'"
        ) from error
    if not cells:
        return
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is told below, in a line
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise FairbindError(f"--scheduler: {address} cannot be reached: {error}") from error
    with client:
        yield from _gather(client, iter(cells))


def _gather(client: Any, cells: Iterator[Cell]) -> Generator[tuple[Cell, str], None, None]:
    from distributed import as_completed  # noqa: PLC0415 - as above

    pending: dict[str, Cell] = {}
    futures = as_completed(loop=client.loop, raise_errors=False)
    name = uuid.uuid4().hex
    _submit_ahead(client, cells, futures, pending, name)
    for future in futures:
        cell = pending.pop(future.key)
        result = _take(future, cell)
        del future  # the scheduler forgets what no one refers to
        _submit_ahead(client, cells, futures, pending, name)
        yield cell, result


def _submit_ahead(client: Any, cells: Iterator[Cell], futures: Any, pending: dict[str, Cell], name: str) -> None:
    threads = sum(client.nthreads().values())
    while len(pending) < max(LEAST_AHEAD, AHEAD * threads):
        cell = next(cells, None)
        if cell is None:
            return
        key = f"fairbind-{name}-{cell.key}"
        pending[key] = cell
        futures.add(client.submit(compute_cell, cell.variant.text, cell.policy, cell.seed, key=key))


def _take(future: Any, cell: Cell) -> str:
    """Return a finished cell's result. Raises FairbindError."""
    if future.status != "finished":
        error = future.exception() if future.status == "error" else None
        why = "the scheduler was lost" if error is None else f"{type(error).__name__}: {error}"
        raise FairbindError(f"{cell.describe()}: {' '.join(why.split())}; the same command goes on")
    result: str = future.result()
    version = json.loads(result)["fairbind"]
    if version != __version__:
        raise FairbindError(f"--scheduler: its workers have fairbind {version}, and here it is {__version__}")
    return result
