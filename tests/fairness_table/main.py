"""Measures all policies on all workloads, keeps the raw result and writes the page."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairness_table.fragmentation import read_openb
from fairness_table.inflation import measure_inflation
from fairness_table.measure import POLICIES, measure
from fairness_table.page import FILLED, PAGE, RESULTS, render_page
from fairness_table.workloads import OPENB, make_mixed, read_traces


def main(words: Sequence[str] | None = None) -> int:
    """Measure, or write the page again from a result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder with the publishers' files; without it the mixed workload")
    parser.add_argument("--only", action="append", help=f"a workload, or {FILLED}; may be given several times")
    parser.add_argument("--policy", action="append", help="a policy; may be given several times")
    parser.add_argument("--output", type=Path, help="write the raw result here, and no page")
    parser.add_argument("--page", type=Path, help="write only the page, from this raw result")
    options = parser.parse_args(words)
    if options.page:
        PAGE.write_text(render_page(json.loads(options.page.read_text(encoding="utf-8")), options.page.name), "utf-8")
        return 0
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "workloads": measure_all(options.traces, options.only or (), options.policy or POLICIES),
    }
    openb = [] if options.traces is None else [options.traces / name for name in OPENB]
    if openb and all(file.exists() for file in openb) and (not options.only or FILLED in options.only):
        began = time.monotonic()
        rows = measure_inflation(read_openb(*openb))
        results[FILLED] = {"seconds": round(time.monotonic() - began, 1), "rows": rows}
    path = options.output or RESULTS / f"{results['date'][:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if not options.output:
        PAGE.write_text(render_page(results, path.name), encoding="utf-8")
    return 0


def measure_all(traces: Path | None, only: Collection[str], policies: Sequence[str]) -> dict[str, Any]:
    """Return what the result has of each workload. traces: a folder; None: only the mixed one. only: empty: all."""
    workloads = {"mixed": make_mixed()} | ({} if traces is None else read_traces(traces, only))
    measured = {}
    for name, document in workloads.items():
        if only and name not in only:
            continue
        began = time.monotonic()
        rows = measure(document, policies)
        seconds = time.monotonic() - began
        measured[name] = {
            "composite": document.get("composite"),
            "notes": document.get("notes", []),
            "seconds": round(seconds, 1),
            "rows": rows,
        }
        print(f"{name}: {len(rows)} policies in {seconds:.0f} s", file=sys.stderr)
    return measured
