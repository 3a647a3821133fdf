"""What the operator says of trouble that nobody caught."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from fairbind.cli.operator import judge_trouble

CLOSED = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

UNENDED = RuntimeError("generator didn't stop after athrow()")


@pytest.mark.parametrize(
    ("context", "errors"),
    [
        ({"exception": CLOSED, "protocol": object()}, 0),
        ({"exception": ConnectionResetError("gone"), "protocol": object()}, 0),
        ({"exception": CLOSED}, 1),
        ({"exception": RuntimeError("a bug"), "protocol": object()}, 1),
        ({"exception": ValueError("a bug"), "protocol": object()}, 1),
        ({"protocol": object()}, 1),
        ({"exception": UNENDED, "asyncgen": object()}, 0),
        ({"exception": UNENDED}, 1),
        ({"exception": RuntimeError("a bug"), "asyncgen": object()}, 1),
    ],
)
def test_only_what_is_closed_fails_in_silence(
    context: dict[str, Any], errors: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a leader that was frozen thaws: uvloop calls each of its dead connections a fatal error."""

    async def meet_trouble() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(judge_trouble)
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", **context})

    asyncio.run(meet_trouble())
    assert sum(record.levelno >= logging.ERROR for record in caplog.records) == errors
