"""Measures all policies on all workloads, seed by seed, keeps the raw result and writes the page."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from fairness_table.fragmentation import read_openb
from fairness_table.inflation import measure_inflation
from fairness_table.measure import POLICIES, join_seeds, measure
from fairness_table.page import FILLED, RESULTS, write_page
from fairness_table.workloads import MADE, OPENB, Json, read_traces

SEEDS: Final = 20


def main(words: Sequence[str] | None = None) -> int:
    """Measure, or write the page again from a result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder with the publishers' files; without it our own workloads")
    parser.add_argument("--only", action="append", help=f"a workload, or {FILLED}; may be given several times")
    parser.add_argument("--policy", action="append", help="a policy; may be given several times")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each workload")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--renew", action="store_true", help="put what is measured into the last result")
    parser.add_argument("--output", type=Path, help="write the raw result here, and no page")
    parser.add_argument("--page", type=Path, help="write only the page, from this raw result")
    options = parser.parse_args(words)
    if options.page:
        write_page(json.loads(options.page.read_text(encoding="utf-8")), options.page.name)
        return 0
    results = json.loads(max(RESULTS.iterdir()).read_text(encoding="utf-8")) if options.renew else {"workloads": {}}
    results |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "python": platform.python_version()}
    makers = choose_workloads(options.traces, options.only or ())
    seeds, policies = range(options.seeds), options.policy or POLICIES
    results["workloads"] = measure_all(makers, seeds, policies, options.processes) | {
        name: each for name, each in results["workloads"].items() if name not in makers
    }
    openb = [] if options.traces is None else [options.traces / name for name in OPENB]
    if openb and all(file.exists() for file in openb) and (not options.only or FILLED in options.only):
        began = time.monotonic()
        rows = measure_inflation(read_openb(*openb))
        results[FILLED] = {"seconds": round(time.monotonic() - began, 1), "rows": rows}
    path = options.output or RESULTS / f"{results['date'][:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    if not options.output:
        write_page(results, path.name)
    return 0


def choose_workloads(traces: Path | None, only: Collection[str]) -> dict[str, Callable[[int], Json]]:
    """Return what makes each workload of a seed. traces: a folder; None: only ours. only: names; empty: all."""
    ours = {name: make for name, make in MADE.items() if not only or name in only}
    return ours | ({} if traces is None else read_traces(traces, only))


def measure_all(
    makers: Mapping[str, Callable[[int], Json]], seeds: Sequence[int], policies: Sequence[str], processes: int
) -> dict[str, Any]:
    """Return what the result has of each workload."""
    measured = {}
    with ProcessPoolExecutor(processes) as pool:
        for name, make in makers.items():
            began = time.monotonic()
            documents = [make(seed) for seed in seeds]
            rows_of = list(pool.map(measure, documents, repeat(policies)))
            seconds = time.monotonic() - began
            measured[name] = {
                "composite": documents[0].get("composite"),
                "notes": documents[0].get("notes", []),
                "seconds": round(seconds, 1),
                "seeds": len(seeds),
                "rows": join_seeds(rows_of),
            }
            print(f"{name}: {len(policies)} policies, {len(seeds)} seeds in {seconds:.0f} s", file=sys.stderr)
    return measured
