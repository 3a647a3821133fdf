"""The tasks of a run as pods: their names, whose they are, and in which groups."""

from __future__ import annotations

from math import inf

import msgspec

from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.objects.group_marks import GroupFormat, GroupMark, make_mark, name_group
from fairbind.simulator.scenario import Entry, ListedPod, Scenario
from fairbind.simulator.workload import ALONE, FOREVER, Workload
from fairbind.what_if.reading import NANOSECONDS

GroupKey = tuple[int, int]
"""The place of a workload entry, and a group's number in it."""


class TaskPods:
    """Makes pods of tasks, which are known by their number in the workload.

    first_created: when the first of them is made, seconds since the epoch.
    """

    def __init__(self, scenario: Scenario, workload: Workload, first_created: float) -> None:
        self._entries = scenario.workload
        self._first_created = first_created
        # Plain numbers: taking them one by one out of an array costs ten times as much.
        self._entry = workload.entry_t.tolist()
        self._index = workload.index_t.tolist()
        self._group = workload.group_t.tolist()
        self._seconds = [inf if length == FOREVER else length / NANOSECONDS for length in workload.duration_t.tolist()]
        self._knows_run_times = scenario.knows_run_times

    def get_entry(self, number: int) -> Entry:
        """Return the entry of a task."""
        entry: Entry = self._entries[self._entry[number]]
        return entry

    def find_group(self, number: int) -> GroupKey | None:
        """Return with which others a task starts; None: with none."""
        group = self._group[number]
        return None if group == ALONE else (self._entry[number], group)

    def find_listed(self, number: int) -> ListedPod | None:
        """Return the pod of a snapshot that a task is, or None."""
        pods = self.get_entry(number).pods
        return pods[self._index[number]] if pods else None

    def make(self, number: int, server: str | None = None) -> PodFacts:
        """Return the pod of a task. server: where it runs; None: it waits."""
        listed = self.find_listed(number)
        if listed is not None:
            own: PodFacts = listed.waiting
            if server is not None:
                own = msgspec.structs.replace(listed.placed, node=server)
            return own
        entry = self.get_entry(number)
        template = entry.waiting if server is None else entry.placed
        facts: PodFacts = msgspec.structs.replace(
            template,
            uid=f"{self._entry[number]:06}-{self._index[number]:08}",
            name=f"{entry.name}-{self._index[number]}",
            created=self._first_created + number,
            start=self._first_created + number,
            node=server,
            group=self._make_mark(number, entry),
            most_seconds=self._seconds[number] if self._knows_run_times else template.most_seconds,
        )
        return facts

    def describe(self, number: int) -> str:
        """Return a task's name; pods of a snapshot have names in namespaces, of which a tenant may have several."""
        listed = self.find_listed(number)
        if listed is not None:
            return f"{listed.waiting.namespace}/{listed.waiting.name}"
        return f"{self.get_entry(number).name}-{self._index[number]}"

    def _make_mark(self, number: int, entry: Entry) -> GroupMark | None:
        """Return what a task says about its group. One whose pod names a PodGroup waits, as scenarios have none."""
        if entry.gang is None:
            named = entry.waiting.group
            return named if named is not None and named.has_pod_group else None
        name = name_group(f"{entry.name}-{self._group[number]}", GroupFormat.JOB)
        return make_mark(GroupFormat.JOB, name, "", entry.gang.least, topology=entry.gang.topology)
