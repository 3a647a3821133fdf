"""Sizes: how large tasks of a group are beside each other. Larger ones come first, as small ones find a place later.

Reservations for a group are chosen in the order in which its tasks are placed, so that the tasks fit there.
"""

from __future__ import annotations

import numpy as np

from fairbind.model import ServerTable, TaskClass
from fairbind.model.servers import IntArray


def find_largest(servers: ServerTable) -> IntArray:
    """Return the most that a server has of each resource, at least 1, length R."""
    largest_r: IntArray = np.maximum(servers.capacity_kr.max(axis=0, initial=0), 1)
    return largest_r


def compute_size(task_class: TaskClass, largest_r: IntArray) -> tuple[float, tuple[int, ...]]:
    """Return how large a task is: the largest part that it takes of the largest server. largest_r: see above."""
    demand_r = task_class.demand_r
    return float((np.array(demand_r) / largest_r).max(initial=0.0)), demand_r
