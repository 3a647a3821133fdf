"""Other installations of fairbind that bind for the same scheduler name, found by their leases.

Two installations in two namespaces elect two leaders, and with one scheduler name both bind the same pods to room that
each gives away alone. So who takes its lease looks for leases of this name in other namespaces, once before and once
after: of two who take theirs at the same moment at least one sees the other. Who sees one does not lead.

A lease says what it is held for by annotations: the scheduler name, and the service account of its namespace that holds
it. A tenant may write such a lease into a namespace of its own. So one counts only if the API server says that this
service account may bind pods in every namespace. A lease that is not renewed any more, of an installation that is gone,
does not count after `GONE_SECONDS`, measured on our own clock.

The looks need rights that the chart gives. Without them nothing is found, which is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import msgspec

from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.reviews import is_allowed, post_review

SCHEDULER_NAME = "fairbind.io/scheduler-name"
SERVICE_ACCOUNT = "fairbind.io/service-account"
LEASES = "/apis/coordination.k8s.io/v1/leases"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
GONE_SECONDS = 20.0
"""Twice a lease's time: a holder's last renewal may still be on its way when its lease has run out."""
LOOK_SECONDS = 4.0
CALL_SECONDS = 2.0
MOST_LEASES = 500
MOST_REVIEWS = 64
"""Of so many leases it is asked whether their holders may bind: who writes thousands cannot make a look long."""

_PREFIX = "system:serviceaccount:"
_log = logging.getLogger(__name__)


class RivalApi(Protocol):
    """The part of `ApiClient` that this needs."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_seconds: float = ...,
    ) -> bytes:
        """Send one request; raises ApiError or TransientClusterError."""


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


class OtherInstallations:
    """Looks for them, for an elector of this namespace and scheduler name. clock: in seconds, never set."""

    def __init__(
        self,
        api: RivalApi,
        namespace: str,
        scheduler_name: str,
        *,
        clock: Callable[[], float],
        lease_name: str = "fairbind",
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._scheduler_name = scheduler_name
        self._lease_name = lease_name
        self._clock = clock
        self._service_account: str | None = None
        self._sightings: dict[str, _Sighting] = {}
        self._is_warned = False

    async def make_annotations(self) -> dict[str, str]:
        """Return what our lease says about itself. Raises TransientClusterError."""
        if self._service_account is None:
            self._service_account = await self._find_own_account()
        account = {SERVICE_ACCOUNT: self._service_account} if self._service_account else {}
        return {SCHEDULER_NAME: self._scheduler_name, **account}

    async def find(self) -> str | None:
        """Return what is wrong, and what to do, when another installation is there; else None.

        Raises ApiError, TransientClusterError or DecodeError when that cannot be found out.
        """
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._look()
        except TimeoutError:
            raise TransientClusterError(f"no look at other installations' leases within {LOOK_SECONDS:.0f} s") from None
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

    async def _look(self) -> str | None:
        query = {"fieldSelector": f"metadata.name={self._lease_name}", "limit": str(MOST_LEASES)}
        answer = await self._api.request("GET", LEASES, query=query, timeout_seconds=CALL_SECONDS)
        found = [lease for lease in msgspec.json.decode(answer, type=_Leases).items or () if self._is_alike(lease)]
        present = {lease.metadata.namespace for lease in found}
        self._sightings = {name: seen for name, seen in self._sightings.items() if name in present}
        living = [lease for lease in found if self._is_renewed(lease)]
        for lease in living[:MOST_REVIEWS]:
            if await self._may_bind(lease):
                return (
                    f"another fairbind, in namespace {lease.metadata.namespace!r} (its lease is held by "
                    f"{lease.spec.holder_identity}), binds for the scheduler name {self._scheduler_name!r}. Uninstall "
                    f"one of the two, or give one another scheduler name (schedulerName in the chart)."
                )
        return None

    def _is_alike(self, lease: _Lease) -> bool:
        return bool(
            lease.metadata.namespace != self._namespace
            and lease.spec.holder_identity
            and lease.read(SCHEDULER_NAME) == self._scheduler_name
            and lease.read(SERVICE_ACCOUNT)
        )

    def _is_renewed(self, lease: _Lease) -> bool:
        now, version = self._clock(), lease.metadata.resource_version
        seen = self._sightings.get(lease.metadata.namespace)
        if seen is None or seen.version != version:
            seen = self._sightings[lease.metadata.namespace] = _Sighting(version, now)
        return now - seen.seen_at < GONE_SECONDS

    async def _may_bind(self, lease: _Lease) -> bool:
        namespace = lease.metadata.namespace
        spec = {
            "user": f"{_PREFIX}{namespace}:{lease.read(SERVICE_ACCOUNT)}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": {"verb": "create", "resource": "pods", "subresource": "binding"},
        }
        return await is_allowed(self._api, spec, timeout_seconds=CALL_SECONDS)

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
