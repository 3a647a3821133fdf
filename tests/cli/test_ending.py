"""What the operator says of trouble while it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

import pytest

from fairbind.cli.operator import StopSignals

LATE: dict[str, Any] = {"message": "Fatal error on SSL protocol", "exception": RuntimeError("the handler is closed")}


@pytest.mark.parametrize(
    ("stops", "context", "errors"),
    [(True, {**LATE, "protocol": object()}, 0), (True, LATE, 1), (False, {**LATE, "protocol": object()}, 1)],
)
def test_only_connections_that_are_being_closed_fail_in_silence(
    *, stops: bool, context: dict[str, Any], errors: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def end() -> None:
        loop = asyncio.get_running_loop()
        signals = StopSignals(loop)
        if stops:
            signals._receive(signal.SIGTERM)
            assert signals.requested.is_set()
        loop.call_exception_handler(context)

    asyncio.run(end())
    assert sum(record.levelno >= logging.ERROR for record in caplog.records) == errors
