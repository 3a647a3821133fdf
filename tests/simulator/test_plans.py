"""A simulation takes a plan of three back of which the second task is not there, and decides its tasks again."""

from __future__ import annotations

import pytest

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.what_if import virtual_operator
from simulator.scenarios import find_starts, make_entry, make_scenario, run
from what_if.torn import TornDecider


def test_no_task_of_a_plan_starts_of_which_one_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    forget = ClusterCache.forget

    def note(cache: ClusterCache, uid: str, *, postponed: bool = False) -> None:
        forgotten.append(uid)
        forget(cache, uid, postponed=postponed)

    monkeypatch.setattr(virtual_operator, "Decider", TornDecider)
    monkeypatch.setattr(ClusterCache, "forget", note)
    result = run(make_scenario(make_entry(tasks=3, cpu=1, duration=10)))

    assert len(forgotten) == 1
    assert find_starts(result) == {"w-0": 0, "w-1": 0, "w-2": 0}
