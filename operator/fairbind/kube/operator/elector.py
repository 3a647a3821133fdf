"""Who may bind: a lease that one of several operators holds, and the fence that follows from it.

The lease is an object at the API server. Its holder renews it every two seconds; when it was not renewed for ten,
another one takes it. No two wall clocks are compared: each measures on its own clock for how long *it*
has seen no change. That is safe, because an observer sees a renewal later than the holder that made it: the holder
counts its ten seconds from before it sent its last successful renewal, all others from when they first read it.

The fence: `may_bind` says yes only while so much is left of the ten seconds that what is sent now will have ended, one
way or the other, before another can lead. It reads the clock each time, so no task has to wake up and close it: a
process that was frozen, swapped out or cut off finds it closed. The clock goes on while the machine is suspended.
`may_bind` may be asked from any thread: it reads one value, which is exchanged as a whole.

On exit the lease is given back, after the last binding has ended, and another takes it within a second. Writes carry
the resourceVersion that was read, so that of two who try at the same time one fails.

Two installations with one scheduler name have two leases, which do not keep them apart. So who takes its lease, rather
than renews it, looks for others before and after, and gives it back when there is one (`other_installations`).

A lease that is deleted or edited by hand takes this protection away until its holder notices, which is at its next
renewal: one that has seen the lease held takes it only after that holder's time, but one that has just started cannot
know that there was any.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from fairbind.kube.client.api import Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.times import format_micro_time

LEASE_SECONDS = 10.0
RENEW_SECONDS = 2.0
RETRY_SECONDS = 1.0
CALL_TIMEOUT_SECONDS = 2.0
MARGIN_SECONDS = 4.0
"""How long before its end the lease does not count any more: a binding's time limit of 3 s, the way to the server, and
clocks that do not run equally fast."""
MAX_FOREIGN_LEASE_SECONDS = 60.0
"""A lease that claims to be longer was edited by hand; without a limit no replica would ever lead again."""
COMPLAINT_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Others(Protocol):
    """Looks for other installations; see `OtherInstallations`."""

    async def make_annotations(self) -> dict[str, str]:
        """Return what our lease says about itself, so that others find us."""

    async def find(self) -> str | None:
        """Return what is wrong, and what to do, when we must not lead beside another; else None."""


class _OtherFoundError(Exception):
    """We must not lead beside another installation; the message says which, and what to do."""


def read_steady_clock() -> float:
    """Return seconds on a clock that is never set and that goes on while the machine is suspended (Linux; else not)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def make_identity() -> str:
    """Return a name that no other process has, now or later, and that tells people where it runs."""
    return f"{os.environ.get('POD_NAME') or platform.node() or 'unknown'}_{uuid.uuid4()}"


_ABSENT = "absent"  # no resourceVersion looks like this


class _Sighting(msgspec.Struct, frozen=True):
    """A foreign holder's lease as we saw it, and when we saw this version of it first."""

    version: str
    seen_at: float
    lease_seconds: float

    @property
    def ends_at(self) -> float:
        return self.seen_at + self.lease_seconds


class Elector:
    """Takes part in the election until it is cancelled. Everything is measured on the given clock."""

    def __init__(
        self,
        api: Requests,
        namespace: str,
        *,
        name: str = "fairbind",
        identity: str,
        on_change: Callable[[bool], None] = lambda _leading: None,
        may_stand: Callable[[], bool] = lambda: True,
        lease_seconds: float = LEASE_SECONDS,
        margin_seconds: float = MARGIN_SECONDS,
        others: Others | None = None,
        clock: Callable[[], float] = read_steady_clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        randomness: random.Random | None = None,
    ) -> None:
        """on_change: called with whether we lead, whenever that changes; must not raise.

        may_stand: whether the replica that we stand for can act; while not, the lease is neither taken nor renewed.
        others: looks for installations beside which we must not lead; None: there is no look.
        """
        self.identity = identity
        self.problem: str | None = None
        """Why the election does not go on, in one line that says what to do; None while it does."""
        self._api = api
        self._label = f"{namespace}/{name}"
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
        self._path = f"{self._collection}/{quote(name)}"
        self._namespace = namespace
        self._name = name
        self.term = 0
        """Counts how often leadership was lost: two moments with the same term have no loss between them."""
        self._on_change = on_change
        self._may_stand = may_stand
        self._others = others
        self._lease_seconds = lease_seconds
        self._margin_seconds = margin_seconds
        self._clock = clock
        self._sleep = sleep
        self._random = randomness or random.Random()  # noqa: S311 - spreads retries, guards no secret
        self._lease: dict[str, Any] | None = None  # as last read or written; None: there is none, or it is not known
        self._holds_until: float | None = None  # None: we do not hold the lease
        self._foreign: _Sighting | None = None
        self._announced = False
        self._complained_at = -COMPLAINT_SECONDS

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment."""
        return self.may_bind()

    def may_bind(self, margin_seconds: float | None = None) -> bool:
        """Say whether more than the margin is left of our lease. This is the fence: ask right before sending."""
        margin = self._margin_seconds if margin_seconds is None else margin_seconds
        holds_until = self._holds_until
        return holds_until is not None and self._clock() < holds_until - margin

    async def run(self) -> None:
        """Stand for election again and again, until cancelled."""
        try:
            while True:
                started = self._clock()
                renewed = await self._try_to_hold()
                self._announce()
                pause = RENEW_SECONDS - (self._clock() - started) if renewed else self._random.uniform(0.6, 1.0)
                await self._pause(max(pause, 0.05))
        finally:
            # Cancelled: the caller decides with `release` what becomes of the lease; the fence holds as long.
            self._announce()

    async def release(self) -> None:
        """Give the lease back, so that another can lead at once. Only when nothing that needs it is in flight any more.

        The task of `run` must have ended. Never raises: a lease that cannot be given back runs out.
        """
        held = self._holds_until is not None
        self._holds_until = None
        self._announce()
        if not held:
            return
        for _attempt in range(3):
            try:
                lease = self._lease or await self._fetch()
                if lease is None or _holder(lease) != self.identity:
                    return
                await self._write(lease, holder="", lease_seconds=1)
            except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
                _log.debug("Lease %s could not be given back yet: %s", self._label, error)
                self._lease = None  # perhaps a renewal that was on its way has changed it
            else:
                _log.info("Gave back the lease %s.", self._label)
                return

    async def _try_to_hold(self) -> bool:
        """Renew or take the lease if we may. Returns whether it is ours now, with its full time."""
        if not self._may_stand():
            self._complain(f"Lease {self._label} is not renewed: the scheduling loop does not turn.")
            return False
        try:
            for _attempt in range(2):
                started = self._clock()
                try:
                    held = await self._hold()
                except ApiError as error:
                    if error.status != HTTPStatus.CONFLICT:
                        raise
                    # Another replica was first, or a user edited it. Look at once: perhaps we do not lead any more.
                    self._lease = None
                    continue
                # If the fence was closed meanwhile, that is told before it opens again: another may have led.
                self._announce()
                self._holds_until = started + self._lease_seconds if held else None
                self._note_progress()
                return held
        except _OtherFoundError as found:
            self._holds_until = None
            self._complain(str(found))
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            self._lease = None  # it may have been written all the same
            if isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND:
                self._note_missing()
                self._holds_until = None  # deleted: any replica may make a new one now
            self._complain(self._describe(error))
        return False

    async def _hold(self) -> bool:
        lease = self._lease if self._holds_until is not None and self._lease is not None else await self._fetch()
        if not self._may_take(lease):
            return False
        is_renewal = self.may_bind(0.0)
        if not is_renewal:
            await self._check_others()
        if lease is None:
            self._lease = await self._create()
        else:
            self._lease = await self._write(lease, holder=self.identity, lease_seconds=self._lease_seconds)
        self._foreign = None
        if not is_renewal:
            await self._check_others(self._lease)
        return True

    async def _check_others(self, taken: dict[str, Any] | None = None) -> None:
        """Raise _OtherFoundError when we must not lead; a lease that was taken already is given back then."""
        if self._others is None or (problem := await self._others.find()) is None:
            return
        if taken is not None:
            self._lease = await self._write(taken, holder="", lease_seconds=1)
        raise _OtherFoundError(problem)

    def _may_take(self, lease: dict[str, Any] | None) -> bool:
        now = self._clock()
        if lease is None:
            self._note_missing()
            return self._foreign is None or now >= self._foreign.ends_at
        if _holder(lease) in {"", self.identity}:
            return True
        version = str(lease["metadata"].get("resourceVersion"))
        if self._foreign is None or self._foreign.version != version:
            self._foreign = _Sighting(version, now, self._read_duration(lease))
        return now >= self._foreign.ends_at

    def _note_missing(self) -> None:
        """Note that there is no lease: deleted, if another held it, and then its holder may not know it yet.

        It may have been renewed up to this moment. Another may have held it also when it was ours last and our
        fence has closed since: another may have led in between without our seeing it.
        """
        if self._foreign is not None and self._foreign.version != _ABSENT:
            self._foreign = _Sighting(_ABSENT, self._clock(), self._foreign.lease_seconds)
        elif self._foreign is None and self._holds_until is not None and not self.may_bind():
            self._foreign = _Sighting(_ABSENT, self._clock(), self._lease_seconds)

    def _read_duration(self, lease: dict[str, Any]) -> float:
        claimed = lease["spec"].get("leaseDurationSeconds")
        usable = claimed if isinstance(claimed, int | float) else 0
        return min(max(float(usable), self._lease_seconds), MAX_FOREIGN_LEASE_SECONDS)

    async def _fetch(self) -> dict[str, Any] | None:
        try:
            return _decode_lease(await self._api.request("GET", self._path, timeout_seconds=CALL_TIMEOUT_SECONDS))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def _create(self) -> dict[str, Any]:
        lease: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": await self._annotate({"name": self._name, "namespace": self._namespace}),
            "spec": self._make_spec({}, holder=self.identity, lease_seconds=self._lease_seconds),
        }
        body = msgspec.json.encode(lease)
        answer = await self._api.request("POST", self._collection, body=body, timeout_seconds=CALL_TIMEOUT_SECONDS)
        return _decode_lease(answer)

    async def _write(self, lease: dict[str, Any], *, holder: str, lease_seconds: float) -> dict[str, Any]:
        """Replace the lease, on the condition that it is still the version that we know."""
        spec = self._make_spec(lease["spec"], holder=holder, lease_seconds=lease_seconds)
        body = msgspec.json.encode(lease | {"metadata": await self._annotate(lease["metadata"]), "spec": spec})
        return _decode_lease(
            await self._api.request("PUT", self._path, body=body, timeout_seconds=CALL_TIMEOUT_SECONDS)
        )

    async def _annotate(self, metadata: dict[str, Any]) -> dict[str, Any]:
        if self._others is None:
            return metadata
        return metadata | {"annotations": (metadata.get("annotations") or {}) | await self._others.make_annotations()}

    def _make_spec(self, old: dict[str, Any], *, holder: str, lease_seconds: float) -> dict[str, Any]:
        # The times are for people; nothing computes with them.
        now = format_micro_time()
        spec = old | {"holderIdentity": holder, "leaseDurationSeconds": int(lease_seconds), "renewTime": now}
        if holder not in {"", old.get("holderIdentity")}:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + 1 if old else 0
        return spec

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not past the moment in which the fence closes without a renewal: that is to be told in time."""
        if self.may_bind() and self._holds_until is not None:
            closes_in = self._holds_until - self._margin_seconds - self._clock()
            if closes_in < seconds:
                await self._sleep(max(closes_in, 0.0))
                self._announce()
                seconds -= closes_in
        await self._sleep(seconds)
        self._announce()

    def _announce(self) -> None:
        leading = self.may_bind()
        if leading == self._announced:
            return
        self._announced = leading
        if leading:
            _log.info("Leading: %s holds the lease %s.", self.identity, self._label)
        else:
            self.term += 1
            _log.info("Not leading any more (lease %s).", self._label)
        self._on_change(leading)

    def _note_progress(self) -> None:
        if self.problem is not None:
            _log.info("The election on lease %s goes on.", self._label)
        self.problem = None
        self._complained_at = -COMPLAINT_SECONDS

    def _complain(self, problem: str) -> None:
        now = self._clock()
        if problem != self.problem or now - self._complained_at >= COMPLAINT_SECONDS:
            self._complained_at = now
            _log.warning("%s", problem)
        self.problem = problem

    def _describe(self, error: Exception) -> str:
        if isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN:
            return (
                f"Lease {self._label}: {error.message}. The operator's Role must allow to create leases and to get and "
                f"update the lease {self._name!r} in namespace {self._namespace!r}; waiting until it does."
            )
        if isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND:
            return f"Lease {self._label}: {error.message}. The namespace must exist; waiting until it does."
        return f"Lease {self._label} could not be read or renewed: {error}"


def _decode_lease(answer: bytes) -> dict[str, Any]:
    """An edited lease may lack anything but its name."""
    lease: dict[str, Any] = msgspec.json.decode(answer, type=dict[str, Any])
    lease["metadata"] = lease.get("metadata") or {}
    lease["spec"] = lease.get("spec") or {}
    return lease


def _holder(lease: dict[str, Any]) -> str:
    return str(lease["spec"].get("holderIdentity") or "")
