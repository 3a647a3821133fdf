"""What a watch saw of pods, and whether groups were ever torn in it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import urllib3

if TYPE_CHECKING:
    from e2e.api import Api

Json = dict[str, Any]
GroupOf = Callable[[Json], str | None]
STANDS_WITHIN_SECONDS = 20.0
"""So soon after the first member is bound, a group has its minimum."""
ENDED = {"Failed", "Succeeded"}


@dataclass(frozen=True, slots=True)
class Seen:
    """How many members of a group were bound at a moment. seconds: of a monotonic clock."""

    seconds: float
    bound: int


@dataclass(slots=True)
class History:
    """The pods of some namespaces as a watch tells them, from now until ``stop``."""

    api: Api
    namespaces: frozenset[str]
    group_of: GroupOf
    _bound: dict[str, set[str]] = field(default_factory=dict)
    _members: dict[str, set[str]] = field(default_factory=dict)
    _seen: dict[str, list[Seen]] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch."""
        listed = self.api.get("/api/v1/pods")
        for pod in listed["items"] or []:
            self.note("ADDED", pod)
        version = listed["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._follow, args=(version,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def note(self, kind: str, pod: Json, seconds: float | None = None) -> None:
        """Take an event."""
        group = self.group_of(pod)
        if pod["metadata"]["namespace"] not in self.namespaces or group is None:
            return
        uid, name = pod["metadata"]["uid"], f"{pod['metadata']['namespace']}/{group}"
        is_there = kind != "DELETED" and pod["status"].get("phase") != "Failed"
        members, bound = self._members.setdefault(name, set()), self._bound.setdefault(name, set())
        before = len(bound)
        (members.add if is_there else members.discard)(uid)
        (bound.add if is_there and pod["spec"].get("nodeName") else bound.discard)(uid)
        if len(bound) != before:
            self._seen.setdefault(name, []).append(Seen(time.monotonic() if seconds is None else seconds, len(bound)))

    def count_bound(self) -> dict[str, int]:
        """Return how many members of each group are bound now, of all groups that have members."""
        return {name: len(self._bound[name]) for name, members in sorted(self._members.items()) if members}

    def find_torn(self, minimum: int, now: float | None = None) -> dict[str, list[Seen]]:
        """Return the groups that did not have their minimum soon enough after their first member was bound."""
        now = time.monotonic() if now is None else now
        return {name: seen for name, seen in sorted(self._seen.items()) if is_torn(seen, minimum, now)}

    def _follow(self, version: str) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                for event in self.api.watch("/api/v1/pods", timeout_seconds=5, resourceVersion=version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self.note(event["type"], event["object"])


def is_torn(seen: list[Seen], minimum: int, now: float) -> bool:
    """Tell whether a group that began, and was not ended, had less than its minimum for longer than is allowed.

    >>> is_torn([Seen(0.0, 1), Seen(1.0, 2)], 2, 100.0), is_torn([Seen(0.0, 1)], 2, 100.0), is_torn([], 2, 100.0)
    (False, True, False)
    >>> is_torn([Seen(0.0, 1), Seen(30.0, 2)], 2, 100.0), is_torn([Seen(0.0, 1), Seen(1.0, 0)], 2, 100.0)
    (True, False)
    """
    began: float | None = None
    for one in [*seen, Seen(now, seen[-1].bound if seen else 0)]:
        if began is not None and one.seconds - began > STANDS_WITHIN_SECONDS:
            return True
        is_short = 0 < one.bound < minimum
        began = (one.seconds if began is None else began) if is_short else None
    return False


def select_whole(bound: Mapping[str, int], size: int) -> set[str]:
    """Return the groups that have this many members bound."""
    return {name for name, count in bound.items() if count >= size}
