"""Measures all policies on all workloads, keeps the raw result and writes the page."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairness_table.measure import POLICIES, measure
from fairness_table.page import PAGE, RESULTS, render_page
from fairness_table.workloads import make_mixed, read_traces


def main(words: Sequence[str] | None = None) -> int:
    """Measure, or write the page again from a result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder with the publishers' files; without it the mixed workload")
    parser.add_argument("--only", action="append", help="a workload; may be given several times")
    parser.add_argument("--policy", action="append", help="a policy; may be given several times")
    parser.add_argument("--output", type=Path, help="write the raw result here, and no page")
    parser.add_argument("--page", type=Path, help="write only the page, from this raw result")
    options = parser.parse_args(words)
    if options.page:
        PAGE.write_text(render_page(json.loads(options.page.read_text(encoding="utf-8")), options.page.name), "utf-8")
        return 0
    workloads = {"mixed": make_mixed()} | (read_traces(options.traces, options.only or ()) if options.traces else {})
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "workloads": {},
    }
    for name, document in workloads.items():
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        rows = measure(document, options.policy or POLICIES)
        seconds = time.monotonic() - began
        results["workloads"][name] = {
            "composite": document.get("composite"),
            "notes": document.get("notes", []),
            "seconds": round(seconds, 1),
            "rows": rows,
        }
        print(f"{name}: {len(rows)} policies in {seconds:.0f} s", file=sys.stderr)
    path = options.output or RESULTS / f"{results['date'][:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if not options.output:
        PAGE.write_text(render_page(results, path.name), encoding="utf-8")
    return 0
