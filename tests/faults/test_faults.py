"""Short faults against a whole system in each mode, as `make faults SHORT=1` does it.

Seeds are fixed, so that red is red.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.modes import BIND, EXTENDER, GATE
from faults.kinds import SCHEDULER_KINDS
from faults.plan import draw

FAULTS = Path(__file__).with_name("faults.py")
FORMS = [(BIND, 30, 50), (GATE, 12, 1912), (EXTENDER, 12, 1894)]
"""Mode, how many faults, and the seed."""
SERIOUS = {"killed", "frozen", "network cut", "answers lost", "API server killed", "etcd restored from a copy"}
LONGEST_SECONDS = 1500


@pytest.mark.local_plane
@pytest.mark.slow
@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize(("mode", "count", "seed"), FORMS)
def test_short_faults_break_nothing(tmp_path: Path, mode: str, count: int, seed: int) -> None:
    output = tmp_path / "faults.jsonl"

    arguments = [f"--count={count}", f"--seed={seed}", f"--mode={mode}", "--worlds=2", "--short", f"--output={output}"]

    outcome = subprocess.run([sys.executable, str(FAULTS), *arguments], capture_output=True, text=True, check=False)

    assert output.exists(), outcome.stdout + outcome.stderr[-5000:]
    _, *faults = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(faults) == count, outcome.stdout + outcome.stderr[-5000:]
    # How soon all is as ever is for `make faults` to judge: beside other tests a right program may be late.
    assert [fault for fault in faults if fault["verdict"] not in {"held", "late"}] == []
    assert sum(fault["binds"] for fault in faults) > count
    assert (sum(fault["opened"] for fault in faults) > count) == (mode == GATE)
    assert (sum(fault["groups"] for fault in faults) > count) == (mode == BIND)
    assert sum(fault["torn"] for fault in faults) == 0
    assert sum(fault["changes"] for fault in faults) >= 1, "faults that never change the lead try little"


@pytest.mark.parametrize(("mode", "count", "seed"), FORMS)
def test_the_short_faults_of_each_mode_are_serious(mode: str, count: int, seed: int) -> None:
    without = {"two versions at once", *(SCHEDULER_KINDS if mode == BIND else ())}
    drawn = [draw(seed, number, is_short=True, without=without) for number in range(count)]
    met = {fault.kind.name for one in drawn for fault in one.faults if fault.settings.get("who") != "standby"}

    assert met >= (SERIOUS if mode == BIND else SERIOUS | set(SCHEDULER_KINDS))
