"""What the task of a pod is called: its namespace and its name, joined in one place and taken apart in one."""

from __future__ import annotations

from fairbind.model import Task


def make_task_name(namespace: str, name: str) -> str:
    """Return the name of the task of a pod.

    >>> make_task_name("ml", "train-0")
    'ml/train-0'
    """
    return f"{namespace}/{name}"


def split_task_name(task: Task) -> tuple[str, str]:
    """Return namespace and name of the pod of a task.

    >>> split_task_name(Task("uid", make_task_name("ml", "train-0"), priority=0, queue_time=0.0))
    ('ml', 'train-0')
    """
    namespace, _, name = task.name.partition("/")
    return namespace, name
