"""Computes cells in processes of this machine, each one cell after the other.

A process that is lost (killed when memory runs out, say) loses nothing but its own cell, which another one computes.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running

from fairbind.model.errors import FairbindError
from fairbind.simulator.sweep.cells import compute_cell
from fairbind.simulator.sweep.grid import Cell

MOST_LOSSES = 3
"""A cell with which so many processes were lost is given up."""


def compute_in_processes(count: int, cells: Sequence[Cell]) -> Generator[tuple[Cell, str], None, None]:
    """Yield cells with their results, in any order. count: of the processes. Raises FairbindError."""
    waiting, losses = deque(cells), Counter[str]()
    running: dict[Connection, tuple[BaseProcess, Cell]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < count:
                with _holding_interruptions_back():
                    process, connection = _start()
                    running[connection] = process, waiting[0]
                _hand_out(waiting.popleft(), process, connection, running)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                process, cell = running.pop(ready)
                result = _receive(ready, cell)
                if result is None:
                    process.join()
                    losses[cell.key] += 1
                    if losses[cell.key] == MOST_LOSSES:
                        raise FairbindError(f"{cell.describe()}: {MOST_LOSSES} processes that computed it were lost")
                    waiting.append(cell)
                    continue
                if waiting:
                    _hand_out(waiting.popleft(), process, ready, running)
                else:
                    ready.close()
                    process.join()
                yield cell, result
    finally:
        for process, _ in running.values():
            process.kill()


@contextmanager
def _holding_interruptions_back() -> Generator[None, None, None]:
    """Let Ctrl-C wait for the end of the block, and never come to a process that is started in it."""
    ensure_running()  # by itself it would be started in the block, and let signals through from then on
    noted: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is started inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if noted:
        raise KeyboardInterrupt


def _start() -> tuple[BaseProcess, Connection]:
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_answer, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _hand_out(
    cell: Cell, process: BaseProcess, connection: Connection, running: dict[Connection, tuple[BaseProcess, Cell]]
) -> None:
    running[connection] = process, cell
    with suppress(OSError):  # it is lost already, which is seen when its answer is waited for
        connection.send((cell.variant.text, cell.policy, cell.seed))


def _receive(connection: Connection, cell: Cell) -> str | None:
    """Return a result; None when the process is lost."""
    try:
        is_done, text = connection.recv()
    except (EOFError, OSError):
        return None
    if not is_done:
        raise FairbindError(f"{cell.describe()}: {text}")
    result: str = text
    return result


def _answer(connection: Connection) -> None:
    """Compute what is handed out until nothing more comes."""
    while True:
        try:
            text, policy, seed = connection.recv()
        except EOFError:
            return
        try:
            outcome = True, compute_cell(text, policy, seed)
        except Exception as error:  # noqa: BLE001 - told to who waits for it
            outcome = False, f"{type(error).__name__}: {error}"
        connection.send(outcome)
