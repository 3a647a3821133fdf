"""Who may read our metrics: what the API server is asked, how often, and what its silence means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.reviews import (
    ACCESS_REVIEWS,
    ALLOWED_SECONDS,
    BURST_SECONDS,
    LONGEST_TOKEN,
    MOST_ASKED,
    MOST_READERS,
    MOST_REFUSED,
    MOST_WAITING,
    MOST_WAITING_PER_ADDRESS,
    REFUSED_SECONDS,
    RETURNING_SECONDS,
    STRANGERS_PER_SECOND,
    TOKEN_REVIEWS,
    Reviews,
)

PROMETHEUS = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u-1",
    "groups": ["system:serviceaccounts"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}


HERE = "10.0.0.1"


def make_address(number: int) -> str:
    return f"10.1.{number // 250}.{number % 250}"


class FakeServer:
    """Knows tokens and who may read; counts the questions. gate: answers wait until it is set."""

    def __init__(self) -> None:
        self.users: dict[str, Mapping[str, Any]] = {"good": PROMETHEUS, "poor": {"username": "tenant"}}
        self.readers = {PROMETHEUS["username"]}
        self.audiences: dict[str, list[str]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.gate: asyncio.Event | None = None
        self.at_once = 0
        self.most_at_once = 0
        self.error: Exception | None = None

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = 0.0, **_: Any
    ) -> bytes:
        assert method == "POST"
        assert timeout_seconds > 0
        sent = msgspec.json.decode(body or b"")
        self.asked.append((path, sent))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.error is not None:
                raise self.error
            return msgspec.json.encode({"kind": sent["kind"], "status": self._answer(path, sent["spec"])})
        finally:
            self.at_once -= 1

    def _answer(self, path: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        if path == TOKEN_REVIEWS:
            user = self.users.get(spec["token"])
            made_for = self.audiences.get(spec["token"], ["kubernetes"])
            audiences = [name for name in spec.get("audiences", ["kubernetes"]) if name in made_for]
            if user is None or not audiences:
                return {"error": "unknown"}
            return {"authenticated": True, "user": user, "audiences": audiences}
        assert path == ACCESS_REVIEWS
        return {"allowed": spec["user"] in self.readers}

    def count(self, path: str) -> int:
        return sum(1 for asked, _ in self.asked if asked == path)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_reader_who_may_is_let_in_and_the_question_is_about_exactly_that_path() -> None:
    server = FakeServer()

    assert await Reviews(server, "/metrics").find_refusal("good", HERE) is None

    (_, token_review), (_, access_review) = server.asked
    assert (token_review["apiVersion"], token_review["kind"]) == ("authentication.k8s.io/v1", "TokenReview")
    assert token_review["spec"] == {"token": "good"}
    assert (access_review["apiVersion"], access_review["kind"]) == ("authorization.k8s.io/v1", "SubjectAccessReview")
    assert access_review["spec"] == {
        "user": PROMETHEUS["username"],
        "uid": PROMETHEUS["uid"],
        "groups": PROMETHEUS["groups"],
        "extra": PROMETHEUS["extra"],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize(
    ("token", "status", "said"),
    [
        ("", HTTPStatus.UNAUTHORIZED, "a bearer token is needed"),
        ("stolen", HTTPStatus.UNAUTHORIZED, "not valid"),
        ("x" * (LONGEST_TOKEN + 1), HTTPStatus.UNAUTHORIZED, "no token"),
        ("poor", HTTPStatus.FORBIDDEN, "tenant may not get /metrics"),
        ("\udcff", HTTPStatus.UNAUTHORIZED, "no token"),
    ],
)
async def test_others_are_refused(token: str, status: int, said: str) -> None:
    refusal = await Reviews(FakeServer(), "/metrics").find_refusal(token, HERE)

    assert refusal is not None
    assert refusal[0] == status
    assert said in refusal[1]


async def test_nobody_is_asked_for_what_cannot_be_a_token() -> None:
    server = FakeServer()
    reviews = Reviews(server, "/metrics")

    await reviews.find_refusal("", HERE)
    await reviews.find_refusal("x" * (LONGEST_TOKEN + 1), HERE)

    assert server.asked == []


async def test_answers_are_remembered_but_not_for_ever() -> None:
    server, clock = FakeServer(), Clock()
    reviews = Reviews(server, "/metrics", clock=clock)

    for _ in range(3):
        assert await reviews.find_refusal("good", HERE) is None
        assert await reviews.find_refusal("poor", HERE) is not None
    assert (server.count(TOKEN_REVIEWS), server.count(ACCESS_REVIEWS)) == (2, 2)

    clock.now += REFUSED_SECONDS + 0.1
    server.readers.add("tenant")
    assert await reviews.find_refusal("poor", HERE) is None
    assert await reviews.find_refusal("good", HERE) is None
    assert server.count(TOKEN_REVIEWS) == 3

    clock.now += ALLOWED_SECONDS
    server.readers.clear()
    assert await reviews.find_refusal("good", HERE) == (
        HTTPStatus.FORBIDDEN,
        f"{PROMETHEUS['username']} may not get /metrics",
    )


async def test_one_token_is_not_taken_for_another() -> None:
    reviews = Reviews(FakeServer(), "/metrics")

    assert await reviews.find_refusal("good", HERE) is None
    assert await reviews.find_refusal("goo", HERE) is not None
    assert await reviews.find_refusal("good ", HERE) is not None


@pytest.mark.parametrize(
    "error",
    [ApiError(403, "Forbidden", "tokenreviews: no"), ApiError(500, "x", "y"), TransientClusterError("timed out")],
)
async def test_no_answer_never_means_yes_and_is_not_remembered(error: Exception) -> None:
    server = FakeServer()
    server.error = error
    reviews = Reviews(server, "/metrics")

    refusal = await reviews.find_refusal("good", HERE)
    assert refusal is not None
    assert refusal[0] == HTTPStatus.SERVICE_UNAVAILABLE
    assert str(error) in refusal[1]

    server.error = None
    assert await reviews.find_refusal("good", HERE) is None


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"status": {"authenticated": "yes"}}', b"<html>"])
async def test_an_answer_that_makes_no_sense_never_means_yes(answer: bytes) -> None:
    class Odd:
        async def request(self, *_: object, **__: object) -> bytes:
            return answer

    refusal = await Reviews(Odd(), "/metrics").find_refusal("good", HERE)

    assert refusal is not None
    assert refusal[0] == HTTPStatus.SERVICE_UNAVAILABLE


async def test_an_empty_answer_means_no() -> None:
    class Silent:
        async def request(self, *_: object, **__: object) -> bytes:
            return b"{}"

    refusal = await Reviews(Silent(), "/metrics").find_refusal("good", HERE)

    assert refusal is not None
    assert refusal[0] == HTTPStatus.UNAUTHORIZED


async def flood(reviews: Reviews, count: int, *, addresses: int, first: int = 0) -> list[asyncio.Task[Any]]:
    """Let strangers show junk from so many addresses, and give back their questions, which may wait."""
    tasks = []
    for number in range(count):
        token = f"junk-{first + number}"
        tasks.append(asyncio.create_task(reviews.find_refusal(token, make_address(number % addresses))))
    await asyncio.sleep(0)
    return tasks


async def test_a_crowd_of_strangers_makes_few_questions_and_the_last_are_sent_away() -> None:
    server = FakeServer()
    server.gate = asyncio.Event()
    reviews = Reviews(server, "/metrics", clock=Clock())
    crowd = await flood(reviews, 300, addresses=100)
    server.gate.set()

    refusals = await asyncio.gather(*crowd)

    statuses = [refusal[0] for refusal in refusals]
    asked = statuses.count(HTTPStatus.UNAUTHORIZED)
    assert asked == min(MOST_WAITING, int(STRANGERS_PER_SECOND * BURST_SECONDS))
    assert statuses.count(HTTPStatus.SERVICE_UNAVAILABLE) == 300 - asked
    assert server.most_at_once == MOST_ASKED


async def test_one_address_makes_few_questions_and_leaves_the_rest_to_others() -> None:
    server, clock = FakeServer(), Clock()
    server.gate = asyncio.Event()
    reviews = Reviews(server, "/metrics", clock=clock)
    crowd = await flood(reviews, 50, addresses=1)
    assert sum(not task.done() for task in crowd) == MOST_WAITING_PER_ADDRESS
    reader = asyncio.create_task(reviews.find_refusal("good", HERE))
    await asyncio.sleep(0)
    server.gate.set()
    assert await reader is None
    await asyncio.gather(*crowd)

    asked = server.count(TOKEN_REVIEWS)
    for second in range(20):
        clock.now += 1.0
        await asyncio.gather(*await flood(reviews, 30, addresses=1, first=100 + 30 * second))
    assert 15 <= server.count(TOKEN_REVIEWS) - asked <= 25


async def test_all_strangers_together_make_so_many_questions_a_second() -> None:
    server, clock = FakeServer(), Clock()
    reviews = Reviews(server, "/metrics", clock=clock)
    for second in range(20):
        clock.now += 1.0
        await asyncio.gather(*await flood(reviews, 100, addresses=100, first=100 * second))
    assert server.count(TOKEN_REVIEWS) <= STRANGERS_PER_SECOND * (20 + BURST_SECONDS)


@pytest.mark.slow
async def test_junk_displaces_no_reader_and_keeps_none_waiting() -> None:
    """Sixty scrapes, one every 15 s, each amid junk from two hundred addresses whose questions have no answer yet."""
    server, clock = FakeServer(), Clock()
    reviews = Reviews(server, "/metrics", clock=clock)
    assert await reviews.find_refusal("good", HERE) is None
    junk: list[asyncio.Task[Any]] = []
    for scrape in range(60):
        clock.now += 15.0
        server.gate = asyncio.Event()
        junk += await flood(reviews, 400, addresses=200, first=400 * scrape)
        scraping = asyncio.create_task(reviews.find_refusal("good", HERE))
        await asyncio.sleep(0)
        server.gate.set()
        assert await scraping is None, scrape
        await asyncio.gather(*junk)


async def test_a_known_token_needs_no_question_while_strangers_wait() -> None:
    server = FakeServer()
    reviews = Reviews(server, "/metrics", clock=Clock())
    assert await reviews.find_refusal("good", HERE) is None
    server.gate = asyncio.Event()
    junk = await flood(reviews, 400, addresses=200)
    assert await asyncio.wait_for(reviews.find_refusal("good", HERE), 60.0) is None
    server.gate.set()
    await asyncio.gather(*junk)


async def test_a_token_after_a_rotation_is_asked_about_while_strangers_wait() -> None:
    server, clock = FakeServer(), Clock()
    reviews = Reviews(server, "/metrics", clock=clock)
    assert await reviews.find_refusal("good", HERE) is None
    clock.now += RETURNING_SECONDS / 2
    server.users["rotated"] = PROMETHEUS
    server.gate = asyncio.Event()
    junk = await flood(reviews, 400, addresses=200)
    assert any(not task.done() for task in junk)
    reader = asyncio.create_task(reviews.find_refusal("rotated", HERE))
    await asyncio.sleep(0)
    assert "rotated" in [sent["spec"].get("token") for _, sent in server.asked]
    server.gate.set()
    assert await reader is None
    await asyncio.gather(*junk)


async def test_a_token_that_was_good_is_asked_about_again_while_strangers_wait_wherever_it_comes_from() -> None:
    server, clock = FakeServer(), Clock()
    reviews = Reviews(server, "/metrics", clock=clock)
    assert await reviews.find_refusal("good", HERE) is None
    clock.now += 2 * ALLOWED_SECONDS
    server.gate = asyncio.Event()
    junk = await flood(reviews, 400, addresses=200)
    reader = asyncio.create_task(reviews.find_refusal("good", "10.0.0.99"))
    await asyncio.sleep(0)
    server.gate.set()
    assert await reader is None
    await asyncio.gather(*junk)


async def test_the_same_token_many_times_at_once_is_asked_about_once_a_turn() -> None:
    server = FakeServer()
    reviews = Reviews(server, "/metrics")

    refusals = await asyncio.gather(*(reviews.find_refusal("good", HERE) for _ in range(MOST_WAITING_PER_ADDRESS)))

    assert set(refusals) == {None}
    assert server.count(TOKEN_REVIEWS) <= MOST_ASKED


async def test_what_is_remembered_is_bounded_and_refusals_displace_no_reader() -> None:
    server, clock = FakeServer(), Clock()
    server.users |= {f"reader-{number}": PROMETHEUS for number in range(MOST_READERS + 5)}
    reviews = Reviews(server, "/metrics", clock=clock)

    for number in range(MOST_READERS + 5):
        clock.now += 0.2
        assert await reviews.find_refusal(f"reader-{number}", make_address(number)) is None
    for number in range(MOST_REFUSED + 50):
        clock.now += 0.0001
        assert await reviews.find_refusal(f"guess-{number}", make_address(number % MOST_READERS)) is not None

    assert (len(reviews._readers), len(reviews._refused)) == (MOST_READERS, MOST_REFUSED)
    asked = server.count(TOKEN_REVIEWS)
    assert await reviews.find_refusal(f"reader-{MOST_READERS}", HERE) is None
    assert server.count(TOKEN_REVIEWS) == asked


async def test_a_token_for_another_audience_is_refused() -> None:
    server = FakeServer()
    server.audiences = {"good": ["fairbind-metrics"], "poor": ["kubernetes"]}
    server.readers.add("tenant")
    reviews = Reviews(server, "/metrics", audiences=["fairbind-metrics", "other"])

    assert await reviews.find_refusal("good", HERE) is None
    assert server.asked[0][1]["spec"] == {"token": "good", "audiences": ["fairbind-metrics", "other"]}
    refusal = await reviews.find_refusal("poor", HERE)
    assert refusal is not None
    assert refusal[0] == HTTPStatus.UNAUTHORIZED
    refusal = await Reviews(server, "/metrics").find_refusal("good", HERE)
    assert refusal is not None
    assert refusal[0] == HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize("audiences", [None, [], ["https://kubernetes.default.svc"]])
async def test_a_server_that_knows_no_audiences_says_yes_to_nobody(audiences: list[str] | None) -> None:
    """It checks the token against its own audience and does not say that it did not check ours."""

    class Ignorant:
        async def request(self, *_: object, **__: object) -> bytes:
            status = {"authenticated": True, "user": PROMETHEUS, "audiences": audiences, "allowed": True}
            return msgspec.json.encode({"status": status})

    refusal = await Reviews(Ignorant(), "/metrics", audiences=["fairbind-metrics"]).find_refusal("good", HERE)

    assert refusal == (HTTPStatus.UNAUTHORIZED, "the token is for another audience")
