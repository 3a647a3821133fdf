"""A scheduling cycle that takes five seconds, and one that never ends: what becomes of lease, probes and pages."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from e2e.objects import make_pod
from e2e.operators import read_term
from e2e.stalls import Stalls
from e2e.waiting import wait_for
from e2e.workloads import SMALL, count_bound, create_pods

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from e2e.api import Api
    from e2e.conftest import MakeNamespace, StartOperator
    from e2e.operators import Operator

STALL_SECONDS = 5.0
STEP_DOWN_SECONDS = 20.0
TAKE_OVER_SECONDS = 15.0
PAGE_SECONDS = 2.0
"""A page comes from the other thread, on a machine that does other things too."""
BUSY_CYCLE = """
import pathlib, time
from fairbind.cluster.loop.deciding import Decider

decide = Decider.decide

def busy(self, *arguments, **named):
    switch = pathlib.Path({switch!r})
    if switch.exists():
        ends_at = time.monotonic() + float(switch.read_text())
        switch.unlink()
        while time.monotonic() < ends_at:
            pass
    return decide(self, *arguments, **named)

Decider.decide = busy
"""


def make_busy_on(switch: Path, folder: Path) -> Mapping[str, str]:
    """Return the environment in which the first cycle after the switch appears takes as long as the switch says."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BUSY_CYCLE.format(switch=str(switch)), encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def fetch_in_time(running: Operator, path: str) -> tuple[int, str]:
    asked_at = time.monotonic()
    answer = running.fetch(path)
    assert time.monotonic() - asked_at < PAGE_SECONDS, path
    return answer


def test_a_cycle_of_five_seconds_costs_neither_the_lease_nor_probes_nor_pages(
    api: Api, namespace: MakeNamespace, node: str, operator: StartOperator, tmp_path: Path
) -> None:
    switch, mine = tmp_path / "switch", namespace()
    running = operator(environment=make_busy_on(switch, tmp_path / "site"))
    wait_for(running.is_leader, describe="it to lead")
    term = read_term(api)
    switch.write_text(str(STALL_SECONDS))
    create_pods(api, mine, [make_pod(SMALL)])
    wait_for(lambda: not switch.exists(), describe="the cycle to begin", pause=0.02)
    ends_at = time.monotonic() + STALL_SECONDS - 0.5

    readiness = set()
    with Stalls(lambda: read_term(api)) as stalls:
        while time.monotonic() < ends_at:
            assert fetch_in_time(running, "/healthz")[0] == 200
            readiness.add(fetch_in_time(running, "/readyz"))
            status, text = fetch_in_time(running, "/metrics")
            assert (status, "fairbind_leader 1.0" in text) == (200, True)
            assert count_bound(api, mine) == 0, "the cycle is not busy"
            time.sleep(0.2)
    assert (200, "ok\n") in readiness
    assert any(status == 503 and text.startswith("event loop: has not turned for") for status, text in readiness)
    wait_for(lambda: count_bound(api, mine) == 1, describe=f"the pod to be bound to {node}")
    wait_for(running.is_ready, describe="it to be ready again")
    assert read_term(api) == term or stalls.seconds > 1.0


@pytest.mark.nightly
def test_a_cycle_without_end_ends_the_lead(
    api: Api, namespace: MakeNamespace, node: str, operator: StartOperator, tmp_path: Path
) -> None:
    switch, mine = tmp_path / "switch", namespace()
    stuck = operator(environment=make_busy_on(switch, tmp_path / "site"))
    wait_for(stuck.is_leader, describe="the first to lead")
    standby = operator()
    switch.write_text("3600")
    create_pods(api, mine, [make_pod(SMALL)])
    wait_for(lambda: not switch.exists(), describe="the cycle to begin", pause=0.02)
    began = time.monotonic()
    with Stalls(lambda: read_term(api)) as stalls:
        wait_for(lambda: count_bound(api, mine) == 1, describe=f"the standby to bind the pod to {node}")
        took = time.monotonic() - began
    assert standby.is_leader()
    assert STEP_DOWN_SECONDS < took < STEP_DOWN_SECONDS + TAKE_OVER_SECONDS + stalls.seconds
    assert "is not renewed: the scheduling loop does not turn" in stuck.read_log()
    stuck.kill()
