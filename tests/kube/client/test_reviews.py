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
    LONGEST_TOKEN,
    MOST_ASKED,
    MOST_REMEMBERED,
    MOST_WAITING,
    REFUSED_SECONDS,
    TOKEN_REVIEWS,
    Reviews,
)

PROMETHEUS = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u-1",
    "groups": ["system:serviceaccounts"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}


class FakeServer:
    """Knows tokens and who may read; counts the questions. gate: answers wait until it is set."""

    def __init__(self) -> None:
        self.users: dict[str, Mapping[str, Any]] = {"good": PROMETHEUS, "poor": {"username": "tenant"}}
        self.readers = {PROMETHEUS["username"]}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.gate: asyncio.Event | None = None
        self.at_once = 0
        self.most_at_once = 0
        self.error: Exception | None = None

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = 0.0
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
            return {"error": "unknown"} if user is None else {"authenticated": True, "user": user}
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

    assert await Reviews(server, "/metrics").find_refusal("good") is None

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
    refusal = await Reviews(FakeServer(), "/metrics").find_refusal(token)

    assert refusal is not None
    assert refusal[0] == status
    assert said in refusal[1]


async def test_nobody_is_asked_for_what_cannot_be_a_token() -> None:
    server = FakeServer()
    reviews = Reviews(server, "/metrics")

    await reviews.find_refusal("")
    await reviews.find_refusal("x" * (LONGEST_TOKEN + 1))

    assert server.asked == []


async def test_answers_are_remembered_but_not_for_ever() -> None:
    server, clock = FakeServer(), Clock()
    reviews = Reviews(server, "/metrics", clock=clock)

    for _ in range(3):
        assert await reviews.find_refusal("good") is None
        assert await reviews.find_refusal("poor") is not None
    assert (server.count(TOKEN_REVIEWS), server.count(ACCESS_REVIEWS)) == (2, 2)

    clock.now += REFUSED_SECONDS + 0.1
    server.readers.add("tenant")
    assert await reviews.find_refusal("poor") is None
    assert await reviews.find_refusal("good") is None
    assert server.count(TOKEN_REVIEWS) == 3

    clock.now += ALLOWED_SECONDS
    server.readers.clear()
    assert await reviews.find_refusal("good") == (
        HTTPStatus.FORBIDDEN,
        f"{PROMETHEUS['username']} may not get /metrics",
    )


async def test_one_token_is_not_taken_for_another() -> None:
    reviews = Reviews(FakeServer(), "/metrics")

    assert await reviews.find_refusal("good") is None
    assert await reviews.find_refusal("goo") is not None
    assert await reviews.find_refusal("good ") is not None


@pytest.mark.parametrize(
    "error",
    [ApiError(403, "Forbidden", "tokenreviews: no"), ApiError(500, "x", "y"), TransientClusterError("timed out")],
)
async def test_no_answer_never_means_yes_and_is_not_remembered(error: Exception) -> None:
    server = FakeServer()
    server.error = error
    reviews = Reviews(server, "/metrics")

    refusal = await reviews.find_refusal("good")
    assert refusal is not None
    assert refusal[0] == HTTPStatus.SERVICE_UNAVAILABLE
    assert str(error) in refusal[1]

    server.error = None
    assert await reviews.find_refusal("good") is None


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"status": {"authenticated": "yes"}}', b"<html>"])
async def test_an_answer_that_makes_no_sense_never_means_yes(answer: bytes) -> None:
    class Odd:
        async def request(self, *_: object, **__: object) -> bytes:
            return answer

    refusal = await Reviews(Odd(), "/metrics").find_refusal("good")

    assert refusal is not None
    assert refusal[0] == HTTPStatus.SERVICE_UNAVAILABLE


async def test_an_empty_answer_means_no() -> None:
    class Silent:
        async def request(self, *_: object, **__: object) -> bytes:
            return b"{}"

    refusal = await Reviews(Silent(), "/metrics").find_refusal("good")

    assert refusal is not None
    assert refusal[0] == HTTPStatus.UNAUTHORIZED


async def test_a_crowd_of_readers_makes_few_questions_and_the_last_are_sent_away() -> None:
    server = FakeServer()
    server.gate = asyncio.Event()
    reviews = Reviews(server, "/metrics")
    crowd = [asyncio.create_task(reviews.find_refusal(f"guess-{number}")) for number in range(3 * MOST_WAITING)]
    await asyncio.sleep(0)
    server.gate.set()

    refusals = await asyncio.gather(*crowd)

    statuses = [refusal[0] for refusal in refusals if refusal is not None]
    assert statuses.count(HTTPStatus.UNAUTHORIZED) == MOST_WAITING
    assert statuses.count(HTTPStatus.SERVICE_UNAVAILABLE) == 2 * MOST_WAITING
    assert server.most_at_once == MOST_ASKED
    assert await reviews.find_refusal("good") is None


async def test_the_same_token_many_times_at_once_is_asked_about_once_a_turn() -> None:
    server = FakeServer()
    reviews = Reviews(server, "/metrics")

    refusals = await asyncio.gather(*(reviews.find_refusal("good") for _ in range(MOST_WAITING)))

    assert set(refusals) == {None}
    assert server.count(TOKEN_REVIEWS) <= MOST_ASKED


async def test_what_is_remembered_is_bounded() -> None:
    reviews = Reviews(FakeServer(), "/metrics")

    for number in range(MOST_REMEMBERED + 50):
        await reviews.find_refusal(f"guess-{number}")

    assert len(reviews._verdicts) == MOST_REMEMBERED
