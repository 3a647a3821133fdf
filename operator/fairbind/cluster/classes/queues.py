"""The queues of waiting pods, by class, and lists of those that must be looked at."""

from __future__ import annotations

from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.classes.waiting_queues import WaitingQueues
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.slots import WantedPods
from fairbind.derived import Rotation


class Queues:
    """The queues of all waiting pods. by_key: by class. waiting: by tenant.

    wanted: pods that hold or may be placed, the latter as of the last snapshot. about_volumes: how many bring volumes
    that are counted, or want some. to_build: those that changed since the last snapshot. to_select: pods that wait and
    that other terms may select than their queue says, in the order in which they are looked at. to_image: queues of
    which other images may count, in such an order.
    """

    def __init__(self) -> None:
        self.by_key: dict[QueueKey, TaskQueue] = {}
        self.waiting = WaitingQueues()
        self.wanted = WantedPods()
        self.about_volumes = 0
        self.to_build = Rotation[QueueKey]()
        self.to_select = Rotation[str]()
        self.to_image = Rotation[QueueKey]()

    def add(self, key: QueueKey) -> TaskQueue:
        """Make a queue that is not there yet."""
        queue = self.by_key[key] = TaskQueue(key)
        self.waiting.add(queue)
        self.about_volumes += key.is_about_volumes
        return queue

    def remove(self, key: QueueKey) -> None:
        """Take an empty queue away."""
        del self.by_key[key]
        self.wanted.set_waiting(key, 0)
        self.about_volumes -= key.is_about_volumes
        self.waiting.remove(key)

    def rename(self, queue: TaskQueue, key: QueueKey) -> None:
        """Let the tasks of a queue wait under another key: see `TaskQueue.rename`."""
        before = queue.key
        del self.by_key[before]
        self.by_key[key] = queue
        self.wanted.rename(before, key)
        queue.rename(key)
        self.waiting.add(queue)
        self.waiting.remove(before)
