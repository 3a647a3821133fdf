"""Objects for a cluster that may be busy: what it does not take now is made later, under the same name.

A request that got no answer may have been carried out all the same, so what is there already counts as made. A moment's
trouble is borne, for on a slow machine it says little of the cluster; trouble that lasts is not, nor is a refusal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import urllib3

from demo.servers import DemoError
from demo.workload import Json
from localplane.client import ApiClient, ApiError, call_many

PATIENCE_SECONDS = 60.0
CREATING_AT_ONCE = 32
COLLECTIONS: Mapping[str, str] = {
    "Namespace": "/api/v1/namespaces",
    "Tenant": "/apis/fairbind.io/v1alpha1/tenants",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
}
"""Where objects of a kind are created, with the namespace left open."""
TROUBLES = (ApiError, urllib3.exceptions.HTTPError)
"""What the clients raise when a cluster does not do what it is asked for, or does not answer."""
ALREADY_EXISTS = "AlreadyExists"
REFUSALS = frozenset(range(400, 500)) - {409, 429}
"""The statuses that the same request would get again: with a conflict, or too many requests, it may do better later."""


class Patience:
    """Bears troubles in a row for a while, counted from the first one. clock: seconds."""

    def __init__(self, seconds: float = PATIENCE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._troubled_since: float | None = None

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do the work; tell whether that was possible, and raise its trouble when patience is at an end.

        That is when a whole attempt fails that began after the time: one that took long is not many that failed.
        """
        began = self._clock()
        try:
            work()
        except TROUBLES:
            if self._troubled_since is None:
                self._troubled_since = self._clock()
            if began >= self._troubled_since + self._seconds:
                raise
            return False
        self._troubled_since = None
        return True


class Feeder:
    """Makes objects in a cluster; what could not be made comes first the next time."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._unmade: list[Json] = []

    def feed(self, make_wanted: Callable[[], Sequence[Json]]) -> None:
        """Make what is left of the last time, on a few connections; when nothing is left, what is wanted now.

        The first trouble is raised after everything has been tried; DemoError when it is a refusal.
        """
        if not self._unmade:
            self._unmade = list(make_wanted())
        made: set[int] = set()

        def create(place: int) -> None:
            create_object(self._api, self._unmade[place])
            made.add(place)

        try:
            call_many(range(len(self._unmade)), create, parallel=CREATING_AT_ONCE)
        finally:
            self._unmade = [body for place, body in enumerate(self._unmade) if place not in made]


def create_object(api: ApiClient, body: Json) -> None:
    """Create an object unless it is there already; raise DemoError when it is refused for good."""
    metadata = body["metadata"]
    try:
        api.post(COLLECTIONS[body["kind"]].format(metadata.get("namespace")), body)
    except ApiError as error:
        if error.status in REFUSALS:
            raise DemoError(f"{body['kind']} {metadata['name']} is refused: {error}") from error
        if error.reason != ALREADY_EXISTS:
            raise
