"""The probes of the command `fairbind operator`: whether it lives is another question than whether it is ready."""

from __future__ import annotations

from typing import Any, cast

import aiohttp
import pytest

from fairbind.cli.operator import _Pages, _serving
from fairbind.kube.operator.health import DEAD_AFTER_SECONDS, Health
from fairbind.web.metrics import Metrics
from fairbind.web.serving import Address

PAGES = _Pages(Address("127.0.0.1", 0), certificate=None, is_guarded=False)


async def ask(url: str) -> dict[str, tuple[int, str]]:
    """Return status and text of both probes."""
    answers = {}
    async with aiohttp.ClientSession() as session:
        for probe in ("healthz", "readyz"):
            async with session.get(f"{url}/{probe}") as answer:
                answers[probe] = answer.status, await answer.text()
    return answers


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("is_ready", [False, True])
async def test_one_probe_says_whether_the_loop_turns_and_the_other_what_is_waited_for(
    *, is_dead: bool, is_ready: bool
) -> None:
    now = 100.0
    health = Health(lambda: now)
    if is_ready:
        health.clear_problem("operator")
    if is_dead:
        now += DEAD_AFTER_SECONDS + 1.0
    health.note_event_loop()
    async with _serving(PAGES, Metrics(), health, cast("Any", None)) as url:
        answers = await ask(url)
    dead = f"the scheduling loop has not turned for {DEAD_AFTER_SECONDS + 1.0:.0f} s\n"
    assert answers["healthz"] == ((503, dead) if is_dead else (200, "ok\n"))
    assert answers["readyz"] == ((200, "ok\n") if is_ready else (503, "operator: starting\n"))
