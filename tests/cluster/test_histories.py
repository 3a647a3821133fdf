"""The rules do what they did before they were a state machine, and a simulator does what the operator does."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.histories import HISTORIES, History, Timeline, draw_history
from cluster.live import run_live
from cluster.simulated import run_simulated

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "timelines" / "pacing.json").read_text(encoding="utf-8"))
PARTS = 8

# Not traced: test_pacing has to reach every branch by itself.
pytestmark = [pytest.mark.no_cover, pytest.mark.slow]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("run", [run_live, run_simulated])
def test_timelines_are_the_recorded_ones(
    run: Callable[[History, pytest.MonkeyPatch], Timeline], part: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "fairbind.kube.operator.loop")
    different = []
    for seed in range(part, HISTORIES, PARTS):
        with pytest.MonkeyPatch.context() as patch:
            timeline = run(draw_history(seed), patch)
        if timeline.compute_hash() != GOLDEN[str(seed)]:
            different.append(seed)
    assert different == []
