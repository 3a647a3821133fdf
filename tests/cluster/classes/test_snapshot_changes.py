"""A snapshot says what changed since the one before, unless that is not known."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from cluster.builders import Cluster, make_node, make_pod
from fairbind.cluster.classes.snapshot import SnapshotBuilder
from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.model import TaskClass
from seeds import draw_seeds


def test_after_a_failure_a_snapshot_does_not_say_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some classes were built by then, so nothing is known of the rest."""
    cluster, built = Cluster(), list[TaskQueue]()
    build = SnapshotBuilder._build_task_class

    def fail_at_the_second(self: SnapshotBuilder, queue: TaskQueue, *more: Any) -> TaskClass:
        built.append(queue)
        if len(built) == 2:
            raise ZeroDivisionError
        return build(self, queue, *more)

    cluster.add_nodes(make_node("a"))
    cluster.add_pods(*(make_pod(f"p{n}", requests={"cpu": f"{n + 1}m"}) for n in range(3)))
    assert len(cluster.cache.build_snapshot().task_classes) == 3
    cluster.add_pods(*(make_pod(f"q{n}", requests={"cpu": f"{n + 9}m"}) for n in range(3)))
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotBuilder, "_build_task_class", fail_at_the_second)
        with pytest.raises(ZeroDivisionError):
            cluster.cache.build_snapshot()
    whole = cluster.cache.build_snapshot()
    assert (whole.changes, len(whole.task_classes)) == (None, 6)

    cluster.add_pods(make_pod("r", requests={"cpu": "99m"}))
    changes = cluster.cache.build_snapshot().changes
    assert changes is not None
    assert changes.before is whole.task_classes
    assert ([each.tasks[0].uid for each in changes.added], list(changes.removed)) == (["uid-r"], [])


def test_it_says_on_which_nodes_something_else_is_free() -> None:
    cluster = Cluster()
    cluster.add_nodes(*(make_node(name) for name in "abcd"))
    before = cluster.cache.build_snapshot().servers
    cluster.add_pods(make_pod("p", node="b"), make_pod("q", node="d"), make_pod("waits"))
    after = cluster.cache.build_snapshot().servers

    assert after.changes is not None
    assert after.changes.before is before.free_kr
    assert after.changes.after is after.free_kr
    assert after.changes.servers.tolist() == [1, 3]

    cluster.add_pods(make_pod("others", namespace="kube-system", node="c", scheduler="default-scheduler"))
    last = cluster.cache.build_snapshot().servers
    assert last.changes is not None
    assert last.changes.servers.tolist() == [2]
    assert last.capacity_kr is not after.capacity_kr, "what belongs to no tenant is no capacity for them"


def test_where_nodes_come_or_go_it_does_not_say_what_is_free_elsewhere() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    cluster.cache.build_snapshot()
    cluster.add_pods(make_pod("p", node="a"))
    assert cluster.cache.build_snapshot().servers.changes is not None
    cluster.add_nodes(make_node("b"))

    assert cluster.cache.build_snapshot().servers.changes is None


@pytest.mark.parametrize("seed", draw_seeds(20))
def test_whatever_happens_nothing_else_is_free_on_the_other_nodes(seed: int) -> None:
    draw, cluster = Random(seed), Cluster()
    cluster.add_nodes(*(make_node(f"n{n}") for n in range(9)))
    pods, known = dict[str, Any](), 0
    before = cluster.cache.build_snapshot().servers
    for step in range(60):
        for n in range(draw.choice([1, 1, 3])):
            node, name = f"n{draw.randrange(9)}", f"p{step}-{n}"
            match draw.randrange(6):
                case 0 if pods:
                    cluster.delete_pod(pods.pop(draw.choice(list(pods))))
                case 1:
                    offered = {"cpu": draw.choice("34"), "memory": "8Gi", "pods": "110"}
                    cluster.add_nodes(make_node(node, allocatable=offered, unschedulable=draw.random() < 0.5))
                case 2:
                    pods[name] = make_pod(name, namespace="kube-system", node=node, scheduler="default-scheduler")
                    cluster.add_pods(pods[name])
                case _:
                    pods[name] = make_pod(name, node=node, requests={"cpu": draw.choice("12")})
                    cluster.add_pods(pods[name])
        after = cluster.cache.build_snapshot().servers
        changes = after.changes
        if changes is not None and changes.after is after.free_kr and changes.before is before.free_kr:
            known += 1
            others = np.setdiff1d(np.arange(9), changes.servers)
            np.testing.assert_array_equal(before.free_kr[others], after.free_kr[others])
        before = after
        cluster.cache.check_consistent()
    assert known > 20
