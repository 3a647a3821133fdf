"""The small benchmark only has to work: everybody binds everything, and the figures come out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "perf" / "bench.py"


@pytest.mark.local_plane
@pytest.mark.nightly
def test_small_benchmark_binds_everything(tmp_path: Path) -> None:
    output = tmp_path / "results.json"

    outcome = subprocess.run(
        [sys.executable, str(BENCH), "--small", "--output", str(output)], capture_output=True, text=True, check=False
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    results = json.loads(output.read_text(encoding="utf-8"))
    bound = {run["contender"]: (run["bound"], run["pods"]) for run in results["backlogs"]}
    assert bound == {
        **dict.fromkeys(("fairbind", "kube-scheduler", "gate", "bare binds", "bare openings"), (500, 500)),
        "extender": (100, 100),
    }
    assert all(run["rate"] > 0 for run in results["backlogs"])
    schedulers = dict.fromkeys(("fairbind", "kube-scheduler", "gate", "extender"), True)
    for part in ("arrivals", "singles"):
        assert {run["contender"]: run["bound"] == run["pods"] for run in results[part]} == schedulers
    assert "| fairbind" in outcome.stdout
