"""What waiting pods are to be told, in a line for each tenant; the lines take turns.

In one line for all, a tenant with twenty thousand pods would have everybody else hear of their own minutes later.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from fairbind.kube.writers.pod_messages import Notice

MAX_PER_TENANT = 1_000
"""As many as are told in the time for which the backlog leaves a class alone."""


class FairQueue:
    """Notices that are not written yet. Whoever adds one asks `has_room` first."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[Notice]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def has_room(self, tenant: str) -> bool:
        """Whether another notice of this tenant may be added."""
        line = self._lines.get(tenant)
        return line is None or len(line) < MAX_PER_TENANT

    def add(self, notice: Notice) -> None:
        """Put a notice at the end of its tenant's line."""
        self._lines.setdefault(notice.wait.task_class.tenant, deque()).append(notice)

    def take(self) -> Notice:
        """Take the first of the line whose turn it is; there must be one."""
        tenant, line = self._lines.popitem(last=False)
        notice = line.popleft()
        if line:
            self._lines[tenant] = line
        return notice

    def clear(self) -> None:
        """Drop all."""
        self._lines.clear()
