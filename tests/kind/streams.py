"""A steady stream of small real pods, and whether each was scheduled once and soon.

To start a container costs a machine far more than to schedule its pod, so the stream is thin: a pod a second. Stalls
of the machine, in which nobody could schedule, are no fault of fairbind's.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import urllib3

from e2e.api import ApiError
from e2e.stalls import Stalls
from e2e.waiting import PATIENCE_SECONDS, wait_for
from e2e.workloads import create_pod, find_condition, list_pods
from kind.workloads import make_real_pod

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from e2e.api import Api, Json

WHOLE_SECONDS = 1.0
"""The API's times have no parts of seconds: a wait may seem so much longer than it was."""


@dataclass(slots=True)
class Stream:
    """Makes a pod every so many seconds in a namespace as long as the context lasts. fields: of the pods' specs."""

    api: Api
    namespace: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    every_seconds: float = 1.0
    stalled_seconds: float = 0.0
    names: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._create, name="stream")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join()

    def _create(self) -> None:
        with Stalls(lambda: self.api.get("/livez")) as stalls:
            while not self._ended.wait(self.every_seconds):
                pod = make_real_pod({"cpu": "1m"}, "-sleep=1s", restartPolicy="Never", **self.fields)
                try:
                    create_pod(self.api, self.namespace, pod)
                except (ApiError, urllib3.exceptions.HTTPError) as error:
                    self.refusals.append(str(error))
                else:
                    self.names.append(pod["metadata"]["name"])
        self.stalled_seconds = stalls.seconds

    def count_scheduled(self) -> int:
        """Return how many pods have a node by now."""
        return sum(1 for pod in list_pods(self.api, self.namespace) if pod["spec"].get("nodeName"))

    def wait_progress(self, count: int = 3) -> None:
        """Wait until so many more pods have a node than now."""
        before = self.count_scheduled()
        describe = f"{count} more pods of the stream"
        wait_for(lambda: self.count_scheduled() >= before + count, PATIENCE_SECONDS, describe, pause=0.5)

    def check(self, longest_seconds: float) -> None:
        """Check, after the end, that all pods were scheduled, each once, and none waited longer than this.

        As pods are made all the time, the longest wait is the longest time in which nobody scheduled.
        """
        assert self.refusals == []
        describe = "every pod of the stream to have a node"
        wait_for(lambda: self.count_scheduled() == len(self.names), PATIENCE_SECONDS, describe, pause=0.5)
        pods = list_pods(self.api, self.namespace)
        assert sorted(pod["metadata"]["name"] for pod in pods) == sorted(self.names)
        assert [pod["metadata"]["name"] for pod in pods if pod["status"].get("reason")] == []
        self._check_bound_once()
        longest = max(compute_wait(pod) for pod in pods)
        stalled = self.stalled_seconds
        assert longest <= longest_seconds + WHOLE_SECONDS + stalled, f"{longest:.0f} s, with {stalled:.1f} s of stalls"

    def _check_bound_once(self) -> None:
        """Judge by the events, which come a little after the bindings; who loses the lease forgets the last ones."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

        def read() -> dict[str, int]:
            counts: dict[str, int] = dict.fromkeys(self.names, 0)
            for event in self.api.items(path, fieldSelector="reason=Scheduled"):
                times = (event.get("series") or {}).get("count", 1)
                counts[event["regarding"]["name"]] += times
            return counts

        half = len(self.names) / 2
        wait_for(lambda: sum(read().values()) >= half, PATIENCE_SECONDS, "the events of most bindings", pause=0.5)
        assert [name for name, count in read().items() if count > 1] == []


def compute_wait(pod: Json) -> float:
    """Return the seconds from a pod's creation until it had a node."""
    times = (pod["metadata"]["creationTimestamp"], find_condition(pod)["lastTransitionTime"])
    made, scheduled = (datetime.fromisoformat(text) for text in times)
    return (scheduled - made).total_seconds()
