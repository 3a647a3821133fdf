from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from localplane.components import KWOK_STAGES, Layout, compute_controller_manager_arguments
from perf.plane import GRACE_FLAG, leave_out_heartbeats


def test_only_the_heartbeats_are_left_out(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.kwok_config.write_text(KWOK_STAGES.read_text(encoding="utf-8"), encoding="utf-8")
    before = [stage["metadata"]["name"] for stage in yaml.safe_load_all(layout.kwok_config.read_text(encoding="utf-8"))]

    leave_out_heartbeats(layout)

    after = [stage["metadata"]["name"] for stage in yaml.safe_load_all(layout.kwok_config.read_text(encoding="utf-8"))]
    assert after == [name for name in before if name != "node-heartbeat"]
    assert len(after) == len(before) - 1
    with pytest.raises(ValueError, match="0 stages of heartbeats"):
        leave_out_heartbeats(layout)


def test_the_flag_that_keeps_silent_nodes_ready_is_there_to_be_changed(tmp_path: Path) -> None:
    arguments = compute_controller_manager_arguments(Layout(tmp_path), node_lease_seconds=0)

    assert [part.startswith(GRACE_FLAG) for part in arguments].count(True) == 1
