from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.kube.client.api import ApiClient, NotAllowedError
from fairbind.kube.client.credentials import Credentials
from fairbind.kube.writers.binder import FORBIDDEN_SECONDS, GIVE_UP_SECONDS, MAX_BACKOFF_SECONDS, Binder, Binding
from fairbind.kube.writers.nudge import Nudge, Woken
from fairbind.kube.writers.opener import GatedPod, Opening
from kube.fakes import (
    DROPPED_AFTER,
    DROPPED_BEFORE,
    SILENT_AFTER,
    SILENT_BEFORE,
    Answer,
    CountingObserver,
    FakePods,
    FixedSource,
    Silence,
    Trick,
    connected,
    eventually,
    refuse,
    serving,
)

BIND_TIMEOUT_SECONDS = 10.0
REAL_TIMEOUT_SECONDS = 0.25
"""Where the server stays silent, for then the time is real."""


class Harness:
    """A binder before a fake API server, whose pauses take no time but move its clock."""

    def __init__(self, api: ApiClient, server: FakePods) -> None:
        self.api = api
        self.server = server
        self.observer = CountingObserver()
        self.now = 100.0
        self.pauses: list[float] = []
        self.may_bind = True
        self.refused: list[tuple[str, ...]] = []
        self.binder = self.make_binder()

    def make_binder(
        self,
        in_flight: int = 64,
        may_bind: Callable[[], bool] | None = None,
        timeout_seconds: float = BIND_TIMEOUT_SECONDS,
    ) -> Binder:
        return Binder(
            self.api,
            self.observer,
            in_flight=in_flight,
            timeout_seconds=timeout_seconds,
            may_bind=may_bind or (lambda: self.may_bind),
            on_refused=lambda *words: self.refused.append(words),
            clock=lambda: self.now,
            sleep=self.sleep,
            randomness=random.Random(1),
        )

    def play(self, *tricks: Trick) -> None:
        """Let the server play these tricks."""
        self.server.tricks = list(tricks)
        if any(isinstance(trick.answer, Silence) for trick in tricks):
            self.binder = self.make_binder(timeout_seconds=REAL_TIMEOUT_SECONDS)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def bind(self, name: str = "p", node: str = "n1", uid: str | None = None) -> BindResult:
        return await self.binder.bind("ns", name, uid or f"uid-{name}", node)


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    server = FakePods()
    server.add("p")
    async with connected(server.handle) as api:
        yield Harness(api, server)


async def test_a_binding_names_pod_uid_and_node_and_its_time_limit(harness: Harness) -> None:
    assert await harness.bind() is BindResult.BOUND
    [seen] = harness.server.seen
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    assert seen.query == {"timeout": "10s"}
    assert seen.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert harness.observer.results == ["bound"]


async def test_a_pod_of_the_same_name_but_another_uid_is_not_bound(harness: Harness) -> None:
    assert await harness.bind(uid="uid-of-the-one-before") is BindResult.CONFLICT
    assert harness.server.bound == []


async def test_a_pod_that_is_bound_already_is_a_conflict_even_on_the_same_node(harness: Harness) -> None:
    harness.server.add("p", node="n1")
    assert await harness.bind() is BindResult.CONFLICT


async def test_a_pod_that_is_gone(harness: Harness) -> None:
    assert await harness.bind("q") is BindResult.GONE
    assert len(harness.server.seen) == 1


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (422, "Invalid value", BindResult.INVALID),
        (400, "bad", BindResult.INVALID),
        (403, "may not", BindResult.FAILED),
        (403, "unable to create in namespace ns because it is being terminated", BindResult.GONE),
        (405, "no", BindResult.FAILED),
        (302, "elsewhere", BindResult.FAILED),
    ],
)
async def test_refusals_that_will_not_change_are_not_repeated(
    harness: Harness, status: int, message: str, expected: BindResult, caplog: pytest.LogCaptureFixture
) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(status, "Reason", message))]
    assert await harness.bind() is expected
    assert len(harness.server.seen) == 1
    assert (message in caplog.text) == (expected is not BindResult.GONE)


@pytest.mark.parametrize("trick", [DROPPED_AFTER, Trick(happens=True, answer=refuse(500)), SILENT_AFTER])
async def test_a_binding_whose_answer_was_lost_is_found_to_be_bound(harness: Harness, trick: Trick) -> None:
    harness.play(trick)
    assert await harness.bind() is BindResult.BOUND
    assert harness.server.bound == [("p", "n1")]


@pytest.mark.parametrize(
    "trick",
    [DROPPED_BEFORE, SILENT_BEFORE, *(Trick(happens=False, answer=refuse(status)) for status in (500, 502, 503, 504))],
)
async def test_a_binding_that_got_lost_is_sent_again(harness: Harness, trick: Trick) -> None:
    harness.play(trick, trick)
    assert await harness.bind() is BindResult.BOUND
    assert len(harness.server.binds) == 3
    assert harness.server.bound == [("p", "n1")]


async def test_a_pod_that_somebody_else_bound_after_a_lost_request_is_a_conflict(harness: Harness) -> None:
    def interfere(_seen: object) -> None:
        harness.server.pods["p"]["spec"]["nodeName"] = "n9"

    harness.server.on_request = interfere
    harness.server.tricks = [DROPPED_BEFORE]
    assert await harness.bind() is BindResult.CONFLICT
    assert harness.server.bound == []


async def test_a_pod_that_was_made_anew_after_a_lost_request_is_gone(harness: Harness) -> None:
    harness.server.tricks = [DROPPED_BEFORE]
    harness.server.on_request = lambda _seen: harness.server.add("p", uid="another")
    assert await harness.bind() is BindResult.GONE
    assert harness.server.bound == []


async def test_a_pod_that_will_not_be_bound_after_a_lost_request_is_a_conflict(harness: Harness) -> None:
    harness.server.tricks = [DROPPED_BEFORE, Trick(happens=False, answer=refuse(409, "Conflict", "gated"))]
    assert await harness.bind() is BindResult.CONFLICT


async def test_the_look_at_a_lost_binding_is_repeated_until_there_is_an_answer(harness: Harness) -> None:
    harness.server.tricks = [DROPPED_AFTER]
    garbage = Trick(happens=False, answer=Answer(200, "<html>"))
    harness.server.get_tricks = [DROPPED_BEFORE, Trick(happens=False, answer=refuse(503)), garbage]
    assert await harness.bind() is BindResult.BOUND
    assert harness.server.get_tricks == []


@pytest.mark.parametrize("status", [429, 401])
async def test_who_is_asked_for_patience_waits_and_tries_again(harness: Harness, status: int) -> None:
    refusal = refuse(status, "Reason", headers={"Retry-After": "5"})
    harness.server.tricks = [Trick(happens=False, answer=refusal)] * 2
    started = harness.now
    assert await harness.bind() is BindResult.BOUND
    waited = harness.now - started
    assert waited >= 10.0 if status == 429 else waited < 2 * MAX_BACKOFF_SECONDS


async def test_a_retry_after_holds_back_the_other_bindings_too(harness: Harness) -> None:
    for name in "abc":
        harness.server.add(name)
    harness.server.tricks = [Trick(happens=False, answer=refuse(429, "r", headers={"Retry-After": "7"}))]
    binder = harness.binder = harness.make_binder(in_flight=1)
    started = harness.now
    sent_at: list[float] = []
    harness.server.on_request = lambda _seen: sent_at.append(harness.now - started)
    results = await asyncio.gather(*(binder.bind("ns", name, f"uid-{name}", "n1") for name in "abc"))
    assert set(results) == {BindResult.BOUND}
    assert sent_at[0] == 0.0
    assert min(sent_at[1:]) >= 7.0


async def test_an_absurd_retry_after_does_not_stop_everything(harness: Harness) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(429, "r", headers={"Retry-After": "86400"}))]
    started = harness.now
    assert await harness.bind() is BindResult.BOUND
    assert harness.now - started < 30.0


async def test_a_pod_that_is_refused_for_too_long_goes_back_to_its_queue(harness: Harness) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(429))] * 1000
    assert await harness.bind() is BindResult.FAILED
    assert harness.server.bound == []
    assert harness.observer.results == ["failed"]


async def test_giving_up_waits_until_no_request_can_be_carried_out_any_more(harness: Harness) -> None:
    lost_at: list[float] = []
    looked_at: list[float] = []

    def note(seen: Any) -> None:
        (lost_at if seen.method == "POST" else looked_at).append(harness.now)

    harness.server.on_request = note
    harness.server.tricks = [Trick(happens=False, answer=refuse(503))] * 1000
    assert await harness.bind() is BindResult.FAILED
    assert looked_at
    assert looked_at[0] >= lost_at[-1] + BIND_TIMEOUT_SECONDS


async def test_giving_up_finds_a_binding_that_happened_all_the_same(harness: Harness) -> None:
    harness.server.tricks = [Trick(happens=True, answer=refuse(503))] * 1000
    assert await harness.bind() is BindResult.BOUND


async def test_a_server_that_is_not_there_is_waited_for() -> None:
    server = FakePods()
    async with serving(server.handle) as url:
        pass
    api = ApiClient(Credentials(FixedSource(url)))
    harness = Harness(api, server)
    started = harness.now
    assert await harness.bind() is BindResult.FAILED
    assert harness.now - started >= GIVE_UP_SECONDS
    await api.close()


async def test_no_more_than_the_bound_are_in_flight(harness: Harness) -> None:
    gate = asyncio.Event()
    harness.server.pace = gate.wait
    for number in range(50):
        harness.server.add(f"p{number}")
    binder = harness.make_binder(in_flight=8)
    binds = asyncio.gather(*(binder.bind("ns", f"p{n}", f"uid-p{n}", "n1") for n in range(50)))
    await eventually(lambda: harness.server.open_requests >= 8)
    assert binder.in_flight == 50
    gate.set()
    assert set(await binds) == {BindResult.BOUND}
    assert harness.server.most_open == 8
    assert binder.in_flight == 0


class TestFence:
    """Removing any of the places that ask the fence must make one of these fail."""

    async def test_nothing_is_sent_by_who_does_not_lead(self, harness: Harness) -> None:
        harness.may_bind = False
        assert await harness.bind() is BindResult.FENCED
        assert harness.server.seen == []
        assert harness.observer.results == ["fenced"]

    async def test_a_lead_that_ends_while_the_connection_is_made_sends_nothing(self, harness: Harness) -> None:
        class Slow(Credentials):
            async def authorization(self) -> str | None:
                harness.may_bind = False
                return None

        harness.api = ApiClient(Slow(FixedSource(harness.api._credentials.server)))
        result = await harness.make_binder().bind("ns", "p", "uid-p", "n1")
        await harness.api.close()
        assert result is BindResult.FENCED
        assert harness.server.seen == []

    @pytest.mark.parametrize(
        "trick", [DROPPED_BEFORE, DROPPED_AFTER, Trick(happens=False, answer=refuse(429)), SILENT_BEFORE]
    )
    async def test_a_lead_that_ends_during_a_request_sends_no_other(self, harness: Harness, trick: Trick) -> None:
        def lose(_seen: object) -> None:
            harness.may_bind = False

        harness.server.on_request = lose
        harness.play(trick)
        assert await harness.bind() is BindResult.FENCED
        assert len(harness.server.seen) == 1

    @pytest.mark.parametrize("trick", [DROPPED_AFTER, Trick(happens=True, answer=refuse(503))])
    async def test_a_room_is_not_given_back_while_a_request_may_still_be_carried_out(
        self, harness: Harness, trick: Trick
    ) -> None:
        def lose(_seen: object) -> None:
            harness.may_bind = False

        harness.server.on_request = lose
        harness.server.tricks = [trick]
        began = harness.now
        assert await harness.bind() is BindResult.FENCED
        assert harness.now >= began + BIND_TIMEOUT_SECONDS

    async def test_a_lead_that_comes_back_meanwhile_finds_out_what_became_of_it(self, harness: Harness) -> None:
        def lose(_seen: object) -> None:
            harness.may_bind = False
            harness.server.on_request = lambda _seen: None

        async def pause_and_lead(seconds: float) -> None:
            await harness.sleep(seconds)
            harness.may_bind = len(harness.pauses) > 1

        harness.server.on_request = lose
        harness.server.tricks = [DROPPED_AFTER]
        binder = harness.make_binder()
        binder.sleep = pause_and_lead
        assert await binder.bind("ns", "p", "uid-p", "n1") is BindResult.BOUND
        assert harness.server.bound == [("p", "n1")]

    async def test_a_lead_that_ends_while_waiting_for_a_free_place_sends_nothing(self, harness: Harness) -> None:
        gate = asyncio.Event()
        harness.server.pace = gate.wait
        harness.server.add("q")
        binder = harness.make_binder(in_flight=1)
        first = asyncio.create_task(binder.bind("ns", "p", "uid-p", "n1"))
        second = asyncio.create_task(binder.bind("ns", "q", "uid-q", "n1"))
        await eventually(lambda: harness.server.open_requests)
        harness.may_bind = False
        gate.set()
        assert await first is BindResult.BOUND  # it was on its way
        assert await second is BindResult.FENCED
        assert harness.server.bound == [("p", "n1")]


async def test_draining_lets_what_is_on_its_way_end_and_sends_nothing_more(harness: Harness) -> None:
    gate = asyncio.Event()
    harness.server.pace = gate.wait
    harness.server.add("q")
    harness.server.add("r")
    binder = harness.make_binder(in_flight=1)
    first = asyncio.create_task(binder.bind("ns", "p", "uid-p", "n1"))
    second = asyncio.create_task(binder.bind("ns", "q", "uid-q", "n1"))
    await eventually(lambda: harness.server.open_requests)
    assert not await binder.drain(0.01)
    gate.set()
    assert await binder.drain(10.0)
    assert await first is BindResult.BOUND
    assert await second is BindResult.FENCED
    assert await binder.bind("ns", "r", "uid-r", "n1") is BindResult.FENCED
    assert harness.server.bound == [("p", "n1")]


async def test_the_same_trouble_is_a_warning_once_a_minute(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(403, "Forbidden", "may not"))] * 3
    await harness.bind()
    await harness.bind()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    harness.now += 61.0
    await harness.bind()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


async def test_a_trouble_names_its_pod_and_node_in_fields(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(403, "Forbidden", "may not"))]
    await harness.bind()
    (record,) = caplog.records
    assert {name: record.__dict__[name] for name in ("pod", "node")} == {"pod": "ns/p", "node": "n1"}
    assert "may not" in record.__dict__["reason"]
    assert record.getMessage() == f"Binding ns/p to n1 was refused: {record.__dict__['reason']}"


RIGHT_MISSING = Trick(
    happens=False,
    answer=refuse(403, "Forbidden", 'pods "p" is forbidden: User "u" cannot create resource "pods/binding"'),
)


@pytest.mark.parametrize("refusal", [RIGHT_MISSING, Trick(happens=False, answer=refuse(405, "MethodNotAllowed", "no"))])
async def test_while_bindings_are_forbidden_one_now_and_then_finds_out_whether_they_still_are(
    harness: Harness, refusal: Trick
) -> None:
    for name in "abc":
        harness.server.add(name)
    harness.server.tricks = [refusal] * 2
    assert await harness.bind("a") is BindResult.FAILED
    problem = harness.binder.problem or ""
    assert problem.startswith("forbidden: ")
    assert "create on pods/binding" in problem
    assert harness.binder.is_held_back()
    for _ in range(20):
        assert await harness.bind("b") is BindResult.FAILED
    assert len(harness.server.binds) == 1
    harness.now += FORBIDDEN_SECONDS
    assert not harness.binder.is_held_back()
    assert await asyncio.gather(*(harness.bind(name) for name in "abc")) == [BindResult.FAILED] * 3
    assert len(harness.server.binds) == 2
    harness.now += FORBIDDEN_SECONDS
    assert await harness.bind("c") is BindResult.BOUND  # it was granted
    assert harness.binder.problem is None
    assert await harness.bind("a") is BindResult.BOUND


async def test_a_refusal_of_one_binding_holds_back_no_other(harness: Harness) -> None:
    denied = refuse(403, "Forbidden", 'admission webhook "x" denied the request')
    harness.server.tricks = [Trick(happens=False, answer=denied)]
    assert await harness.bind() is BindResult.FAILED
    assert harness.binder.problem is None
    assert await harness.bind() is BindResult.BOUND


async def test_nothing_is_sent_to_a_node_that_is_gone_or_closed_meanwhile(harness: Harness) -> None:
    open_nodes = {"n1"}
    gate = asyncio.Event()
    harness.server.pace = gate.wait
    harness.server.add("q")
    binder = harness.binder = harness.make_binder(in_flight=1)
    binder.may_use = lambda _uid, node: node in open_nodes
    first, second = asyncio.create_task(harness.bind("p")), asyncio.create_task(harness.bind("q"))
    await eventually(lambda: harness.server.open_requests)
    open_nodes.clear()
    gate.set()
    assert await first is BindResult.BOUND  # it was on its way
    assert await second is BindResult.STALE
    assert len(harness.server.seen) == 1


async def test_a_lost_binding_to_a_node_that_is_gone_is_looked_at_before_its_room_is_given_back(
    harness: Harness,
) -> None:
    open_nodes = {"n1"}
    harness.binder.may_use = lambda _uid, node: node in open_nodes
    harness.server.on_request = lambda _seen: open_nodes.clear()
    harness.server.tricks = [DROPPED_AFTER]
    assert await harness.bind() is BindResult.BOUND
    assert [seen.method for seen in harness.server.seen] == ["POST", "GET"]


async def test_what_had_to_wait_for_its_slot_is_not_sent_when_its_namespace_came_to_be_slow(harness: Harness) -> None:
    gate = asyncio.Event()
    harness.server.pace = gate.wait
    harness.server.add("q")
    slow: set[str] = set()
    binder = harness.binder = harness.make_binder(in_flight=1)
    binder.may_send = lambda uid: uid not in slow
    first, second = asyncio.create_task(harness.bind("p")), asyncio.create_task(harness.bind("q"))
    await eventually(lambda: harness.server.open_requests)
    slow.update({"uid-p", "uid-q"})
    gate.set()
    assert await first is BindResult.BOUND  # it was on its way
    assert await second is BindResult.DEFERRED
    assert len(harness.server.seen) == 1


async def test_a_binding_of_which_nothing_is_known_goes_on_when_its_namespace_came_to_be_slow(harness: Harness) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(500))]
    harness.binder.may_send = lambda _uid: not harness.server.seen
    assert await harness.bind() is BindResult.BOUND
    assert len(harness.server.seen) == 2


async def test_nothing_is_sent_when_somebody_else_took_the_room_meanwhile(harness: Harness) -> None:
    gate = asyncio.Event()
    harness.server.pace = gate.wait
    harness.server.add("q")
    crowded: set[tuple[str, str]] = set()
    binder = harness.binder = harness.make_binder(in_flight=1)
    binder.has_capacity = lambda uid, node: (uid, node) not in crowded
    first, second = asyncio.create_task(harness.bind("p")), asyncio.create_task(harness.bind("q"))
    await eventually(lambda: harness.server.open_requests)
    crowded.update({("uid-p", "n1"), ("uid-q", "n1")})
    gate.set()
    assert await first is BindResult.BOUND  # it was on its way
    assert await second is BindResult.OVERCOMMITTED
    assert len(harness.server.seen) == 1
    assert sorted(harness.observer.results) == ["bound", "crowded"]


async def test_a_lost_binding_to_a_node_without_room_is_looked_at_before_its_room_is_given_back(
    harness: Harness,
) -> None:
    rooms = iter([True, False])
    harness.binder.has_capacity = lambda _uid, _node: next(rooms)
    harness.server.tricks = [DROPPED_AFTER]
    assert await harness.bind() is BindResult.BOUND
    assert [seen.method for seen in harness.server.seen] == ["POST", "GET"]


async def test_a_webhook_that_says_too_many_requests_holds_nobody_else_back(harness: Harness) -> None:
    message = 'admission webhook "x.example.com" denied the request: slow down'
    harness.server.tricks = [Trick(happens=False, answer=refuse(429, "TooManyRequests", message))]
    assert await harness.bind() is BindResult.BOUND
    assert harness.binder._not_before == 0.0


@pytest.mark.parametrize(
    ("status", "reason", "message", "times"),
    [
        (403, "Forbidden", 'admission webhook "x.example.com" denied the request: no', 1),
        (422, "Invalid", "ValidatingAdmissionPolicy 'p' denied request: no", 1),
        (500, "InternalError", 'failed calling webhook "x.example.com": no endpoints', 4),
        (403, "Forbidden", 'User "u" cannot create resource "pods/binding" in API group ""', 1),
    ],
)
async def test_the_servers_words_about_a_refused_binding_are_passed_on(
    harness: Harness, status: int, reason: str, message: str, times: int
) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(status, reason, message)) for _ in range(times)]
    assert await harness.bind() in {BindResult.FAILED, BindResult.INVALID}
    assert harness.refused == [("ns", "uid-p", "binding to n1", f"{status} {reason}: {message}")]


async def test_what_is_said_of_a_gate_that_does_not_open_is_not_of_a_binding(harness: Harness) -> None:
    harness.server.get_tricks = [Trick(happens=False, answer=refuse(422, "Invalid", "no"))]
    pod = GatedPod("ns", "p", "uid-p", "1")
    assert await harness.binder.carry(Opening(harness.binder, pod, "n1", lambda _: None)) is BindResult.INVALID
    assert harness.refused == [("ns", "uid-p", "opening its gate", "422 Invalid: no")]


class Late:
    """An API server so far away that the lease is lost while a request waits for its connection."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    async def request(self, *_: Any, guard: Callable[[], bool] | None = None, **__: Any) -> bytes:
        self.harness.may_bind = False
        if guard is not None and not guard():
            raise NotAllowedError
        return b"{}"


@pytest.mark.parametrize(
    "make",
    [
        lambda binder: Binding(binder, "ns", "p", "uid-p", "n1", lambda _: None),
        lambda binder: Opening(binder, GatedPod("ns", "p", "uid-p", "1"), "n1", lambda _: None),
        lambda binder: Nudge(binder, Woken("ns", "p", "uid-p"), 0.0, lambda _: None),
    ],
)
async def test_the_fence_is_asked_as_the_bytes_are_handed_over(
    harness: Harness, make: Callable[[Binder], Binding]
) -> None:
    harness.api = cast("ApiClient", Late(harness))
    binder = harness.make_binder()
    assert await binder.carry(make(binder)) is BindResult.FENCED


async def test_a_binding_that_succeeds_in_the_end_or_of_a_pod_that_waits_no_more_is_no_refusal(
    harness: Harness,
) -> None:
    harness.server.tricks = [Trick(happens=False, answer=refuse(500, "InternalError", "once"))]
    assert await harness.bind() is BindResult.BOUND
    assert await harness.bind() is BindResult.CONFLICT
    assert await harness.bind("q") is BindResult.GONE
    assert harness.refused == []


async def test_while_nobody_may_bind_every_pod_that_was_decided_hears_why(harness: Harness) -> None:
    message = 'User "u" cannot create resource "pods/binding" in API group ""'
    harness.server.tricks = [Trick(happens=False, answer=refuse(403, "Forbidden", message))]
    assert [await harness.bind(), await harness.bind("q")] == [BindResult.FAILED] * 2
    assert [message in answer for *_, answer in harness.refused] == [True, True]
