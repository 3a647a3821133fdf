"""Writes the tables of runs: as CSV with one header line, or as Parquet where pyarrow is installed.

Times are seconds as decimal numbers. Nothing is rounded but what a float64 cannot hold.
"""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_type_hints

import numpy as np

from fairbind.model import InvalidProblemError
from fairbind.simulator.results import Run, ShareRow, TaskRow, UtilisationRow
from fairbind.what_if.reading import NANOSECONDS

PARQUET: Final = "parquet"
CSV: Final = "csv"
_TIMES: Final = frozenset({"time", "arrival", "start", "end"})
_ROWS: Final[Mapping[str, type[TaskRow | ShareRow | UtilisationRow]]] = {
    "tasks": TaskRow,
    "shares": ShareRow,
    "utilisation": UtilisationRow,
}


def has_parquet() -> bool:
    """Whether Parquet can be written here."""
    return importlib.util.find_spec("pyarrow") is not None


def choose_format(wanted: str | None) -> str:
    """Return how tables are written. Raises InvalidProblemError when it is Parquet and there is no pyarrow."""
    if wanted == PARQUET and not has_parquet():
        raise InvalidProblemError("--tables: pyarrow is not installed: pip install 'fairbind[simulate]'")
    return wanted or (PARQUET if has_parquet() else CSV)


def write_results(
    folder: Path,
    runs: Sequence[Run],
    table_format: str,
    *,
    is_interrupted: bool = False,
    composite: str | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write the tables and the summary into a folder. composite, notes: of the scenario."""
    for name, kind in _ROWS.items():
        write_table(folder, name, kind, [row for run in runs for row in getattr(run, name)], table_format)
    document = describe_results(runs, is_interrupted=is_interrupted, composite=composite, notes=notes)
    summary = json.dumps(document, indent=2, allow_nan=False)
    (folder / "summary.json").write_text(f"{summary}\n", encoding="utf-8")


def describe_results(
    runs: Sequence[Run], *, is_interrupted: bool = False, composite: str | None = None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the content of summary.json; see `write_results`."""
    optional = {"interrupted": is_interrupted, "composite": composite, "notes": list(notes)}
    return {
        "policies": {run.policy: run.summary for run in runs},
        **{name: value for name, value in optional.items() if value},
    }


def write_table(folder: Path, name: str, kind: type[Any], rows: Sequence[Any], table_format: str) -> None:
    """Write one table into a folder. kind: the named tuple of its rows; times are nanoseconds in it."""
    write = _write_parquet if table_format == PARQUET else _write_csv
    write(folder / f"{name}.{table_format}", kind, rows)


def _write_csv(path: Path, kind: type[Any], rows: Sequence[Any]) -> None:
    fields = kind._fields
    formats = [_format_time if field in _TIMES else _format_value for field in fields]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(fields)
        writer.writerows([form(value) for form, value in zip(formats, row, strict=True)] for row in rows)


def _format_time(nanoseconds: int | None) -> str:
    """Return seconds, exactly.

    >>> _format_time(1_500_000_000), _format_time(10_000_000_000), _format_time(None)
    ('1.5', '10', '')
    """
    if nanoseconds is None:
        return ""
    whole, part = divmod(nanoseconds, NANOSECONDS)
    return f"{whole}.{part:09}".rstrip("0") if part else str(whole)


def _format_value(value: object) -> str:
    if value is None:
        return ""
    return np.format_float_positional(value, trim="-") if isinstance(value, float) else str(value)


def _write_parquet(path: Path, kind: type[Any], rows: Sequence[Any]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - the same

    hints = get_type_hints(kind)
    columns = dict(zip(hints, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(hints, ())
    arrays = {}
    for field, values in columns.items():
        if field in _TIMES:
            seconds = [None if value is None else value / NANOSECONDS for value in values]
            arrays[field] = pa.array(seconds, pa.float64())
        elif hints[field] is int:
            arrays[field] = pa.array(values, pa.int64())
        else:
            is_number = float in {hints[field], *getattr(hints[field], "__args__", ())}
            arrays[field] = pa.array(values, pa.float64() if is_number else pa.string())
    pq.write_table(pa.table(arrays), path)
