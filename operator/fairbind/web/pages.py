"""Pages that are rendered at most once a second, however many read them.

Rendering a page of a thousand tenants takes a tenth of a second of Python. So it happens in a thread of its own, one at
a time, and a client that asks meanwhile or within a second gets the same bytes. Two formats are kept, Prometheus' text
and OpenMetrics: what else an Accept header says changes nothing of what we show, and so causes no further rendering.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass

PAGE_SECONDS = 1.0
"""How old a page may be, counted from the begin of its rendering."""
MOST_BUSY = 0.5
"""At most this part of the time goes into rendering one format: a page that takes long to make is kept longer."""
COMPRESS_FROM_BYTES = 4096
COMPRESSION_LEVEL = 5

OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_ACCEPT = f"{OPENMETRICS};version=1.0.0"
TEXT_ACCEPT = "text/plain"

Render = Callable[[str], tuple[bytes, str]]
"""Returns a page, in the format that an Accept header asks for, and its content type. Called in other threads."""


@dataclass(frozen=True, slots=True)
class Page:
    """One rendered page. compressed: the body by gzip; None when it is too small to be worth it."""

    body: bytes
    compressed: bytes | None
    content_type: str


@dataclass(frozen=True, slots=True)
class _Kept:
    page: Page
    until: float


def choose_format(accept: str) -> str:
    """Return the one of the two Accept headers that we render for: the first that is named, else the text format.

    >>> choose_format("application/openmetrics-text;version=1.0.0,text/plain;q=0.5") == OPENMETRICS_ACCEPT
    True
    >>> choose_format("text/plain;version=1.0.0;q=0.9,application/openmetrics-text;q=0.1"), choose_format("*/*")
    ('text/plain', 'text/plain')
    """
    for item in accept.split(","):
        match item.partition(";")[0].strip().lower():
            case "application/openmetrics-text":
                return OPENMETRICS_ACCEPT
            case "text/plain":
                return TEXT_ACCEPT
    return TEXT_ACCEPT


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip.

    >>> [takes_gzip(header) for header in ("gzip", "br;q=1.0, gzip;q=0.8", "gzip;q=0", "identity", "")]
    [True, True, False, False, False]
    """
    for item in accept_encoding.split(","):
        coding, _, quality = item.partition(";")
        if coding.strip().lower() == "gzip":
            return quality.replace(" ", "").rstrip("0").rstrip(".") != "q="
    return False


class PageCache:
    """Renders when it must. Belongs to one event loop."""

    def __init__(self, render: Render, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._admission = asyncio.Lock()

    async def get(self, accept: str) -> Page:
        """Return the page in the format that an Accept header asks for."""
        wanted = choose_format(accept)
        if (page := self._recall(wanted)) is not None:
            return page
        async with self._admission:
            if (page := self._recall(wanted)) is not None:
                return page
            started = self._clock()
            page = await asyncio.to_thread(self._make, wanted)
            took = self._clock() - started
            self._kept[wanted] = _Kept(page, started + max(PAGE_SECONDS, took / MOST_BUSY))
            return page

    def _recall(self, wanted: str) -> Page | None:
        kept = self._kept.get(wanted)
        return kept.page if kept is not None and self._clock() < kept.until else None

    def _make(self, accept: str) -> Page:
        body, content_type = self._render(accept)
        worth_it = len(body) >= COMPRESS_FROM_BYTES
        return Page(body, gzip.compress(body, COMPRESSION_LEVEL, mtime=0) if worth_it else None, content_type)
