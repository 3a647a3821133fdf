"""Other installations of fairbind that bind for the same scheduler name, found by their leases.

Two installations in two namespaces elect two leaders, and with one scheduler name both bind the same pods to free
capacity that each gives away alone. So who takes its lease looks for leases of this name in other namespaces, once
before and once after: of two who take theirs at the same moment at least one sees the other. Who sees one does not
lead.

A lease says what it is held for by annotations: the scheduler name, and the service account of its namespace that holds
it. A tenant may write such a lease into a namespace of its own. So one counts only if the API server says that this
service account may bind pods in every namespace. It is asked about many leases side by side, and each no is
remembered for a while, so forged leases make a look neither long nor dear. Where the API server is too slow all the
same, fairbind goes on after `MOST_UNFINISHED` looks and warns: that another installation leads is unlikely, and that no
replica leads would be certain. A lease that is not renewed any more, of an installation that is gone, does not count
after `GONE_SECONDS`, measured on our own clock.

The looks need rights that the chart gives. Without them nothing is found, which is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from fairbind.kube.client.api import Requests
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.reviews import is_allowed, post_review

SCHEDULER_NAME = "fairbind.io/scheduler-name"
SCHEDULER_NAMES = "fairbind.io/scheduler-names"
"""All names, where there are several, with commas between them."""
SERVICE_ACCOUNT = "fairbind.io/service-account"
LEASES = "/apis/coordination.k8s.io/v1/leases"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
GONE_SECONDS = 20.0
"""Twice a lease's time: a holder's last renewal may still be on its way when its lease has run out."""
LOOK_SECONDS = 4.0
CALL_SECONDS = 2.0
MOST_LEASES = 500
MOST_REVIEWS = 64
"""A look asks of so many leases whether their holders may bind: who writes thousands cannot make it long."""
AT_ONCE = 16
REFUSED_SECONDS = 60.0
MOST_NAMED = 50
"""So many leases of each other scheduler's name are looked at."""
MOST_UNFINISHED = 2
SHORT_LOOK_SECONDS = 0.5
"""So long may a look take after these: it must leave most of the lease's time."""

_PREFIX = "system:serviceaccount:"
_log = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)

    def read(self, annotation: str) -> str:
        return (self.metadata.annotations or {}).get(annotation, "")


class _Leases(msgspec.Struct):
    items: list[_Lease] | None = None


class _User(msgspec.Struct):
    username: str = ""


class _SelfStatus(msgspec.Struct, rename="camel"):
    user_info: _User = msgspec.field(default_factory=_User)


class _SelfReview(msgspec.Struct):
    status: _SelfStatus = msgspec.field(default_factory=_SelfStatus)


@dataclass(frozen=True, slots=True)
class _Sighting:
    version: str
    seen_at: float


class _UnansweredError(Exception):
    """The API server did not say of some holder whether it may bind."""


def _list_names(lease: _Lease) -> list[str]:
    """Return the scheduler names of an installation."""
    names = lease.read(SCHEDULER_NAMES)
    return names.split(",") if names else [lease.read(SCHEDULER_NAME)]


def _find_user(lease: _Lease) -> str:
    return f"{_PREFIX}{lease.metadata.namespace}:{lease.read(SERVICE_ACCOUNT)}"


class OtherInstallations:
    """Looks for them, for an elector of this namespace and scheduler name. clock: in seconds, never set."""

    def __init__(
        self,
        api: Requests,
        namespace: str,
        scheduler_name: str,
        *,
        clock: Callable[[], float],
        lease_name: str = "fairbind",
        other_names: frozenset[str] = frozenset(),
    ) -> None:
        """other_names: under which we bind pods, too, and other schedulers may."""
        self._names = {scheduler_name, *other_names}
        self._other_names = sorted(other_names)
        self._told: set[str] = set()
        self._api = api
        self._namespace = namespace
        self._scheduler_name = scheduler_name
        self._lease_name = lease_name
        self._clock = clock
        self._service_account: str | None = None
        self._sightings: dict[str, _Sighting] = {}
        self._refused: dict[str, float] = {}
        self._unfinished = 0
        self._is_warned = False

    async def make_annotations(self) -> dict[str, str]:
        """Return what our lease says about itself. Raises TransientClusterError."""
        if self._service_account is None:
            self._service_account = await self._find_own_account()
        account = {SERVICE_ACCOUNT: self._service_account} if self._service_account else {}
        names = {SCHEDULER_NAMES: ",".join(sorted(self._names))} if self._other_names else {}
        return {SCHEDULER_NAME: self._scheduler_name, **names, **account}

    async def find(self) -> str | None:
        """Return what is wrong, and what to do, when another installation is there; else None.

        Raises ApiError, TransientClusterError or DecodeError when that cannot be found out.
        """
        is_late = self._unfinished >= MOST_UNFINISHED
        limit = SHORT_LOOK_SECONDS if is_late else LOOK_SECONDS
        try:
            async with asyncio.timeout(limit):
                found = await self._look()
        except TimeoutError:
            self._note_unfinished(f"it took more than {limit:g} s")
            return None
        except _UnansweredError as error:
            self._note_unfinished(str(error))
            return None
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            if not self._is_warned:
                self._is_warned = True
                _log.warning(
                    "not looking for other installations with the scheduler name %r: %s; the chart's ClusterRole "
                    "grants it",
                    self._scheduler_name,
                    error.message,
                )
            return None
        self._unfinished = 0
        await self._warn_of_others()
        return found

    async def _warn_of_others(self) -> None:
        """Say once of each further name of ours that another scheduler holds a lease of that name.

        A tenant may hold a lease of any name in a namespace of its own, so it keeps us from nothing.
        """
        for name in self._other_names:
            if name in self._told:
                continue
            query = {"fieldSelector": f"metadata.name={name}", "limit": str(MOST_NAMED)}
            try:
                answer = await self._api.request("GET", LEASES, query=query, timeout_seconds=CALL_SECONDS)
                leases = msgspec.json.decode(answer, type=_Leases).items or ()
            except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
                _log.debug("whether a scheduler %r runs cannot be found out: %s", name, error)
                continue
            held = next((lease for lease in leases if lease.spec.holder_identity), None)
            if held is not None:
                self._told.add(name)
                _log.warning(
                    "a lease %s/%s is held by %s: if that scheduler runs, both bind the pods of the scheduler name %r; "
                    "stop it, or leave the name out (schedulerNames in the chart)",
                    held.metadata.namespace,
                    name,
                    held.spec.holder_identity,
                    name,
                )

    def _note_unfinished(self, why: str) -> None:
        """Count a look that did not come to its end; raise TransientClusterError while one more may help."""
        self._unfinished += 1
        if self._unfinished < MOST_UNFINISHED:
            raise TransientClusterError(f"could not look at other installations' leases: {why}")
        if self._unfinished == MOST_UNFINISHED:
            _log.warning(
                "leading without knowing whether another installation binds for the scheduler name %r: the API server "
                "did not say in time who holds the leases of that name (%s)",
                self._scheduler_name,
                why,
            )

    async def _look(self) -> str | None:
        query = {"fieldSelector": f"metadata.name={self._lease_name}", "limit": str(MOST_LEASES)}
        answer = await self._api.request("GET", LEASES, query=query, timeout_seconds=CALL_SECONDS)
        found = [lease for lease in msgspec.json.decode(answer, type=_Leases).items or () if self._is_alike(lease)]
        present = {lease.metadata.namespace for lease in found}
        self._sightings = {name: seen for name, seen in self._sightings.items() if name in present}
        living = [lease for lease in found if self._is_renewed(lease)]
        self._refused = {user: until for user, until in self._refused.items() if until > self._clock()}
        rival = await self._find_rival([lease for lease in living if _find_user(lease) not in self._refused])
        if rival is None:
            return None
        name = min(self._names.intersection(_list_names(rival)))
        return (
            f"another fairbind, in namespace {rival.metadata.namespace!r} (its lease is held by "
            f"{rival.spec.holder_identity}), binds for the scheduler name {name!r}. Uninstall "
            f"one of the two, or give one another scheduler name (schedulerName in the chart)."
        )

    async def _find_rival(self, leases: list[_Lease]) -> _Lease | None:
        """Return the first of the leases whose holder may bind. Raises _UnansweredError when that is not known."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def ask(lease: _Lease) -> bool:
            async with slots:
                return await self._may_bind(lease)

        asked = leases[:MOST_REVIEWS]
        answers = await asyncio.gather(*map(ask, asked), return_exceptions=True)
        for lease, answer in zip(asked, answers, strict=True):
            if answer is True:
                return lease
        for answer in answers:
            if isinstance(answer, ApiError) and answer.status == HTTPStatus.FORBIDDEN:
                raise answer
            if isinstance(answer, ApiError | TransientClusterError):
                raise _UnansweredError(str(answer))
            if isinstance(answer, BaseException):
                raise answer
        return None

    def _is_alike(self, lease: _Lease) -> bool:
        return bool(
            lease.metadata.namespace != self._namespace
            and lease.spec.holder_identity
            and not self._names.isdisjoint(_list_names(lease))
            and lease.read(SERVICE_ACCOUNT)
        )

    def _is_renewed(self, lease: _Lease) -> bool:
        now, version = self._clock(), lease.metadata.resource_version
        seen = self._sightings.get(lease.metadata.namespace)
        if seen is None or seen.version != version:
            seen = self._sightings[lease.metadata.namespace] = _Sighting(version, now)
        return now - seen.seen_at < GONE_SECONDS

    async def _may_bind(self, lease: _Lease) -> bool:
        namespace, user = lease.metadata.namespace, _find_user(lease)
        spec = {
            "user": user,
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": {"verb": "create", "resource": "pods", "subresource": "binding"},
        }
        is_binder = await is_allowed(self._api, spec, timeout_seconds=CALL_SECONDS)
        if not is_binder:
            self._refused[user] = self._clock() + REFUSED_SECONDS
        return is_binder

    async def _find_own_account(self) -> str:
        """Return the name of the service account of our own namespace that we are; empty when we are another user."""
        try:
            answer = await post_review(self._api, SELF_REVIEWS, "SelfSubjectReview", {}, timeout_seconds=CALL_SECONDS)
        except ApiError as error:
            _log.debug("whose token ours is cannot be found out: %s", error)
            return ""
        prefix = f"{_PREFIX}{self._namespace}:"
        username = msgspec.json.decode(answer, type=_SelfReview).status.user_info.username
        return username.removeprefix(prefix) if username.startswith(prefix) else ""
