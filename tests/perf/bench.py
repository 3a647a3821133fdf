"""Run the benchmark: ``make bench``, or ``.venv/bin/python tests/perf/bench.py --help``.

Starts the local control plane and lets fairbind, kube-scheduler and bare bind calls place the same pods on the same
nodes, in turn; see docs/benchmarks/README.md for what is measured and how. The parts are beside this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from perf.main import main  # noqa: E402  the path comes first

if __name__ == "__main__":
    main()
