"""However many read a page, it is rendered once a second."""

from __future__ import annotations

import asyncio
import gzip
import threading
from math import inf

import aiohttp

from fairbind.model.errors import FairbindError
from fairbind.web.connections import Limits
from fairbind.web.pages import COMPRESS_FROM_BYTES, PAGE_SECONDS, PageCache
from fairbind.web.server import WebServer
from fairbind.web.serving import Address


class Renderer:
    """Counts how often it renders. gate: rendering waits until it is set."""

    def __init__(self, size: int = 10) -> None:
        self.rendered: list[str] = []
        self.size = size
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def __call__(self, accept: str) -> tuple[bytes, str]:
        assert self.gate.wait(60.0)
        self.rendered.append(accept)
        if self.error is not None:
            raise self.error
        return f"{len(self.rendered)}".rjust(self.size).encode(), accept


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_fifty_readers_at_once_cost_one_rendering() -> None:
    render = Renderer()
    server = WebServer(
        Address("127.0.0.1", 0),
        render,
        find_dead=lambda: None,
        find_unready=lambda: None,
        limits=Limits(answers=inf),
    )
    address = await server.start()
    render.gate.clear()

    async def read(session: aiohttp.ClientSession) -> str:
        async with session.get(f"http://{address}/metrics") as answer:
            return await answer.text()

    connector = aiohttp.TCPConnector(limit=8)
    async with aiohttp.ClientSession(connector=connector) as session:
        reading = [asyncio.create_task(read(session)) for _ in range(50)]
        async with session.get(f"http://{address}/healthz") as answer:
            assert answer.status == 200  # probes do not wait for it
        render.gate.set()
        pages = await asyncio.gather(*reading)
    await server.stop()
    assert set(pages[:8]) == {"1".rjust(10)}
    assert len(render.rendered) <= 2  # the machine may be slow enough for a second one


async def test_a_page_is_kept_for_a_second_and_not_longer() -> None:
    render, clock = Renderer(), Clock()
    pages = PageCache(render, clock=clock)
    first = await pages.get("text/plain")
    clock.now += PAGE_SECONDS - 0.01
    assert await pages.get("*/*") is first
    clock.now += 0.02
    assert (await pages.get("")).body != first.body
    assert len(render.rendered) == 2


async def test_a_page_that_takes_long_is_rendered_at_most_half_of_the_time() -> None:
    clock = Clock()

    def render(_accept: str) -> tuple[bytes, str]:
        clock.now += 3.0
        return f"{clock.now}".encode(), "text/plain"

    pages = PageCache(render, clock=clock)
    first = await pages.get("")
    clock.now += 2.9
    assert await pages.get("") is first
    clock.now += 0.2
    assert await pages.get("") is not first


async def test_no_spelling_of_a_wish_makes_it_render_again() -> None:
    render, clock = Renderer(), Clock()
    pages = PageCache(render, clock=clock)
    for number in range(20):
        await pages.get(f"text/plain;version=0.0.{number}")
        await pages.get(f"application/openmetrics-text;version=1.{number}.0;escaping=x{number}")
        await pages.get(f"image/{number}")
    assert len(render.rendered) == 2


async def test_a_large_page_is_kept_compressed_too() -> None:
    large = await PageCache(Renderer(COMPRESS_FROM_BYTES)).get("")
    assert large.compressed is not None
    assert gzip.decompress(large.compressed) == large.body
    assert (await PageCache(Renderer(COMPRESS_FROM_BYTES - 1)).get("")).compressed is None


async def test_a_rendering_that_failed_is_tried_again() -> None:
    render = Renderer()
    render.error = FairbindError("broken")
    pages = PageCache(render)
    try:
        await pages.get("")
    except FairbindError:
        render.error = None
    assert (await pages.get("")).body.strip() == b"2"
