"""Follows the groups of a run: when the minimum of each first ran, and whether any ever ran with less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairbind.simulator.scenario import Entry
from fairbind.simulator.task_pods import GroupKey
from fairbind.what_if.reading import NANOSECONDS


@dataclass(slots=True)
class _Group:
    """What is known of a group. least: its minimum. whole: when that first ran; None: not yet. Times: nanoseconds."""

    tenant: str
    least: int
    arrival: int
    running: int = 0
    ended: int = 0
    whole: int | None = None
    is_torn: bool = False
    is_interrupted: bool = False


class GangLog:
    """The groups of a run, by the place of their entry and their number in it.

    Tasks that ended count towards the minimum. A group is torn when some of its tasks ran after a cycle, fewer than the
    minimum, and the minimum had never run. It is interrupted when it lost tasks with a node, and fewer than the minimum
    ran after the next cycle.
    """

    def __init__(self) -> None:
        self._groups: dict[GroupKey, _Group] = {}
        self._changed: dict[GroupKey, None] = {}

    def arrive(self, key: GroupKey | None, entry: Entry, now: int) -> None:
        """Note that a task of an entry arrived. key: of its group; None here and below: it has none."""
        if key is not None and entry.gang is not None:
            self._groups.setdefault(key, _Group(entry.tenant, entry.gang.least, now))

    def start(self, key: GroupKey | None) -> None:
        """Note that a task began to run."""
        self._change(key, 1)

    def end(self, key: GroupKey | None) -> None:
        """Note that a task ended."""
        self._change(key, -1)
        if key is not None:
            self._groups[key].ended += 1

    def lose(self, key: GroupKey | None) -> None:
        """Note that a task lost its node."""
        self._change(key, -1)

    def _change(self, key: GroupKey | None, step: int) -> None:
        if key is not None:
            self._groups[key].running += step
            self._changed[key] = None

    def follow(self, now: int) -> None:
        """Take the state after an instant's last cycle."""
        for key in self._changed:
            group = self._groups[key]
            if group.running + group.ended >= group.least:
                group.whole = now if group.whole is None else group.whole
            elif group.whole is None:
                group.is_torn |= group.running > 0
            else:
                group.is_interrupted = True
        self._changed.clear()

    def describe(self, tenants: Iterable[str], end: int) -> dict[str, Mapping[str, Any]]:
        """Return what the summary says of each tenant's groups. end: of the run."""
        found: dict[str, list[_Group]] = {tenant: [] for tenant in tenants}
        for group in self._groups.values():
            found[group.tenant].append(group)
        return {tenant: _describe(groups, end) for tenant, groups in found.items()}

    def describe_all(self, end: int) -> Mapping[str, Any] | None:
        """Return what the summary says of all groups; None: there was none."""
        return _describe(list(self._groups.values()), end) if self._groups else None


def _describe(groups: list[_Group], end: int) -> Mapping[str, Any]:
    waits = [((end if group.whole is None else group.whole) - group.arrival) / NANOSECONDS for group in groups]
    return {
        "arrived": len(groups),
        "started": sum(group.whole is not None for group in groups),
        "wait_seconds": {"mean": sum(waits) / len(waits) if waits else None, "max": max(waits, default=None)},
        "torn": sum(group.is_torn for group in groups),
        "interrupted": sum(group.is_interrupted for group in groups),
    }
