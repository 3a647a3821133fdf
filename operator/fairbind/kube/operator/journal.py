"""Writes the journal of cycles to a file, in a thread of its own, so that no cycle ever waits for a disk.

The file is bounded: before it exceeds its limit it is renamed to FILE.1, which replaces an older one, and a new FILE
begins. A journal is for looking back, so no trouble with it stops the operator: what cannot be written is left out, and
the log says so once. The records are numbered, so gaps are seen.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from pathlib import Path
from typing import BinaryIO

from fairbind.cluster.loop.journal import CycleRecord, format_record

MAX_BYTES = 64 * 2**20
"""Of one file; with the one before it twice as much."""
MAX_WAITING = 1_000
"""Records that wait for the disk, at most."""
CLOSE_SECONDS = 1.0

_log = logging.getLogger(__name__)


class JournalWriter:
    """Appends records to a file. path: its folder must exist. max_bytes: of the file, before it is renamed."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._waiting: queue.Queue[CycleRecord | None] = queue.Queue(MAX_WAITING)
        self._file: BinaryIO | None = None
        self._has_complained = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def record(self, record: CycleRecord) -> None:
        """Have a record written. Returns at once."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._complain("the disk is too slow")

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Write what waits, and end; at the latest after about the time that is given."""
        try:
            self._waiting.put(None, timeout=timeout_seconds)
        except queue.Full:
            return
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (record := self._waiting.get()) is not None:
            try:
                self._write(format_record(record))
            except OSError as error:
                self._close_file()  # and open it again for the next record
                self._complain(str(error))
        self._close_file()

    def _write(self, line: bytes) -> None:
        file = self._file or self._open()
        if file.tell() and file.tell() + len(line) > self._max_bytes:
            file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            file = self._open()
        file.write(line)

    def _open(self) -> BinaryIO:
        """Open the file without a buffer, at its end; half a line that a crash left is ended first."""
        self._file = self._path.open("a+b", buffering=0)
        if self._file.tell():
            self._file.seek(-1, 2)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None

    def _complain(self, trouble: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            _log.error("the journal %s misses cycles: %s", self._path, trouble)
