"""Progressive filling: again and again, who is furthest behind and has a task that fits.

The candidates are pairs of a line (a tenant; or everybody in one line, for `fifo`) and a pool (the whole cluster, or a
server class). They lie in a heap by level, then by the names of tenant and class. A tenant that holds nothing is at
level 0 on all pools; it begins where its task takes the least part of the pool, which is where a filling with ever
smaller tasks would begin (by name, one task in the wrong place could cost others many).

Within a cycle levels only grow and room only shrinks, so a stored level is a lower bound: a pair is looked at again
only when it comes to the top, and a pair that has no fitting task left is out for the rest of the cycle. The same holds
for the classes in a line: they lie in a heap by the turn of their next task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from fairbind.model import Task, TaskClass
from fairbind.scheduling.levels import Account, Pools
from fairbind.scheduling.shapes import Shape

Turn = tuple[int, float, str, str]
TurnRule = Callable[[Task], Turn]


def compute_turn(task: Task) -> Turn:
    """Return what orders the tasks of one tenant: higher priority, then earlier queue time, then uid."""
    return -task.priority, task.queue_time, task.uid, ""


def compute_arrival(task: Task) -> Turn:
    """Return what orders all tasks for `fifo`: higher priority, then earlier queue time, then name (then uid)."""
    return -task.priority, task.queue_time, task.name, task.uid


class Queue:
    """The tasks of one class that still wait, in their turn. tasks: all of them, in the order that the rule gives."""

    __slots__ = ("_next", "_rule", "_tasks", "account", "build_shape", "index", "shape", "task_class", "turn")

    def __init__(
        self,
        task_class: TaskClass,
        tasks: Sequence[Task],
        *,
        account: Account,
        rule: TurnRule,
        build_shape: Callable[[TaskClass], Shape],
    ) -> None:
        self.task_class = task_class
        self.account = account
        self.build_shape = build_shape
        self.shape: Shape | None = None
        self._rule = rule
        self._tasks = tasks
        self._next = 0
        self.turn: Turn | None = rule(self._tasks[0])

    @property
    def first(self) -> Task:
        """The task whose turn is next; there must be one."""
        return self._tasks[self._next]

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return len(self._tasks) - self._next

    @property
    def fits_nowhere(self) -> bool:
        """Whether it has been seen that no task of the class fits."""
        return self.shape is not None and self.shape.fits_nowhere

    def find_server(self, pool: int) -> int | None:
        """Return the best server of the pool for the next task, or None."""
        if self.shape is None:
            self.shape = self.build_shape(self.task_class)
        return self.shape.find_server(pool)

    def pop(self) -> Task:
        """Take the first task out."""
        task = self._tasks[self._next]
        self._next += 1
        self.turn = self._rule(self._tasks[self._next]) if self._next < len(self._tasks) else None
        return task


class Choice(NamedTuple):
    """The next placement: the first task of this queue goes to this server of this pool."""

    queue: Queue
    server: int
    pool: int


class Line:
    """Classes that wait for the same turn: those of one tenant, or everybody's.

    account: whose level decides when the line is served; None: lines have no level.
    """

    __slots__ = ("_heads", "_queues", "account")

    def __init__(self, queues: Sequence[Queue], account: Account | None) -> None:
        self.account = account
        self._queues = queues
        self._heads: dict[int, list[tuple[Turn, int]]] = {}

    def find_choice(self, pool: int) -> Choice | None:
        """Return the first task in turn that fits into the pool, or None: then none will fit any more."""
        heads = self._heads.get(pool)
        if heads is None:
            heads = [(queue.turn, n) for n, queue in enumerate(self._queues) if queue.turn is not None]
            heapify(heads)
            self._heads[pool] = heads
        while heads:
            turn, n = heads[0]
            queue = self._queues[n]
            if queue.turn is None:
                heappop(heads)
            elif queue.turn != turn:
                heapreplace(heads, (queue.turn, n))
            else:
                server = queue.find_server(pool)
                if server is not None:
                    return Choice(queue, server, pool)
                heappop(heads)
        return None


class Filling:
    """Which line, which pool, which task and which server come next. Lines must be in the order of their names."""

    __slots__ = ("_heap", "_lines", "_pools")

    def __init__(self, lines: Sequence[Line], pools: Pools) -> None:
        self._lines = lines
        self._pools = pools
        # Level 0 is a lower bound of every level; -1 is no version, so each pair's level is computed when it is needed.
        self._heap = [(0, n, pool, -1) for n in range(len(lines)) for pool in range(len(pools.amount_pr))]

    def find_choice(self) -> Choice | None:
        """Return the next placement, or None when no waiting task fits anywhere."""
        heap = self._heap
        while heap:
            level, n, pool, version = heap[0]
            account = self._lines[n].account
            current = 0 if account is None else account.version + self._pools.version_p[pool]
            if version != current:
                level = 0 if account is None else account.compute_level(self._pools.amount_pr[pool])
                heapreplace(heap, (level, n, pool, current))
                continue
            choice = self._lines[n].find_choice(pool)
            if choice is not None:
                return choice if level > 0 or account is None else self._find_beginning(n, account, choice)
            heappop(heap)
        return None

    def _find_beginning(self, n: int, account: Account, first: Choice) -> Choice:
        """Return the choice of a line at level 0 whose task takes the least part of its pool, the first of equals.

        first: its choice in the first pool where it is at level 0 and has one.
        """
        best, least = (
            first,
            account.compute_level(self._pools.amount_pr[first.pool], first.queue.task_class.share_demand_r),
        )
        for pool in range(first.pool + 1, len(self._pools.amount_pr)):
            amount_r = self._pools.amount_pr[pool]
            if least == 0 or account.compute_level(amount_r) > 0:
                continue
            choice = self._lines[n].find_choice(pool)
            if choice is not None:
                part = account.compute_level(amount_r, choice.queue.task_class.share_demand_r)
                if part < least:
                    best, least = choice, part
        return best
