"""Clients begin at a limited rate; the one that has waited longest goes first, and no client waits for a greedy one."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf

from fairbind.web.pace import Pace
from kube.assembled.replicas import in_virtual_time


class Log:
    """When turns came, in virtual seconds from the start, by address."""

    def __init__(self, pace: Pace) -> None:
        self.came: list[tuple[float, str]] = []
        self._pace = pace
        self._started_at = asyncio.get_running_loop().time()

    def enter(self, address: str, times: int = 1) -> list[asyncio.Future[None]]:
        turns = [self._pace.enter(address) for _ in range(times)]
        for turn in turns:
            turn.add_done_callback(lambda ended: None if ended.cancelled() else self._note(address))
        return turns

    def _note(self, address: str) -> None:
        self.came.append((round(asyncio.get_running_loop().time() - self._started_at, 6), address))


@in_virtual_time
async def test_a_second_s_worth_begins_at_once_and_the_rest_evenly() -> None:
    log = Log(Pace(100.0, 10.0))

    await asyncio.wait(log.enter("a", 14))

    assert [at for at, _ in log.came] == [0.0] * 10 + [0.1, 0.2, 0.3, 0.4]


@in_virtual_time
async def test_no_client_waits_for_an_address_that_has_used_up_its_rate() -> None:
    log = Log(Pace(100.0, 10.0))
    log.enter("greedy", 1000)
    await asyncio.sleep(3.05)

    await asyncio.wait(log.enter("modest"))

    assert log.came[-1] == (3.05, "modest")
    assert Counter(address for _, address in log.came)["greedy"] == 40  # ten at once, and ten in each second


@in_virtual_time
async def test_all_together_have_a_bound_too_and_who_has_waited_longest_goes_first() -> None:
    log = Log(Pace(50.0, 10.0))
    crowd = [f"attacker-{number}" for number in range(64)]
    for address in crowd:
        log.enter(address, 2)

    await asyncio.wait(log.enter("late"))

    assert log.came[-1] == (1.58, "late")  # 50 at once, then 78 and this one in fiftieths of a second
    assert [address for _, address in log.came] == [*(one for one in crowd for _ in range(2)), "late"]


@in_virtual_time
async def test_who_has_gone_takes_no_turn() -> None:
    log = Log(Pace(10.0, 1.0))
    await asyncio.wait(log.enter("a"))
    gone = log.enter("a", 5)
    for turn in gone:
        turn.cancel()

    await asyncio.wait(log.enter("a"))

    assert log.came == [(0.0, "a"), (1.0, "a")]


@in_virtual_time
async def test_a_rest_brings_back_a_second_s_worth_and_no_more() -> None:
    log = Log(Pace(10.0, 10.0))
    await asyncio.wait(log.enter("a", 10))
    await asyncio.sleep(60.0)

    await asyncio.wait(log.enter("a", 11))

    assert [at for at, _ in log.came] == [0.0] * 10 + [60.0] * 10 + [60.1]


@in_virtual_time
async def test_without_a_bound_all_begin_at_once() -> None:
    log = Log(Pace(inf, inf))

    await asyncio.wait(log.enter("a", 1000))

    assert {at for at, _ in log.came} == {0.0}


@in_virtual_time
async def test_addresses_that_come_and_go_are_forgotten() -> None:
    pace = Pace(50.0, 10.0)
    for number in range(2000):
        await pace.enter(f"address-{number}")

    assert len(pace._of) < 400
