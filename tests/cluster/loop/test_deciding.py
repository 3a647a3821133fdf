"""What one cycle recalls of those before it, and when it must not."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, make_node, make_pod
from fairbind.cluster.loop import deciding, rounds
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.model import FREE_CAPACITY, Event, PolicySettings, Wait
from fairbind.scheduling import MANY_CLASSES
from scheduling.test_until import EVENTS, World


def apart(app: str) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_what_a_decision_closed_is_open_again_when_it_is_not_carried_out() -> None:
    """The second pod may not share a zone with the first, whose binding is backed off; no server gains capacity."""
    cluster, decider = Cluster(), Decider()
    cluster.add_nodes(*(make_node(name, labels={"zone": "z", "name": name}) for name in ("a", "b")))
    cluster.add_pods(
        make_pod("first", labels={"app": "web"}, nodeSelector={"name": "a"}),
        make_pod("second", affinity=apart("web"), nodeSelector={"name": "b"}),
    )
    cluster.add_pods(*(make_pod(f"huge{n}", requests={"cpu": str(1000 + n)}) for n in range(MANY_CLASSES)))

    def decide() -> list[str]:
        snapshot = cluster.cache.build_snapshot()
        report = decider.decide(snapshot, cluster.cache.settings, 0.0, RunCycle(256, explains=False))
        return [bind.task.uid for bind in report.bindings]

    assert decide() == ["uid-first"]
    cluster.cache.back_off("uid-first")

    assert decide() == ["uid-second"]


@pytest.mark.parametrize(("classes", "most", "cycles"), [(12, 4, 3), (10, 4, 3), (9, 8, 2), (6, 9, 1)])
def test_classes_are_explained_in_parts_and_all_of_them_in_turn(
    monkeypatch: pytest.MonkeyPatch, classes: int, most: int, cycles: int
) -> None:
    monkeypatch.setattr(deciding, "MAX_EXPLAINED", most)
    monkeypatch.setattr(rounds, "MANY_CLASSES", 1)
    cluster, decider = Cluster(), Decider()
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(*(make_pod(f"huge{n}", requests={"cpu": str(1000 + n)}) for n in range(classes)))
    snapshot = cluster.cache.build_snapshot()

    def explain(*, explains: bool = True) -> dict[str, Wait]:
        report = decider.decide(snapshot, cluster.cache.settings, 0.0, RunCycle(256, explains))
        assert len(report.waits) == classes
        return {wait.first.uid: wait for wait in report.waits}

    waits = explain()
    for _ in range(3):
        assert explain(explains=False) == waits
        seen: set[str] = set()
        for _ in range(cycles):
            before, waits = waits, explain()
            renewed = {uid for uid, wait in waits.items() if wait is not before[uid]}
            assert len(renewed) == min(most, classes)
            seen |= renewed
        assert len(seen) == classes


@pytest.mark.parametrize("explains", [True, False])
def test_what_is_looked_at_in_vain_is_explained_again_where_the_cycle_is_to_explain(
    monkeypatch: pytest.MonkeyPatch, *, explains: bool
) -> None:
    """Room comes back that many may have, and the first of them takes it."""
    monkeypatch.setattr(deciding, "MAX_EXPLAINED", 1)
    monkeypatch.setattr(rounds, "MANY_CLASSES", 1)
    cluster, decider = Cluster(), Decider()
    old = make_pod("old", requests={"cpu": "3"}, node="a")
    cluster.add_nodes(make_node("a", allocatable={"cpu": "4", "pods": "9"}))
    cluster.add_pods(old, *(make_pod(f"p{n}", requests={"cpu": f"{2100 + n}m"}) for n in range(4)))

    def decide(*, explains: bool) -> dict[str, Wait]:
        snapshot = cluster.cache.build_snapshot()
        report = decider.decide(snapshot, cluster.cache.settings, 0.0, RunCycle(256, explains))
        return {wait.first.uid: wait for wait in report.waits}

    before = decide(explains=False)
    cluster.delete_pod(old)
    after = decide(explains=explains)

    assert (len(before), sorted(after)) == (4, ["uid-p1", "uid-p2", "uid-p3"])
    assert [wait is before[uid] for uid, wait in after.items()] == [not explains] * 3


@pytest.mark.parametrize("explains", [True, False])
def test_where_few_classes_wait_explanations_are_those_of_now_unless_nobody_reads_them(*, explains: bool) -> None:
    cluster, decider = Cluster(), Decider(explains=explains)
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(make_pod("huge", requests={"cpu": "1000"}))

    def explain() -> Wait:
        snapshot = cluster.cache.build_snapshot()
        (wait,) = decider.decide(snapshot, cluster.cache.settings, 0.0, RunCycle(256, explains=False)).waits
        return wait

    assert (explain() is explain()) is not explains


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_that_is_told_ends_the_waits_for_it(event: Event) -> None:
    decider, world = Decider(explains=False), World(event)
    decider._unschedulable = world.memory

    def decide() -> list[Wait]:
        report = decider.decide(world.build(), PolicySettings(), 0.0, RunCycle(256, explains=False))
        return [wait for wait in report.waits if wait.until != FREE_CAPACITY]

    assert len(decide()) == 1
    decider.note_event(event)
    assert decide() == []
