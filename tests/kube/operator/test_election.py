"""The fence as the deciding side sees it, while the elector runs in another thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from fairbind.kube.operator.election import OnChange, ThreadedElector
from fairbind.kube.operator.elector import Elector
from fairbind.kube.operator.loop_thread import LoopThread
from kube.operator.simulation import DirectApi, LeaseServer


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("front")
    made.start()
    yield made
    made.stop()


class Played:
    """Stands for an elector in the thread; the test says what happens to it."""

    problem: str | None = None

    def __init__(self, report: OnChange) -> None:
        self.report = report
        self.term = 0
        self.holds = False

    def may_bind(self, _margin_seconds: float | None = None) -> bool:
        return self.holds

    async def run(self) -> None:
        await asyncio.Event().wait()

    def win(self) -> None:
        self.holds = True
        self.report(True)

    def lose(self) -> None:
        self.holds = False
        self.term += 1
        self.report(False)


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60.0):
        while not condition():  # noqa: ASYNC110 - the other thread tells nobody
            await asyncio.sleep(0.005)


async def test_a_lease_is_taken_renewed_and_given_back_from_the_thread(thread: LoopThread) -> None:
    server, changes = LeaseServer(), list[bool]()
    election = ThreadedElector(
        lambda report: Elector(DirectApi(server), "fairbind-system", identity="me", on_change=report),
        thread,
        changes.append,
    )
    assert not election.may_bind()
    running = asyncio.create_task(election.run())
    await eventually(election.may_bind)
    assert (changes, server.holder, election.problem) == ([True], "me", None)
    assert not election.may_bind(60.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert election.leading  # whoever ended it decides what becomes of the lease
    await election.release()
    assert (changes, server.holder) == ([True, False], "")
    assert not election.leading


async def test_a_lease_that_was_lost_and_won_again_meanwhile_counts_only_after_both_were_told(
    thread: LoopThread,
) -> None:
    """Another may have led in between, so what was decided before must not be sent."""
    seen: list[tuple[bool, bool]] = []
    election = ThreadedElector(
        lambda report: cast("Any", Played(report)), thread, lambda leading: seen.append((leading, election.may_bind()))
    )
    played = cast("Played", election._elector)
    running = asyncio.create_task(election.run())
    await asyncio.sleep(0)
    thread.call(played.win)
    await eventually(election.may_bind)

    def lose_and_win() -> None:
        played.lose()
        played.win()

    thread.call(lose_and_win)
    ends_at = time.monotonic() + 60.0
    while not (played.term == 1 and played.holds):  # our loop does not turn meanwhile
        assert time.monotonic() < ends_at
    assert not election.may_bind()
    await eventually(election.may_bind)
    assert seen == [(True, True), (False, False), (True, True)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_end_of_the_elector_is_the_end_of_the_election(thread: LoopThread) -> None:
    class Broken(Played):
        async def run(self) -> None:
            raise RuntimeError("broken")

    election = ThreadedElector(lambda report: cast("Any", Broken(report)), thread, lambda _leading: None)
    with pytest.raises(RuntimeError, match="broken"):
        await election.run()
