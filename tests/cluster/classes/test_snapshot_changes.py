"""A snapshot says what changed since the one before, unless that is not known."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, make_node, make_pod
from fairbind.cluster.classes.snapshot import SnapshotBuilder
from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.model import TaskClass


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
