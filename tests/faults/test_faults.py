"""Fifty short faults against a whole system, as `make faults SHORT=1` does it; SEED is fixed, so that red is red."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).with_name("faults.py")
COUNT, SEED = 50, 1
LONGEST_SECONDS = 1500


@pytest.mark.local_plane
@pytest.mark.slow
@pytest.mark.timeout(LONGEST_SECONDS)
def test_fifty_faults_break_nothing(tmp_path: Path) -> None:
    output = tmp_path / "faults.jsonl"

    arguments = [f"--count={COUNT}", f"--seed={SEED}", "--worlds=2", "--short", f"--output={output}"]

    outcome = subprocess.run([sys.executable, str(FAULTS), *arguments], capture_output=True, text=True, check=False)

    assert output.exists(), outcome.stdout + outcome.stderr[-5000:]
    _, *faults = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(faults) == COUNT, outcome.stdout + outcome.stderr[-5000:]
    # How soon all is as ever is for `make faults` to judge: beside other tests a right program may be late.
    assert [fault for fault in faults if fault["verdict"] not in {"held", "late"}] == []
    assert sum(fault["binds"] for fault in faults) > COUNT
    assert sum(fault["changes"] for fault in faults) >= 3, "faults that never change the lead try little"
