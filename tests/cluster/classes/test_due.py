"""Where one event changes where thousands of tasks may go, their classes go over in parts. The others are stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod, read_node
from cluster.counting import count_calls
from fairbind.cluster.classes import cluster_state, due
from fairbind.cluster.classes.snapshot import SnapshotBuilder
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import CycleReport, Snapshot, TaskClass

HOST = "kubernetes.io/hostname"


def make_waiting(name: str, tenant: str, cpu: int, **more: Any) -> Json:
    return make_pod(name, namespace=tenant, requests={"cpu": f"{cpu}m"}, **more)


def make_repelling(node: str, app: str = "a") -> Json:
    """A placed pod that keeps others away from its node."""
    term = {"topologyKey": HOST, "namespaceSelector": {}, "labelSelector": {"matchLabels": {"app": app}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return make_pod("repelling", namespace="other", node=node, phase="Running", affinity=affinity)


def make_host(name: str, **more: Any) -> Json:
    return make_node(name, labels={HOST: name}, **more)


class World:
    """A cluster, and the loop's way to decide."""

    def __init__(self, *nodes: str) -> None:
        self.cluster = Cluster()
        self.cache = self.cluster.cache
        self.decider = Decider()
        self.cluster.add_nodes(*map(make_host, nodes))

    def add_large(self, count: int, **more: Any) -> list[Json]:
        """Let pods of one tenant wait that fit nowhere and each ask for another amount."""
        pods = [make_waiting(f"p{n}", "x", 9_000 + n, **more) for n in range(count)]
        self.cluster.add_pods(*pods)
        return pods

    def cordon(self, node: str, *, cordoned: bool = True) -> None:
        self.cluster.add_nodes(make_host(node, unschedulable=cordoned))

    def decide(self) -> tuple[Snapshot, CycleReport]:
        """Run a cycle and carry it out."""
        seen = self.cache.build_snapshot()
        report = self.decider.decide(seen, self.cache.settings, 0.0, RunCycle(256, explains=False))
        for bind in report.bindings:
            assert self.cache.assume(bind.task.uid, bind.server)
        self.is_next_different = self.cache.note_waits(report.waits)
        return seen, report

    def decide_all(self) -> Iterator[tuple[Snapshot, CycleReport]]:
        """Run cycles until the snapshot is current."""
        while True:
            seen, report = self.decide()
            yield seen, report
            if seen.is_current:
                return

    def settle(self) -> None:
        """The same, where it does not matter what they see."""
        for _ in self.decide_all():
            pass


@pytest.fixture
def parts_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due, "MAX_DUE", 3)
    monkeypatch.setattr(cluster_state, "MAX_SELECTED", 3)


def list_uids(classes: list[TaskClass]) -> list[str]:
    return [each.tasks[0].uid for each in classes]


def test_an_event_costs_a_snapshot_no_more_than_a_part_of_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 classes of 20 tenants may not go to a node any more."""
    world = World("a", "b")
    world.cluster.add_pods(*(make_waiting(f"p{n}", f"t{n % 20}", 100_000 + n) for n in range(2_000)))
    assert len(world.decide()[0].task_classes) == 2_000
    world.cordon("a")
    seen: list[Snapshot] = []
    built = count_calls(monkeypatch, (SnapshotBuilder, "_build_task_class"))
    while not seen or seen[-1].stale:
        built.clear()
        seen.append(world.decide()[0])
        assert built.total() <= due.MAX_DUE
        assert world.is_next_different == bool(seen[-1].stale)
    parts = -(-2_000 // due.MAX_DUE)
    assert [len(each.stale) for each in seen] == [max(0, 2_000 - n * due.MAX_DUE) for n in range(1, parts + 1)]
    assert {bool(each.placement.eligible_k[0]) for each in seen[-1].task_classes} == {False}
    world.cache.check_consistent()


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("users", [1, 4])
def test_the_first_of_each_tenant_go_over_first(users: int) -> None:
    world = World("a", "b")
    if users > 1:
        spec = {"namespaces": ["x"], "users": {"label": "user"}}
        world.cache.replace_tenants([parse_tenant({"metadata": {"name": "x"}, "spec": spec})])
        world.cluster.add_namespaces(make_namespace("x"))
    for n, tenant in enumerate(("x", "x", "x", "x", "y", "z")):
        user = {"user": f"u{9 - n}"} if users > 1 else {}
        world.cluster.add_pods(make_waiting(f"p{n}", tenant, 9_000 - n, priority=n, labels=user))
    world.decide()
    world.cordon("a")
    first = world.decide()[0].changes
    assert first is not None
    assert sorted(list_uids(list(first.added))) == ["uid-p3", "uid-p4", "uid-p5"]


@pytest.mark.usefixtures("parts_of_three")
def test_of_pods_that_others_keep_away_the_first_go_over_first() -> None:
    world = World("a", "b")
    for n in range(6):
        world.cluster.add_pods(make_waiting(f"p{n}", f"t{n % 2}", 9_000 + n, priority=n, labels={"app": "a"}))
    world.decide()
    world.cluster.add_pods(make_repelling("a"))
    first = world.decide()[0]
    assert sorted(list_uids(list(first.stale))) == ["uid-p0", "uid-p1", "uid-p2", "uid-p3"], "half of a part went over"


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("event", ["cordon", "repelling pod"])
def test_a_whole_snapshot_can_be_had_at_once(event: str) -> None:
    world = World("a", "b")
    world.add_large(9, labels={"app": "a"})
    world.decide()
    if event == "cordon":
        world.cordon("a")
    else:
        world.cluster.add_pods(make_repelling("a"))
    assert not world.cache.build_snapshot().is_current
    whole = world.cache.build_snapshot(whole=True)
    assert whole.is_current
    assert {bool(each.placement.eligible_k[0]) for each in whole.task_classes} == {False}


@pytest.mark.usefixtures("parts_of_three")
def test_what_was_due_before_the_last_event_goes_over_first() -> None:
    """However often something happens, each class is looked at."""
    world = World("a", "b", "c")
    world.add_large(9)
    world.decide()
    looked_at: list[str] = []
    for node in ("a", "b", "c"):
        world.cordon(node)
        changes = world.decide()[0].changes
        assert changes is not None
        looked_at += list_uids(list(changes.added))
    assert sorted(looked_at) == sorted(f"uid-p{n}" for n in range(9))


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("app", ["", "a"])
def test_what_is_withheld_is_not_placed_where_it_may_not_go_any_more(app: str) -> None:
    """Nothing may go to node b any more, which alone has room."""
    world = World("a", "b")
    world.cluster.add_pods(make_pod("full", namespace="x", node="a", phase="Running", requests={"cpu": "4"}))
    world.cache.build_snapshot()
    pods = [make_waiting(f"p{n}", f"t{n % 2}", 100 + n, labels={"app": "a"}) for n in range(10)]
    world.cluster.add_pods(*pods)
    world.cache.build_snapshot()
    if app:
        world.cluster.add_pods(make_repelling("b", app))
    else:
        world.cordon("b")
    cycles = list(world.decide_all())
    assert [report.bindings for _, report in cycles] == [()] * len(cycles)
    assert [len(seen.stale) for seen, _ in cycles] == ([8, 5, 2, 0] if app else [7, 4, 1, 0])
    world.cache.check_consistent()


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("event", ["uncordon", "repelling pod goes"])
def test_each_is_placed_once_it_has_gone_over(event: str) -> None:
    world = World("a")
    repelling = make_repelling("a")
    if event == "uncordon":
        world.cordon("a")
    else:
        world.cluster.add_pods(repelling)
    pods = [make_waiting(f"p{n}", f"t{n % 2}", 100 + n, labels={"app": "a"}) for n in range(10)]
    world.cluster.add_pods(*pods)
    world.settle()
    if event == "uncordon":
        world.cordon("a", cordoned=False)
    else:
        world.cluster.delete_pod(repelling)
    placed = [bind.task.uid for _, report in world.decide_all() for bind in report.bindings]
    assert sorted(placed) == sorted(f"uid-p{n}" for n in range(10))


@pytest.mark.usefixtures("parts_of_three")
def test_room_that_comes_while_a_class_is_withheld_is_seen_when_it_has_gone_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A class is remembered as one that fits nowhere. Capacity for it comes while it is stale."""
    monkeypatch.setattr("fairbind.cluster.loop.rounds.MAX_EXPLAINED", 1)
    world = World("a", "b")
    full = make_pod("full", namespace="x", node="a", phase="Running", requests={"cpu": "4"})
    world.cluster.add_pods(full)
    world.cluster.add_pods(*(make_waiting(f"p{n}", "x", 4_100 + n) for n in range(6)))
    world.cluster.add_pods(make_waiting("small", "x", 3_900, priority=-1))
    world.cordon("b")
    world.settle()
    world.cluster.add_nodes(make_node("b", labels={HOST: "b", "new": "x"}, unschedulable=True))
    world.cluster.add_nodes(make_node("a", labels={HOST: "a"}, taints=[{"key": "soft", "effect": "PreferNoSchedule"}]))
    world.cluster.delete_pod(full)
    cycles = list(world.decide_all())
    assert len(cycles[0][0].stale) == 4
    assert [bind.task.uid for _, report in cycles for bind in report.bindings] == ["uid-small"]


@pytest.mark.usefixtures("parts_of_three")
def test_pods_that_come_or_go_meanwhile_are_taken_over_at_once() -> None:
    world = World("a", "b")
    pods = world.add_large(9)
    world.decide()
    world.cordon("a")
    assert len(world.decide()[0].stale) == 6
    world.cluster.add_pods(make_waiting("new", "x", 500, priority=-9))
    for pod in pods[6:8]:
        world.cluster.delete_pod(pod)
    seen, report = world.decide()
    assert [bind.task.uid for bind in report.bindings] == ["uid-new"]
    assert len(seen.task_classes) == 8
    assert len(seen.stale) == 1
    assert not world.decide()[0].stale
    world.cache.check_consistent()


def take_resource(world: World) -> None:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": "1"}
    world.cluster.add_nodes(make_host("b", allocatable=allocatable))


EVENTS: dict[str, Callable[[World], None]] = {
    "a node comes": lambda world: world.cluster.add_nodes(make_host("c")),
    "a node goes": lambda world: world.cache.nodes.delete(read_node(make_host("b"))),
    "another resource": take_resource,
}


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("happen", EVENTS.values(), ids=EVENTS)
def test_classes_that_go_with_other_nodes_or_resources_are_left_out_until_they_are_made_again(
    happen: Callable[[World], None],
) -> None:
    world = World("a", "b")
    world.cluster.add_pods(*(make_waiting(f"p{n}", "xy"[n % 2], 9_000 + n) for n in range(8)))
    world.cluster.add_pods(make_waiting("q", "x", 100, nodeSelector={HOST: "c"}, priority=-1))
    world.decide()
    happen(world)
    seen = [each for each, _ in world.decide_all()]
    assert [(len(each.task_classes), each.is_whole) for each in seen] == [(3, False), (6, False), (9, True)]
    assert not any(each.stale for each in seen)
    world.cache.check_consistent()


@pytest.mark.usefixtures("parts_of_three")
def test_events_that_follow_each_other_leave_nothing_behind() -> None:
    world = World("a", "b")
    world.add_large(9)
    world.decide()
    for happen in (*EVENTS.values(), *EVENTS.values()):
        world.cordon("a")
        world.decide()
        happen(world)
        world.decide()
    world.cluster.add_pods(make_waiting("new", "x", 100, priority=-9))
    assert [bind.task.uid for bind in world.decide()[1].bindings] == ["uid-new"]
    world.settle()
    assert len(world.cache.build_snapshot().task_classes) == 9
    world.cache.check_consistent()


@pytest.mark.usefixtures("parts_of_three")
def test_classes_of_a_tenant_with_very_many_go_over_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairbind.cluster.classes.window.MAX_TENANT_PLACEMENTS", 4)
    monkeypatch.setattr("fairbind.cluster.classes.window.MAX_TENANT_CLASSES", 8)
    world = World("a", "b")
    world.add_large(8, labels={"app": "a"})
    world.settle()
    world.cordon("a")
    assert [len(seen.stale) for seen, _ in world.decide_all()] == [5, 2, 0]
    world.cluster.add_pods(make_repelling("b"))
    assert [len(seen.stale) for seen, _ in world.decide_all()] == [6, 3, 0]
    assert not any(each.is_eligible for each in world.cache.build_snapshot().task_classes)
    world.cluster.add_nodes(make_host("c"))
    seen = [each for each, _ in world.decide_all()]
    assert [(len(each.task_classes), each.is_whole) for each in seen] == [(3, False), (6, False), (8, True)]
    world.cache.check_consistent()


def pin(node: str) -> Json:
    """Where one node only may be used, by what is no pin: a DaemonSet's pod would be one of its kind."""
    fields = [
        {"key": "metadata.name", "operator": "In", "values": [node]},
        {"key": "metadata.name", "operator": "NotIn", "values": ["none"]},
    ]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


class Crowd(World):
    """A tenant with more placements than a snapshot shows: of each node a pod that may go there only, and none fits."""

    def __init__(self, nodes: int) -> None:
        self.nodes = [f"n{n:02}" for n in range(nodes)]
        super().__init__(*self.nodes)
        for node in self.nodes:
            full = make_pod(f"full-{node}", namespace="other", node=node, phase="Running", requests={"cpu": "4"})
            self.cluster.add_pods(full, make_waiting(f"p-{node}", "x", 1_000, affinity=pin(node)))

    def decide_on(self) -> list[str]:
        """Run cycles while the next one is different. Return whose pods are placed."""
        placed = [bind.task.uid for bind in self.decide()[1].bindings]
        while self.is_next_different:
            placed += [bind.task.uid for bind in self.decide()[1].bindings]
        return placed

    def free(self, node: str) -> None:
        """Another node takes the place of a full one, so that all classes are due."""
        self.cluster.add_nodes(make_host(node, taints=[{"key": "t", "effect": "PreferNoSchedule"}]))
        self.cluster.delete_pod(make_pod(f"full-{node}", namespace="other", node=node, requests={"cpu": "4"}))


@pytest.fixture
def few_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairbind.cluster.classes.window.MAX_TENANT_PLACEMENTS", 8)
    monkeypatch.setattr("fairbind.cluster.classes.window.MAX_PLACEMENTS", 12)


@pytest.mark.usefixtures("few_are_shown")
@pytest.mark.parametrize("most", [1, 3, 512])
@pytest.mark.parametrize("node", [0, 5, 9, 13, 19])
def test_what_goes_round_is_looked_at_although_it_was_withheld(
    most: int, node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cycle could not place has not been looked at, so the round goes on."""
    monkeypatch.setattr(due, "MAX_DUE", most)
    crowd = Crowd(20)
    assert crowd.decide_on() == []
    crowd.free(crowd.nodes[node])
    assert crowd.decide_on() == [f"uid-p-{crowd.nodes[node]}"]


@pytest.mark.usefixtures("few_are_shown")
@pytest.mark.parametrize("cycles", range(1, 8))
def test_what_was_looked_at_before_a_change_amid_a_round_is_looked_at_again(cycles: int) -> None:
    crowd = Crowd(20)
    for _ in range(cycles):
        crowd.decide()
    crowd.free(crowd.nodes[7])
    assert crowd.decide_on() == [f"uid-p-{crowd.nodes[7]}"]


@pytest.mark.usefixtures("parts_of_three")
@pytest.mark.parametrize("happen", ["cordon", "a node comes"])
def test_a_tenant_with_very_many_is_looked_at_however_often_something_happens(
    happen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only pod that fits is the last of eight, of which three go over at a time."""
    monkeypatch.setattr("fairbind.cluster.classes.window.MAX_TENANT_PLACEMENTS", 4)
    monkeypatch.setattr("fairbind.cluster.classes.window.MAX_TENANT_CLASSES", 8)
    world = World("a", "z")
    world.cordon("a")
    world.cordon("z")
    world.add_large(7)
    world.cluster.add_pods(make_waiting("last", "x", 500, priority=-1))
    world.settle()
    world.cordon("a", cordoned=False)
    placed: list[str] = []
    for n in range(6):
        if happen == "cordon":
            world.cluster.add_nodes(make_node("z", labels={HOST: "z", "n": str(n)}, unschedulable=n % 2 == 1))
        else:
            world.cluster.add_nodes(make_host(f"y{n}", unschedulable=True))
        placed += [bind.task.uid for bind in world.decide()[1].bindings]
    assert placed == ["uid-last"]


@pytest.mark.usefixtures("parts_of_three")
def test_queues_that_go_while_they_are_due_are_no_part() -> None:
    """A snapshot of no class would say that nothing waits."""
    world = World("a", "b")
    pods = world.add_large(9)
    world.decide()
    world.cluster.add_nodes(make_host("c"))
    assert len(world.decide()[0].task_classes) == 3
    for pod in pods[:6]:
        world.cluster.delete_pod(pod)
    assert len(world.decide()[0].task_classes) == 3
