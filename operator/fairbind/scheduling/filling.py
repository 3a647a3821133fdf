"""Progressive filling: again and again, who is furthest behind and has a task that fits.

The candidates are pairs of a line (a tenant; or everybody in one line, for `fifo`) and a pool (the whole cluster, or a
class of servers). The one with the least level comes next; ties go by the names of tenant and class. A tenant that
holds nothing is at level 0 on all pools; where shares are compared, it begins where its task takes the least part.

Each line lies in a heap with its least level. While tasks are only placed levels only grow and pools only close, so a
stored level is a lower bound, and exact while neither the line's account nor its pool has changed: a line is looked at
again only when it comes to the top. When a task is taken back the filling must `reopen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heapreplace

from fairbind.scheduling.lines import NEVER, Choice, Line
from fairbind.scheduling.measures import Measure


class Filling:
    """Which line, which pool, which task and which server come next. Lines must be in the order of their names."""

    __slots__ = ("_heap", "_lines", "_versions")

    def __init__(self, lines: Sequence[Line], measure: Measure) -> None:
        self._lines = lines
        self._versions = measure.pools.version_p
        self._heap = [(0, n, 0, NEVER) for n in range(len(lines))]

    def reopen(self) -> None:
        """Forget all levels and all that fitted nowhere: room has come back, or tasks went."""
        self._heap = [(0, n, 0, NEVER) for n in range(len(self._lines))]
        for line in self._lines:
            line.reopen()

    def find_choice(self) -> Choice | None:
        """Return the next placement, or None when no waiting task fits anywhere."""
        heap = self._heap
        while heap:
            level, n, pool, version = heap[0]
            line = self._lines[n]
            if version == self._get_version(line, pool):
                choice = line.find_choice(level, pool)
                if choice is not None:
                    return choice
                line.close_pools(pool)
            least = line.find_pool()
            if least is None:
                heappop(heap)
            else:
                level, pool = least
                heapreplace(heap, (level, n, pool, self._get_version(line, pool)))
        return None

    def _get_version(self, line: Line, pool: int) -> int:
        """Return a number that changes whenever the level of the line in this pool may have changed."""
        return 0 if line.account is None else line.account.version + self._versions[pool]
