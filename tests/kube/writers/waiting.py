"""Waits as a cycle reports them, for the tests of what tells users."""

from __future__ import annotations

import numpy as np

from fairbind.cluster.objects.facts import Owner
from fairbind.kube.writers.pod_messages import WaitingPod
from fairbind.model import FairnessReason, Placement, Rejection, Task, TaskClass, Wait
from rejections import lack

PLACEMENT = Placement(np.zeros(0, dtype=np.bool_))


def make_tasks(count: int, prefix: str = "p") -> tuple[Task, ...]:
    return tuple(Task(f"uid-{prefix}{n}", f"ns/{prefix}{n}", 0, float(n)) for n in range(count))


def make_wait(
    tasks: tuple[Task, ...],
    *rejections: tuple[Rejection, int],
    tenant: str = "a",
    demand: int = 1,
    waiting: int | None = None,
    blocked: Rejection | None = None,
    fairness: FairnessReason | None = None,
) -> Wait:
    task_class = TaskClass(tenant, (demand,), (demand,), PLACEMENT, tasks, blocked)
    waiting = len(tasks) if waiting is None else waiting
    return Wait(task_class, tasks[len(tasks) - waiting], waiting, rejections, blocked, fairness)


CPU = (lack("cpu"), 3)
MEMORY = (lack("memory"), 2)


def make_owner(name: str) -> Owner:
    """Return a Job that owns pods."""
    return Owner("batch/v1", "Job", name, f"uid-of-{name}")


def make_pod(
    uid: str,
    version: str = "7",
    message: str | None = None,
    detail: str | None = None,
    *,
    namespace: str = "ns",
    owner: Owner | None = None,
    generation: int = 0,
) -> WaitingPod:
    """Return the pod with the UID that `make_tasks` gave it. generation: that its condition is about."""
    name = uid.removeprefix("uid-")
    return WaitingPod(namespace, name, version, message, detail, owner, condition_generation=generation)
