"""What all benchmarks do with their command line: measure, keep the raw results, show tables and write the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class Report:
    """folder: of the raw results. write_page: from results and the file that has them."""

    folder: Path
    render_tables: Callable[[Any], str]
    write_page: Callable[[Any, Path], None]


def carry_out(
    options: argparse.Namespace, report: Report, measure: Callable[[str, Path], Any], *, is_whole: bool
) -> None:
    """Measure, or with `render` only make the page from raw results.

    measure: given the date and the file, writes and returns the results. is_whole: whether they are worth a page.
    """
    if options.render is not None:
        report.write_page(json.loads(options.render.read_text(encoding="utf-8")), options.render)
        return
    date = datetime.now(UTC).isoformat(timespec="seconds")
    output = options.output or report.folder / f"{date[:10]}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    results = measure(date, output)
    print(report.render_tables(results))
    print(f"raw results: {output}")
    if options.output is None and is_whole:
        report.write_page(results, output)
