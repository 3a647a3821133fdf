"""Reads a trace's file row by row: CSV, plain or gzipped, or Parquet where pyarrow is installed.

An invalid row is left out, counted and named. A file of another format, one that ends in the middle of a row, and one
that exceeds `TableLimits` are refused: a compressed file may be a thousandth of what it holds.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from fairbind.fairness.problems.fields import show_value
from fairbind.model import InvalidProblemError
from fairbind.what_if.reading import MOST_SECONDS, NANOSECONDS

MOST_NAMED: Final = 5
"""So many of the rows that were left out are named."""
MOST_SHOWN: Final = 60
"""Characters of a column's name in a message."""
GZIP_MAGIC: Final = b"\x1f\x8b"

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Bounds on one file. row_bytes: of one row, uncompressed. rows: all rows, the invalid ones and the header too."""

    row_bytes: int = 2**20
    rows: int = 20_000_000


LIMITS: Final = TableLimits()
ROWS_AT_ONCE: Final = 1024  # of Parquet: what a file stores once may stand in each of its rows


class BrokenRowError(Exception):
    """A row of a trace is invalid; the message says which column and why."""


@dataclass(slots=True)
class LeftOut:
    """The rows of a file that were left out. named: the first of them, with the reason."""

    path: Path
    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, number: int, reason: str) -> None:
        """Count a row. number: its line, from 1."""
        self.count += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(f"{self.path.name}, line {number}: {reason}")


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its values by column, and its line in the file, from 1."""

    number: int
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return a value that is not empty."""
        value = self.values[column].strip()
        if not value:
            raise BrokenRowError(f"{column} is empty")
        return value

    def amount(self, column: str) -> float:
        """Return a finite number from 0; an empty value is 0."""
        value = self.values[column].strip()
        return self._to_number(column, value) if value else 0.0

    def time(self, column: str, unit: float) -> int | None:
        """Return a time in nanoseconds; None where the value is empty. unit: seconds in one of the column's."""
        value = self.values[column].strip()
        if not value:
            return None
        seconds = self._to_number(column, value) * unit
        if seconds > MOST_SECONDS:
            raise BrokenRowError(f"{column} is {show_value(value)}, which is more than {MOST_SECONDS:g} seconds")
        return round(seconds * NANOSECONDS)

    def _to_number(self, column: str, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < 0:
            raise BrokenRowError(f"{column} must be a number from 0, not {show_value(value)}")
        return number


def read_table(
    path: Path,
    columns: Sequence[str],
    make: Callable[[Row], Made],
    *,
    what: str,
    left_out: LeftOut,
    has_header: bool = True,
    limits: TableLimits = LIMITS,
) -> Iterator[Made]:
    """Yield what is made of each row of a file; a row for which `make` raises BrokenRowError is left out.

    columns: those that must be there; without a header, all of them in their order. what: what the file should be, for
    messages. Raises InvalidProblemError for a file that cannot be read or is something else.
    """
    if path.suffix == ".parquet":
        rows = _read_parquet(path, columns, what, limits)
    else:
        rows = _read_csv(path, columns, what=what, left_out=left_out, has_header=has_header, limits=limits)
    for row in rows:
        try:
            made = make(row)
        except BrokenRowError as error:
            left_out.add(row.number, str(error))
        else:
            yield made


def _read_csv(
    path: Path, columns: Sequence[str], *, what: str, left_out: LeftOut, has_header: bool, limits: TableLimits
) -> Iterator[Row]:
    lines = _Lines(path, limits)
    reader = csv.reader(lines)
    names = list(columns)
    try:
        if has_header:
            names = [name.strip() for name in next(reader, [])]
            _check_columns(path, names, columns, what)
            lines.end_row()
        for cells in reader:
            lines.end_row()
            if len(cells) == len(names):
                yield Row(reader.line_num, dict(zip(names, cells, strict=True)))
            elif lines.is_cut:
                raise InvalidProblemError(f"{path}: ends in the middle of line {reader.line_num}")
            elif not has_header and reader.line_num == 1:
                raise InvalidProblemError(f"{path}: is no {what}: line 1 has {len(cells)} columns, not {len(names)}")
            elif cells:
                left_out.add(reader.line_num, f"has {len(cells)} columns, not {len(names)}")
    except csv.Error as error:
        raise InvalidProblemError(f"{path}: line {reader.line_num}: {error}") from error


def _check_columns(path: Path, names: Sequence[str], columns: Sequence[str], what: str) -> None:
    missing = [column for column in columns if column not in names]
    if missing:
        shown = ", ".join(name[:MOST_SHOWN] for name in names[:8]) or "nothing"
        raise InvalidProblemError(
            f"{path}: is no {what}: its first line must name the columns {', '.join(columns)}; it has {shown}"
        )
    if len(set(names)) != len(names):
        raise InvalidProblemError(f"{path}: is no {what}: its first line names a column twice")


class _Lines:
    """The lines of a file as text. is_cut: the last line that was read does not end as a line does.

    A row is all lines since the last `end_row`: in quotes it may go on over any number of them.
    """

    def __init__(self, path: Path, limits: TableLimits) -> None:
        self._path = path
        self._limits = limits
        self._row_bytes = 0
        self._rows = 0
        self.is_cut = False

    def end_row(self) -> None:
        """Count a row. Raises InvalidProblemError where there are too many."""
        self._row_bytes = 0
        self._rows += 1
        check_rows(self._path, self._rows, self._limits)

    def __iter__(self) -> Iterator[str]:
        number = 0
        try:
            with _open(self._path) as file:
                while line := file.readline(self._limits.row_bytes - self._row_bytes + 1):
                    number += 1
                    self._row_bytes += len(line)
                    check_row(self._path, number, self._row_bytes, self._limits)
                    self.is_cut = not line.endswith(b"\n")
                    yield line.decode("utf-8")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidProblemError(f"{self._path}: ends in the middle of line {number + 1}") from error
        except UnicodeDecodeError as error:
            raise InvalidProblemError(f"{self._path}: line {number} is no text in UTF-8") from error
        except OSError as error:
            raise InvalidProblemError(f"{self._path}: cannot be read: {error.strerror or error}") from error


def check_row(path: Path, line: int, row_bytes: int, limits: TableLimits) -> None:
    """Raise InvalidProblemError if the row that ends or goes on in this line is too large."""
    if row_bytes > limits.row_bytes:
        raise InvalidProblemError(f"{path}: line {line}: a row must not be larger than {limits.row_bytes:,} bytes")


def check_rows(path: Path, rows: int, limits: TableLimits) -> None:
    """Raise InvalidProblemError if the file has too many rows."""
    if rows > limits.rows:
        raise InvalidProblemError(f"{path}: must not have more than {limits.rows:,} rows")


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    with path.open("rb") as file:
        is_compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.open(path) if is_compressed else path.open("rb")


def _read_parquet(path: Path, columns: Sequence[str], what: str, limits: TableLimits) -> Iterator[Row]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - the same
    except ImportError as error:
        raise InvalidProblemError(f"{path}: pyarrow is not installed: pip install 'fairbind[simulate]'") from error
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow.names, columns, what)
            check_rows(path, file.metadata.num_rows, limits)
            number = 0
            for batch in file.iter_batches(ROWS_AT_ONCE):
                check_row(path, number + 1, batch.nbytes // max(1, batch.num_rows), limits)
                for values in batch.to_pylist():
                    number += 1
                    yield Row(number, {name: "" if value is None else str(value) for name, value in values.items()})
    except (pa.ArrowException, OSError) as error:
        raise InvalidProblemError(f"{path}: is no Parquet file that can be read: {error}") from error
