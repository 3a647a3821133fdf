"""Who may read a page of ours: the API server is asked, so that we keep no list of readers and no passwords.

A reader shows a bearer token, as it would to the API server itself. A TokenReview says whose token that is, a
SubjectAccessReview whether its owner may `get` the path. Both answers are remembered together for a while, by the
token's digest: a scraper comes every few seconds.

No client can make us ask without end, and none keeps out known readers. Tokens that were let in and tokens that were
refused are remembered apart, so that junk displaces no reader. Questions wait in three queues of their own:

1. about tokens that were let in before, whose time is over;
2. about unknown tokens from addresses that lately showed a good one, as after a rotation;
3. about unknown tokens from strangers: so many a second from each address and in all.

In each queue one address has so many questions at most. A client beyond that is told to try again, and so are
all while the API server does not answer. No answer never means yes.

A token is worth something wherever its audience is accepted. Readers with tokens for an audience of our own give away
nothing else when one is stolen: the API server is then asked about this audience, and its answer must name it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from fairbind.kube.client.api import Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError

ALLOWED_SECONDS = 60.0
"""A right that was taken away ends after this; so does a token."""
REFUSED_SECONDS = 10.0
RETURNING_SECONDS = 3600.0
"""For so long after it was last let in a token, or the address that showed it, is no stranger."""
MOST_READERS = 128
MOST_REFUSED = 256
MOST_ADDRESSES = 1024
MOST_ASKED = 2
"""Questions on their way at once, from each queue."""
MOST_WAITING = 32
MOST_WAITING_PER_ADDRESS = 4
STRANGERS_PER_SECOND = 10.0
STRANGERS_PER_ADDRESS_AND_SECOND = 1.0
BURST_SECONDS = 5.0
"""Questions that were not asked for so long may be asked at once."""
TIMEOUT_SECONDS = 5.0
LONGEST_TOKEN = 8192

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

Refusal = tuple[int, str]
"""An HTTP status and a line that says why."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


_token_decoder = msgspec.json.Decoder(_TokenReview)
_access_decoder = msgspec.json.Decoder(_AccessReview)


async def is_allowed(api: Requests, spec: Mapping[str, Any], *, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    """Ask whether a user may do something; spec: of a SubjectAccessReview. Raises as `post_review` does."""
    answer = await post_review(api, ACCESS_REVIEWS, "SubjectAccessReview", spec, timeout_seconds=timeout_seconds)
    return _access_decoder.decode(answer).status.allowed


async def post_review(
    api: Requests, path: str, kind: str, spec: Mapping[str, Any], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> bytes:
    """Ask a question of this kind and return the answer's body. Raises ApiError or TransientClusterError."""
    version = path.removeprefix("/apis/").rpartition("/")[0]
    body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
    return await api.request("POST", path, body=body, timeout_seconds=timeout_seconds)


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Recent(Generic[Key, Value]):
    """A table that keeps what was put into it last. most: so many entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        return self._entries.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, key: Key) -> None:
        self._entries.pop(key, None)


@dataclass(frozen=True, slots=True)
class _Verdict:
    refusal: Refusal | None
    until: float


class _Budget:
    """Allows so many questions a second, and those of `BURST_SECONDS` at once."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second * BURST_SECONDS
        self._at = now

    def has_one(self, now: float) -> bool:
        self._left = min(self._left + (now - self._at) * self._per_second, self._per_second * BURST_SECONDS)
        self._at = now
        return self._left >= 1.0

    def take(self) -> None:
        self._left -= 1.0


class _Queue:
    """Questions that wait to be decided."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_ASKED)
        self._waiting: Counter[str] = Counter()

    def has_place(self, address: str) -> bool:
        return self._waiting.total() < MOST_WAITING and self._waiting[address] < MOST_WAITING_PER_ADDRESS

    @contextlib.asynccontextmanager
    async def wait_for_place(self, address: str) -> AsyncIterator[None]:
        self._waiting[address] += 1
        try:
            async with self._places:
                yield
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]


class Reviews:
    """Answers whether the owner of a token may read one path. Belongs to one event loop.

    audiences: for which the token must be made; empty: those of the API server itself.
    """

    def __init__(
        self,
        api: Requests,
        path: str,
        *,
        audiences: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._path = path
        self._audiences = tuple(audiences)
        self._clock = clock
        self._readers: _Recent[bytes, _Verdict] = _Recent(MOST_READERS)
        self._refused: _Recent[bytes, _Verdict] = _Recent(MOST_REFUSED)
        self._reader_addresses: _Recent[str, float] = _Recent(MOST_READERS)
        self._budgets: _Recent[str, _Budget] = _Recent(MOST_ADDRESSES)
        self._budget = _Budget(STRANGERS_PER_SECOND, clock())
        self._returning, self._familiar, self._strangers = _Queue(), _Queue(), _Queue()

    async def find_refusal(self, token: str, address: str) -> Refusal | None:
        """Return why the owner of this token may not read the path, or None when it may.

        token: empty for none. address: where it came from.
        """
        if not token:
            return HTTPStatus.UNAUTHORIZED, "a bearer token is needed"
        if len(token) > LONGEST_TOKEN or not token.isascii():
            return HTTPStatus.UNAUTHORIZED, "that is no token"
        digest = hashlib.sha256(token.encode("ascii")).digest()
        if (known := self._recall(digest, address)) is not None:
            return known.refusal
        queue = self._find_queue(digest, address)
        if queue is None or not queue.has_place(address):
            return HTTPStatus.SERVICE_UNAVAILABLE, "too many readers at once"
        async with queue.wait_for_place(address):
            known = self._recall(digest, address)  # the same token may have been asked about meanwhile
            return known.refusal if known is not None else await self._ask(token, digest, address)

    def _find_queue(self, digest: bytes, address: str) -> _Queue | None:
        """Return where a question waits; None when it is too early for one more from a stranger."""
        now = self._clock()
        if (reader := self._readers.get(digest)) is not None and now < reader.until + RETURNING_SECONDS:
            return self._returning
        if (seen_at := self._reader_addresses.get(address)) is not None and now < seen_at + RETURNING_SECONDS:
            return self._familiar
        budget = self._budgets.get(address) or _Budget(STRANGERS_PER_ADDRESS_AND_SECOND, now)
        self._budgets.put(address, budget)
        if not (budget.has_one(now) and self._budget.has_one(now) and self._strangers.has_place(address)):
            return None
        budget.take()
        self._budget.take()
        return self._strangers

    def _recall(self, digest: bytes, address: str) -> _Verdict | None:
        now = self._clock()
        if (verdict := self._readers.get(digest)) is not None and now < verdict.until:
            self._reader_addresses.put(address, now)
            return verdict
        verdict = self._refused.get(digest)
        return verdict if verdict is not None and now < verdict.until else None

    async def _ask(self, token: str, digest: bytes, address: str) -> Refusal | None:
        try:
            refusal = await self._review(token)
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"cannot ask who reads: {error}"
        now = self._clock()
        if refusal is None:
            self._refused.drop(digest)
            self._readers.put(digest, _Verdict(None, now + ALLOWED_SECONDS))
            self._reader_addresses.put(address, now)
        else:
            self._readers.drop(digest)
            self._refused.put(digest, _Verdict(refusal, now + REFUSED_SECONDS))
        return refusal

    async def _review(self, token: str) -> Refusal | None:
        question: dict[str, Any] = {"token": token}
        if self._audiences:
            question["audiences"] = self._audiences
        answer = await post_review(self._api, TOKEN_REVIEWS, "TokenReview", question)
        status = _token_decoder.decode(answer).status
        if not status.authenticated:
            return HTTPStatus.UNAUTHORIZED, "the token is not valid"
        # A server that knows no audiences answers yes without naming one.
        if self._audiences and not set(self._audiences) & set(status.audiences or ()):
            return HTTPStatus.UNAUTHORIZED, "the token is for another audience"
        user = status.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        if not await is_allowed(self._api, spec):
            return HTTPStatus.FORBIDDEN, f"{user.username} may not get {self._path}"
        return None
