"""What happens to an error in a part that only reports: it is logged, counted, and stops nothing.

Events, statuses, overviews and fair shares tell people what was decided. A programming error in one of them must not
end the process, which would stop the decisions as well. Parts that decide or hold the lease are not protected like
this: when they fail, the process ends and another replica takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

RESTART_SECONDS = 5.0
"""How long after its error a part is started again."""

_log = logging.getLogger(__name__)


class FailureObserver(Protocol):
    """Who counts the errors."""

    def part_failed(self, part: str) -> None:
        """A part that only reports raised an error."""


class PartFailures:
    """Logs the first error of each type of each part with its traceback; counts all of them."""

    def __init__(self, observer: FailureObserver) -> None:
        self._observer = observer
        self._logged: set[tuple[str, type[BaseException]]] = set()

    def note(self, part: str, error: Exception) -> None:
        """Count an error of this part, and log it unless the part had one of its type before."""
        self._observer.part_failed(part)
        known = (part, type(error))
        level = logging.DEBUG if known in self._logged else logging.ERROR
        self._logged.add(known)
        _log.log(level, "%s: an error in a part that only reports; it goes on without it", part, exc_info=error)

    @contextlib.contextmanager
    def contain(self, part: str) -> Iterator[None]:
        """Note an error of this part instead of raising it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it was, what decides goes on
            self.note(part, error)

    async def keep_running(self, part: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a part until cancelled, and again some seconds after each error."""
        while True:
            with self.contain(part):
                await run()
            await asyncio.sleep(RESTART_SECONDS)
