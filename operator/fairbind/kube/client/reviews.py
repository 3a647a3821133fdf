"""Who may read a page of ours: the API server is asked, so that we keep no list of readers and no passwords.

A reader shows a bearer token, as it would to the API server itself. A TokenReview says whose token that is, a
SubjectAccessReview whether its owner may `get` the path. Both answers are remembered together for a while, by the
token's digest: a scraper comes every few seconds.

Nobody can make us ask without end. Only so many questions are on their way at once and so many readers wait for their
turn; whoever comes then is told to try again, and so is everybody while the API server does not answer. No answer
never means yes.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from fairbind.kube.client.errors import ApiError, TransientClusterError

ALLOWED_SECONDS = 60.0
"""A right that was taken away ends after this; so does a token."""
REFUSED_SECONDS = 10.0
MOST_REMEMBERED = 256
MOST_ASKED = 4
MOST_WAITING = 32
TIMEOUT_SECONDS = 5.0
LONGEST_TOKEN = 8192

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

Refusal = tuple[int, str]
"""An HTTP status and a line that says why."""


class ReviewApi(Protocol):
    """The part of `ApiClient` that this needs."""

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = ...
    ) -> bytes:
        """Send one request; raises ApiError or TransientClusterError."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


_token_decoder = msgspec.json.Decoder(_TokenReview)
_access_decoder = msgspec.json.Decoder(_AccessReview)


@dataclass(frozen=True, slots=True)
class _Verdict:
    refusal: Refusal | None
    until: float


class Reviews:
    """Answers whether the owner of a token may read one path."""

    def __init__(self, api: ReviewApi, path: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._path = path
        self._clock = clock
        self._verdicts: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._turn = asyncio.Semaphore(MOST_ASKED)
        self._waiting = 0

    async def find_refusal(self, token: str) -> Refusal | None:
        """Return why the owner of this token may not read the path, or None when it may. token: empty for none."""
        if not token:
            return HTTPStatus.UNAUTHORIZED, "a bearer token is needed"
        if len(token) > LONGEST_TOKEN or not token.isascii():
            return HTTPStatus.UNAUTHORIZED, "that is no token"
        digest = hashlib.sha256(token.encode("ascii")).digest()
        if (known := self._recall(digest)) is not None:
            return known.refusal
        if self._waiting >= MOST_WAITING:
            return HTTPStatus.SERVICE_UNAVAILABLE, "too many readers at once"
        self._waiting += 1
        try:
            async with self._turn:
                known = self._recall(digest)  # the same token may have been asked about meanwhile
                return known.refusal if known is not None else await self._ask(token, digest)
        finally:
            self._waiting -= 1

    def _recall(self, digest: bytes) -> _Verdict | None:
        verdict = self._verdicts.get(digest)
        return verdict if verdict is not None and self._clock() < verdict.until else None

    async def _ask(self, token: str, digest: bytes) -> Refusal | None:
        try:
            refusal = await self._review(token)
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"cannot ask who reads: {error}"
        lasts = REFUSED_SECONDS if refusal else ALLOWED_SECONDS
        self._verdicts.pop(digest, None)
        self._verdicts[digest] = _Verdict(refusal, self._clock() + lasts)
        while len(self._verdicts) > MOST_REMEMBERED:
            self._verdicts.popitem(last=False)
        return refusal

    async def _review(self, token: str) -> Refusal | None:
        answer = await self._post(TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        status = _token_decoder.decode(answer).status
        if not status.authenticated:
            return HTTPStatus.UNAUTHORIZED, "the token is not valid"
        user = status.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        answer = await self._post(ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        if not _access_decoder.decode(answer).status.allowed:
            return HTTPStatus.FORBIDDEN, f"{user.username} may not get {self._path}"
        return None

    async def _post(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        return await self._api.request("POST", path, body=body, timeout_seconds=TIMEOUT_SECONDS)
