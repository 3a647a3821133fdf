"""What pods say about how long they run at most reaches decisions."""

from __future__ import annotations

from typing import Any

from cluster.builders import make_node, make_pod
from cluster.state.test_gate import World
from fairbind.model import RunningTask


def make(name: str, seconds: int | None = None, **options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = (
        {} if seconds is None else {"activeDeadlineSeconds": seconds, "terminationGracePeriodSeconds": 0}
    )
    return make_pod(name, requests={"cpu": "1"}, **options, **spec)


def find_running(world: World) -> RunningTask:
    [tasks] = world.cache.build_detailed_snapshot(whole=True).running.values()
    [task] = tasks
    return task


def test_pods_are_one_class_if_they_run_about_as_long_at_most() -> None:
    """A tenant cannot make a class for each second."""
    world = World()
    world.add_nodes(make_node("n"))
    world.add_pods(*(make(f"p{seconds}", seconds) for seconds in range(33, 65)), make("endless"))

    classes = {one.most_seconds: len(one.tasks) for one in world.cache.build_snapshot().task_classes}

    assert classes == {64.0: 32, float("inf"): 1}


def test_a_deadline_that_is_set_while_a_pod_runs_counts_at_once() -> None:
    world = World()
    world.add_nodes(make_node("n"))
    world.add_pods(make("p", node="n"))
    assert find_running(world).most_seconds == float("inf")
    world.add_pods(make("p", 100, node="n"))
    assert find_running(world).most_seconds == 100.0
