from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairbind.cluster.objects.decode import PODS, ResourceType
from fairbind.cluster.objects.facts import PodFacts
from fairbind.kube.client.errors import (
    MAX_RETRY_AFTER_SECONDS,
    AnswerTooLargeError,
    ApiError,
    NotSentError,
    TransientClusterError,
)
from fairbind.kube.client.reflector import (
    ABSENT_SECONDS,
    LINES_AT_ONCE,
    MAX_BACKOFF_SECONDS,
    MAX_RELIST_SECONDS,
    Reflector,
)
from kube.client.server import LOST, Collected, Server, wait_until
from kube.operator.simulation import run_virtual
from rejections import UNREADABLE

GONE = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}


@dataclass
class Setting:
    server: Server
    sink: Collected
    reflector: Reflector[PodFacts]
    restarts: list[tuple[str, str]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def find_problem(self) -> str | None:
        return self.reflector.problem

    @property
    def names(self) -> set[str]:
        return set(self.sink.pods)

    async def wait_for(self, *names: str) -> None:
        await wait_until(lambda: self.names == set(names))


def make_setting(page_size: int = 2, *, is_optional: bool = False) -> Setting:
    server, sink = Server(), Collected()
    restarts: list[tuple[str, str]] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    reflector = Reflector(
        server,
        ResourceType(PODS.name, PODS.path, PODS.wire_type, PODS.convert, is_optional=is_optional),
        sink,
        on_restart=lambda kind, reason: restarts.append((kind, reason)),
        page_size=page_size,
        sleep=sleep,
        jitter=lambda: 1.0,
    )
    return Setting(server, sink, reflector, restarts, slept)


@contextlib.asynccontextmanager
async def running(setting: Setting) -> AsyncIterator[Setting]:
    task = asyncio.create_task(setting.reflector.run())
    try:
        yield setting
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert setting.server.open_watches == 0


@contextlib.asynccontextmanager
async def following(*names: str) -> AsyncIterator[Setting]:
    """A reflector that has listed these pods and watches."""
    setting = make_setting()
    for name in names:
        await setting.server.put(name)
    async with running(setting):
        await wait_until(lambda: setting.server.open_watches == 1)
        yield setting


async def test_everything_is_listed_page_by_page_before_it_is_synced() -> None:
    setting = make_setting(page_size=2)
    for name in ("a", "b", "c", "d", "e"):
        await setting.server.put(name)
    assert setting.find_problem() == "not listed yet"
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
        assert setting.names == {"a", "b", "c", "d", "e"}
        assert setting.sink.lists == 1
        assert setting.find_problem() is None
    assert [query.get("continue") for query in setting.server.requests] == [None, "2", "4"]


async def test_where_objects_are_large_a_page_has_fewer_of_them_and_more_again_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = make_setting(page_size=8)
    names = [f"p{n:02}" for n in range(30)]
    for name in names:
        await setting.server.put(name)
    large = {"p09", "p10", "p11"}
    request = setting.server.request

    async def refuse_large(method: str, path: str, **options: Any) -> bytes:
        body = await request(method, path, **options)
        many = len(json.loads(body)["items"]) > 1
        if many and any(f'"{name}"'.encode() in body for name in large):
            raise AnswerTooLargeError("too large")
        return body

    monkeypatch.setattr(setting.server, "request", refuse_large)
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
        assert setting.names == set(names)
    assert setting.restarts == []
    assert setting.slept == []
    refused_once_each = [2, 1] * 4
    assert [int(query["limit"]) for query in setting.server.requests] == [8, 8, *refused_once_each, 2, 4, 8, 8]


async def test_an_empty_cluster_is_synced_too() -> None:
    async with following() as setting:
        assert setting.reflector.synced.is_set()


async def test_the_watch_brings_what_happens_after_the_list() -> None:
    async with following("a", "b") as setting:
        version = setting.server.watches[0]["resourceVersion"]
        await setting.server.put("c")
        await setting.server.delete("a")
        await setting.server.put("b", node="n")
        await setting.wait_for("b", "c")
        await wait_until(lambda: setting.sink.pods["b"].node == "n")
        assert version == "102"
        assert setting.server.watches[0]["allowWatchBookmarks"] == "true"
        assert 15 <= int(setting.server.watches[0]["timeoutSeconds"]) <= 24
    assert setting.restarts == []


async def test_a_watch_that_breaks_goes_on_where_it_was() -> None:
    async with following("a") as setting:
        await setting.server.put("b")
        await setting.wait_for("a", "b")
        await setting.server.break_watches(LOST)
        await wait_until(lambda: len(setting.server.watches) == 2)
        await setting.server.put("c")
        await setting.wait_for("a", "b", "c")
        assert setting.server.watches[1]["resourceVersion"] == "102"
        assert setting.sink.lists == 1
        assert setting.find_problem() is None
    assert setting.restarts == [("pods", "connection")]


async def test_a_bookmark_moves_the_place_to_go_on_from() -> None:
    async with following("a") as setting:
        await setting.server.send_bookmark()
        setting.server.compact()
        await setting.server.break_watches(LOST)
        await wait_until(lambda: len(setting.server.watches) == 2)
        await setting.server.put("b")
        await setting.wait_for("a", "b")
        assert setting.sink.lists == 1


async def test_a_watch_that_the_server_ends_after_its_time_is_no_trouble() -> None:
    async with following("a") as setting:
        await setting.server.break_watches()
        await wait_until(lambda: len(setting.server.watches) == 2)
        assert setting.find_problem() is None
    assert setting.restarts == []
    assert setting.slept  # it ended at once, and that must not become a busy loop


async def test_a_history_that_is_lost_is_listed_anew_and_deletions_are_found() -> None:
    async with following("a", "b") as setting:
        setting.server.faults = [ApiError(429, "TooManyRequests", "slow down")]
        await setting.server.break_watches(LOST)
        await wait_until(lambda: setting.server.open_watches == 0)
        await setting.server.delete("a")
        await setting.server.put("c")
        setting.server.compact()
        await setting.wait_for("b", "c")
        await wait_until(lambda: setting.server.open_watches == 1)
        await setting.server.put("d")
        await setting.wait_for("b", "c", "d")
        assert setting.sink.lists == 2
    assert ("pods", "expired") in setting.restarts


async def test_a_lost_history_may_also_come_as_an_event() -> None:
    async with following("a", "b") as setting:
        del setting.server.pods["a"]
        setting.server.compact()
        await setting.server.send(json.dumps({"type": "ERROR", "object": GONE}).encode())
        await setting.wait_for("b")
        assert setting.sink.lists == 2
    assert setting.restarts == [("pods", "expired")]


async def test_a_list_that_expires_between_its_pages_begins_anew() -> None:
    setting = make_setting(page_size=1)
    for name in ("a", "b"):
        await setting.server.put(name)
    setting.server.list_faults = [ApiError(410, "Expired", "the continue token is too old")]
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
        assert setting.names == {"a", "b"}
        assert setting.sink.lists == 1


async def test_a_server_that_refuses_connections_is_asked_ever_less_often() -> None:
    setting = make_setting()
    setting.server.faults = [NotSentError("connection refused") for _ in range(10)]
    async with running(setting):
        await wait_until(lambda: len(setting.slept) > 3)
        assert setting.find_problem() == "connection refused"
        assert not setting.reflector.synced.is_set()
        await wait_until(setting.reflector.synced.is_set)
        assert setting.find_problem() is None
    assert setting.slept[:3] == [0.1, 0.2, 0.4]
    assert max(setting.slept) == MAX_BACKOFF_SECONDS


async def test_a_server_that_goes_away_while_we_watch_is_a_problem_until_it_is_back() -> None:
    async with following("a") as setting:
        setting.server.faults = [NotSentError("connection refused") for _ in range(5)]
        await setting.server.break_watches(LOST)
        await wait_until(lambda: setting.find_problem() == "connection refused")
        await wait_until(lambda: setting.find_problem() is None)
        await setting.server.put("b")
        await setting.wait_for("a", "b")
    assert setting.restarts == [("pods", "connection")]


async def test_the_server_says_how_long_to_wait() -> None:
    setting = make_setting()
    setting.server.faults = [ApiError(429, "TooManyRequests", "slow down", 7.0)]
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
    assert setting.slept[0] == 7.0


async def test_a_forbidden_verb_is_named_with_what_to_do_and_asked_for_again() -> None:
    setting = make_setting()
    message = 'pods is forbidden: User "x" cannot list resource "pods"'
    setting.server.faults = [ApiError(403, "Forbidden", message) for _ in range(3)]
    async with running(setting):
        await wait_until(lambda: len(setting.slept) == 2)
        problem = setting.find_problem() or ""
        assert 'cannot list resource "pods"' in problem
        assert "ClusterRole" in problem
        await wait_until(setting.reflector.synced.is_set)


@pytest.mark.parametrize("line", [b"not json", b"[1]", b'{"type":"ADDED","object":"\xff"}'])
async def test_a_line_that_is_no_event_is_answered_with_a_new_list(line: bytes) -> None:
    async with following("a") as setting:
        await setting.server.send(line)
        await wait_until(lambda: setting.sink.lists == 2)
        await wait_until(lambda: setting.server.open_watches == 1)
        await setting.server.put("b")
        await setting.wait_for("a", "b")
    assert setting.restarts == [("pods", "unreadable")]


async def test_one_odd_object_does_not_stop_the_others() -> None:
    async with following("a") as setting:
        await setting.server.put("odd", tolerations="all")
        await setting.server.put("b")
        await setting.wait_for("a", "odd", "b")
        assert setting.sink.pods["odd"].unsupported == UNREADABLE
        assert setting.sink.lists == 1


async def test_a_cluster_that_went_back_in_time_is_listed_anew() -> None:
    async with following("a", "b") as setting:
        setting.server.version = 50
        setting.server.history.clear()
        del setting.server.pods["b"]
        await setting.server.break_watches(LOST)
        await setting.wait_for("a")
        await wait_until(lambda: setting.server.open_watches == 1)
        await setting.server.put("c")
        await setting.wait_for("a", "c")
    assert ("pods", "expired") in setting.restarts


async def replace_history(server: Server) -> None:
    """Restore the cluster from a backup and let so much happen that its version is beyond the one that was known."""
    server.history.clear()
    server.pods = {name: pod for name, pod in server.pods.items() if name != "b"}
    server.version += 50


def play_restore(seconds_before: float, faults: list[Exception], error: Exception | None = LOST) -> Setting:
    """Let a watch that has lasted so long break, and these faults follow; return what is known 30 s later.

    Meanwhile another history takes the place of ours.
    """
    setting = make_setting()
    setting.reflector = Reflector(
        setting.server,
        PODS,
        setting.sink,
        on_restart=lambda kind, reason: setting.restarts.append((kind, reason)),
        jitter=lambda: 1.0,
    )

    async def main() -> None:
        for name in ("a", "b"):
            await setting.server.put(name)
        async with running(setting):
            await asyncio.sleep(seconds_before)
            await replace_history(setting.server)
            setting.server.faults = list(faults)
            await setting.server.break_watches(error)
            await asyncio.sleep(30.0)

    run_virtual(main())
    return setting


REFUSED = NotSentError("connection refused")


@pytest.mark.parametrize(
    "faults",
    [[REFUSED], [LOST], [ApiError(503, "ServiceUnavailable", "no server"), LOST]],
    ids=["refused", "no answer", "a balancer without servers"],
)
@pytest.mark.parametrize("seconds_before", [1.0, 12.0])
def test_a_server_that_was_away_may_have_another_history_of_a_higher_version(
    seconds_before: float, faults: list[Exception]
) -> None:
    setting = play_restore(seconds_before, faults)
    assert setting.names == {"a"}
    assert setting.sink.lists >= 2
    assert setting.restarts[0] == ("pods", "connection")


async def test_until_everything_is_listed_again_it_is_owed() -> None:
    async with following("a", "b") as setting:
        setting.server.faults = [REFUSED, REFUSED]
        setting.server.list_faults = [REFUSED, REFUSED]
        await setting.server.break_watches(LOST)
        await wait_until(lambda: setting.reflector.needs_relist)
        assert setting.sink.lists == 1
        assert setting.find_problem() is not None
        await wait_until(lambda: setting.sink.lists == 2)
        assert not setting.reflector.needs_relist
        await wait_until(lambda: setting.find_problem() is None)


async def test_while_a_list_reaches_the_sink_in_parts_it_is_owed_and_others_work() -> None:
    async with following("a", "b") as setting:
        setting.sink.is_slow = True
        await setting.server.put("c")
        await setting.server.break_watches(ApiError(410, "Expired", "too old"))
        seen = set()

        def is_listed() -> bool:
            if setting.sink.lists == 2:
                seen.add((setting.reflector.needs_relist, setting.reflector.is_half_listed, len(setting.names)))
            return (False, False, 3) in seen

        await wait_until(is_listed)
        assert seen == {(True, True, 1), (True, True, 2), (True, True, 3), (False, False, 3)}


async def test_a_flood_of_events_lets_others_work() -> None:
    async with following() as setting:
        for n in range(3 * LINES_AT_ONCE):
            await setting.server.put(f"p{n}")
        seen = set()

        def is_all_there() -> bool:
            seen.add(len(setting.names))
            return len(setting.names) == 3 * LINES_AT_ONCE

        await wait_until(is_all_there)
        assert {LINES_AT_ONCE, 2 * LINES_AT_ONCE} <= seen


def test_a_watch_that_breaks_after_nothing_was_heard_for_long_is_followed_by_a_list() -> None:
    """The process may have been frozen meanwhile, and the server away."""
    setting = play_restore(16.0, [])
    assert setting.names == {"a"}


def test_flows_that_break_while_the_server_answers_cost_no_list() -> None:
    setting = play_restore(1.0, [])
    assert setting.sink.lists == 1


async def test_a_page_that_fails_is_asked_for_again() -> None:
    setting = make_setting(page_size=1)
    for name in ("a", "b", "c"):
        await setting.server.put(name)
    setting.server.page_faults = [LOST]
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
        await setting.wait_for("a", "b", "c")
    asked = [query.get("continue") for query in setting.server.requests]
    assert asked == [None, "1", "1", "2"]


async def test_a_page_that_fails_twice_begins_the_list_again() -> None:
    """The server was away between two pages, and the first may be of another history."""
    setting = make_setting(page_size=1)
    for name in ("a", "b", "c"):
        await setting.server.put(name)
    setting.server.page_faults = [LOST, ApiError(500, "InternalError", "etcd")]
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
        await setting.wait_for("a", "b", "c")
    asked = [query.get("continue") for query in setting.server.requests]
    assert asked == [None, "1", "1", None, "1", "2"]


async def test_relist_returns_when_a_newer_list_has_arrived() -> None:
    async with following("a", "b") as setting:
        del setting.server.pods["b"]  # nobody tells
        await asyncio.gather(setting.reflector.relist(), setting.reflector.relist())
        assert setting.names == {"a"}
        await wait_until(lambda: setting.server.open_watches == 1)
        await setting.server.put("c")
        await setting.wait_for("a", "c")
    assert setting.restarts == []


async def test_relist_outlasts_a_server_that_is_away() -> None:
    async with following("a", "b") as setting:
        setting.server.faults = [TransientClusterError("timed out") for _ in range(4)]
        del setting.server.pods["b"]
        async with asyncio.timeout(20):
            await setting.reflector.relist()
        assert setting.names == {"a"}


async def test_relist_before_the_first_list_returns_with_it() -> None:
    setting = make_setting()
    await setting.server.put("a")
    async with running(setting), asyncio.timeout(20):
        await setting.reflector.relist()
        assert setting.names == {"a"}


def test_a_history_that_is_lost_again_and_again_makes_ever_fewer_lists() -> None:
    """Each watch is refused with 410 right after its list, as by an API server whose cache lags behind."""

    async def main() -> None:
        server, sink = Server(), Collected()
        reflector = Reflector(server, PODS, sink, on_restart=lambda *_: None, jitter=lambda: 0.0)
        server.oldest = server.version + 1_000
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(2.5)
        assert sink.lists == 2
        await asyncio.sleep(120.0)
        assert 5 <= sink.lists <= 10
        assert "listing again" in str(reflector.problem)
        server.oldest = 0
        await asyncio.sleep(MAX_RELIST_SECONDS)
        assert reflector.problem is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())


async def test_a_day_that_the_server_asks_for_is_half_a_minute() -> None:
    setting = make_setting()
    setting.server.faults = [ApiError(429, "TooManyRequests", "slow down", 86_400.0)]
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
    assert setting.slept[0] == MAX_RETRY_AFTER_SECONDS


def test_watches_that_bring_nothing_and_never_end_make_what_is_known_old_although_requests_are_answered() -> None:
    """As behind a proxy that holds streams back."""

    async def main() -> None:
        server, restarts = Server(), 0

        def count(*_: str) -> None:
            nonlocal restarts
            restarts += 1

        reflector = Reflector(server, PODS, Collected(), on_restart=count, jitter=lambda: 0.0)
        assert reflector.age == math.inf
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(30.0)
        assert restarts == 1
        assert reflector.age < 31.0
        await asyncio.sleep(60.0)
        assert reflector.age > 75.0
        await server.put("a")
        await asyncio.sleep(1.0)
        assert reflector.age < 5.0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())


ABSENT = ApiError(404, "NotFound", "the server could not find the requested resource")


async def test_an_optional_kind_that_is_absent_is_an_empty_list_until_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    setting = make_setting(is_optional=True)
    await setting.server.put("a")
    setting.server.list_faults = [ABSENT, ABSENT, ABSENT]
    async with running(setting):
        await wait_until(setting.reflector.synced.is_set)
        assert (setting.names, setting.find_problem()) == (set(), None)
        await setting.wait_for("a")
    assert setting.slept == [ABSENT_SECONDS] * 3
    assert setting.restarts == []
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_an_optional_kind_that_goes_away_takes_its_objects_with_it() -> None:
    setting = make_setting(is_optional=True)
    await setting.server.put("a")
    async with running(setting):
        await wait_until(lambda: setting.server.open_watches == 1)
        setting.server.list_faults = [ABSENT] * 2
        await setting.server.break_watches(ABSENT)
        await setting.wait_for()
        await setting.wait_for("a")
    assert setting.restarts == [("pods", "expired")]


async def test_a_kind_that_is_not_optional_is_asked_for_until_it_is_there() -> None:
    setting = make_setting()
    setting.server.list_faults = [ABSENT]
    async with running(setting):
        await wait_until(lambda: setting.find_problem() != "not listed yet")
        assert "could not find" in str(setting.find_problem())
