"""Writes a ShareReport into each namespace that has pods of a tenant, for the members of the namespace.

There may be thousands of namespaces, and what tenants hold changes all the time, so:

* All namespaces are looked at every `LOOK_SECONDS`, some at a time. One whose report was written less than
  `REST_SECONDS` ago is left alone, so a report changes no more often.
* What differs from the report that is there waits to be written. Tenants take turns, however many namespaces they
  have, and `WRITES_PER_SECOND` go out at most, one after another.
* The reports that are there are listed when a replica begins to lead, and now and then, so a new leader repeats
  nothing, and what others changed or deleted is put right. It waits until fair shares and reasons are known again.
* A report is deleted when its namespace has no pods of a tenant any more.
* A namespace where a write failed rests (`write_limits`); no other waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.cache.tenant_ranking import TenantRanking
from fairbind.cluster.cache.tenant_view import TenantView, WaitingPods
from fairbind.cluster.loop.write_limits import WriteLimits
from fairbind.kube.client.api import NotAllowedError, Requests
from fairbind.kube.client.custom_objects import FORBIDDEN, GROUP, NOT_FOUND, VERSION
from fairbind.kube.client.errors import ApiError, TransientClusterError, is_namespace_ending
from fairbind.kube.client.times import format_time
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.complaints import Complaints
from fairbind.kube.writers.fair_queue import FairQueue
from fairbind.kube.writers.share_report import Json, ReportScene, ReportWords, compute_share_report
from fairbind.kube.writers.status import WRITE_TIMEOUT_SECONDS
from fairbind.model.overview import ClusterOverview, TenantOverview

WRITES_PER_SECOND = 5.0
REST_SECONDS = 30.0
LOOK_SECONDS = 10.0
AT_ONCE = 16
"""So many reports are made before others have their turn."""
SETTLE_SECONDS = 15.0
"""A new leader looks at nothing for so long: it has no fair shares and no reasons yet."""
RELIST_SECONDS = 600.0
RETRY_SECONDS = 30.0
PAGE = 200
"""So many of the largest reports are less than a page may have."""
MAX_DUE_OF_TENANT = 10_000
"""Reports of one tenant that wait to be written."""
COMPLAINT_SECONDS = 300.0

REPORTS = "sharereports"
NAME = "fairbind"
_FIELD_MANAGER = "fairbind"
_COLLECTION = f"/apis/{GROUP}/{VERSION}/{REPORTS}"
_HINTS = {FORBIDDEN: "; the chart grants this with tenantView.enabled"}
_LIST_HINTS = {**_HINTS, NOT_FOUND: "; the CRD is not installed: apply crds/sharereports.yaml"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """A report as the API server has it, or is to have it. content: its status without `updated`, as canonical JSON."""

    content: bytes
    updated: str

    def read(self) -> Json:
        """Return the status."""
        return {**msgspec.json.decode(self.content), "updated": self.updated}


def make_report(status: Mapping[str, Any], updated: str) -> Report:
    """Return a report. status: with or without `updated`."""
    content = {name: value for name, value in status.items() if name != "updated"}
    return Report(msgspec.json.encode(content, order="sorted"), updated)


class Ledger:
    """Which reports are there, which are to be written, and when each was written last, by namespace.

    present: None until they are listed. _due: a report that is to be deleted is None. _written_at: also of writes that
    failed. Times are those of the caller's clock.
    """

    def __init__(self) -> None:
        self.present: dict[str, Report] | None = None
        self._due: dict[str, Report | None] = {}
        self._queue: FairQueue[str, str] = FairQueue(MAX_DUE_OF_TENANT)
        self._written_at: dict[str, float] = {}
        self._limits = WriteLimits()

    def is_resting(self, namespace: str, now: float) -> bool:
        """Whether it is too early to write there again."""
        return now - self._written_at.get(namespace, -inf) < REST_SECONDS

    def read(self, namespace: str) -> Json | None:
        """Return the status of the report that is there."""
        report = self._find(namespace)
        return None if report is None else report.read()

    def _find(self, namespace: str) -> Report | None:
        return None if self.present is None else self.present.get(namespace)

    def want(self, namespace: str, report: Report | None, tenant: str = "") -> None:
        """Note what should be there; None: nothing. tenant: who takes turns with others."""
        present = self._find(namespace)
        if (report and report.content) == (present and present.content):
            self._due.pop(namespace, None)
            return
        if namespace not in self._due and (lost := self._queue.add(tenant, namespace)) is not None:
            self._due.pop(lost, None)  # the next look finds it again
        self._due[namespace] = report

    def keep_only(self, namespaces: Collection[str], exists: Callable[[str], bool], now: float) -> None:
        """Have all other reports deleted. exists: whether a namespace is there; its report goes with it."""
        for namespace in [namespace for namespace in self.present or () if namespace not in namespaces]:
            if not exists(namespace):
                self.note_gone(namespace)
            elif not self.is_resting(namespace, now):
                self.want(namespace, None)
        self._written_at = {name: at for name, at in self._written_at.items() if now - at < REST_SECONDS}

    def take(self) -> tuple[str, Report | None] | None:
        """Take the next report that is to be written or deleted."""
        while (namespace := self._queue.take()) is not None:
            if namespace in self._due:
                self._limits.begin(namespace)
                return namespace, self._due.pop(namespace)
        return None

    def note_written(self, namespace: str, report: Report | None, now: float) -> None:
        """Note that the report that was taken is there, or with None is gone."""
        self._limits.succeed(namespace, now)
        self._written_at[namespace] = now
        if report is None or self.present is None:
            self.note_gone(namespace)
        else:
            self.present[namespace] = report

    def note_failed(self, namespace: str, now: float, asked_seconds: float | None) -> float:
        """Note that the write of a report that was taken failed; return for how long all writes must rest."""
        self._written_at[namespace] = now
        return self._limits.fail(namespace, now, asked_seconds)

    def note_gone(self, namespace: str) -> None:
        """Note that there is no report."""
        self._due.pop(namespace, None)
        if self.present is not None:
            self.present.pop(namespace, None)


class ShareReportWriter:
    """See the module; it works while `run` runs. _list_at, _look_at, _write_at: when it may do so next."""

    def __init__(
        self,
        api: Requests,
        view: TenantView,
        *,
        find_overview: Callable[[], ClusterOverview | None],
        may_write: Callable[[], bool],
        may_look: Callable[[], bool],
        words: ReportWords,
        failures: PartFailures,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """may_write: the fence. may_look: whether it sees all pods: a namespace without any loses its report."""
        self._api = api
        self._view = view
        self._find_overview = find_overview
        self._may_write = may_write
        self._may_look = may_look
        self._words = words
        self._failures = failures
        self._clock = clock
        self._wall_clock = wall_clock
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)
        self._forget()

    def _forget(self) -> None:
        """Begin again, because another replica writes now."""
        self._ledger = Ledger()
        self._list_at = self._look_at = self._write_at = -inf

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(1.0 / WRITES_PER_SECOND)
            with self._failures.contain("share_reports"):
                await self.step()

    async def step(self) -> None:
        """List or look if it is time to, and write at most one report."""
        if not self._may_write():
            self._forget()
            return
        now = self._clock()
        if self._look_at == -inf:
            self._look_at = now + SETTLE_SECONDS
        if now >= self._list_at:
            self._list_at = now + (RELIST_SECONDS if await self._list() else RETRY_SECONDS)
        if self._ledger.present is None:
            return
        if now >= self._look_at and self._may_look():
            self._look_at = now + LOOK_SECONDS
            await self._look()
        if now >= self._write_at and (taken := self._ledger.take()) is not None:
            await self._write(*taken)

    async def _look(self) -> None:
        """Find out which reports should be other than they are."""
        overview = self._find_overview()
        if overview is None:
            return
        self._view.look()
        ranking = TenantRanking(overview) if self._view.has_order else None
        scene = ReportScene(self._view.policy, self._view.node_count, ranking, self._words, self._wall_clock())
        # Its own namespaces are what the members of a tenant with others below it are told of; of users, all together.
        tenants = {tenant.name: tenant for tenant in (*overview.shown, *overview.tenants)}
        wanted: set[str] = set()
        made = 0
        for name, group in groupby(self._view.list_namespaces(), key=itemgetter(0)):
            if (tenant := tenants.get(name)) is None:
                continue
            namespaces = [namespace for _, namespace in group]
            wanted.update(namespaces)
            now = self._clock()
            free = [namespace for namespace in namespaces if not self._ledger.is_resting(namespace, now)]
            waiting = self._view.list_waiting(name, ranking) if free else {}
            for namespace in free:
                with self._failures.contain("share_reports"):  # of this namespace; others still get theirs
                    self._want(scene, tenant, namespace, waiting.get(namespace, []))
                made += 1
                if made % AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._ledger.keep_only(wanted, self._view.exists, self._clock())

    def _want(self, scene: ReportScene, tenant: TenantOverview, namespace: str, waiting: list[WaitingPods]) -> None:
        status = compute_share_report(scene, tenant, waiting, lambda: self._ledger.read(namespace))
        self._ledger.want(namespace, make_report(status, format_time(scene.now)), tenant.name)

    async def _list(self) -> bool:
        """Take which reports there are; False when that did not work."""
        try:
            self._ledger.present = await self._fetch_present()
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            self._complain("ShareReports could not be listed", error, _LIST_HINTS)
            return False
        return True

    async def _fetch_present(self) -> dict[str, Report]:
        present: dict[str, Report] = {}
        query = {"fieldSelector": f"metadata.name={NAME}", "limit": str(PAGE)}
        while True:
            page = _decode_page(await self._api.request("GET", _COLLECTION, query=query))
            for item in page.items or ():
                present[item.metadata.namespace] = make_report(item.status, item.status.get("updated", ""))
            if not page.metadata.continue_:
                return present
            query["continue"] = page.metadata.continue_

    async def _write(self, namespace: str, report: Report | None) -> None:
        try:
            await (self._delete(namespace) if report is None else self._apply(namespace, report))
        except NotAllowedError:
            return  # another replica leads now, and begins with a list
        except (ApiError, TransientClusterError) as error:
            now, asked = self._clock(), error.retry_after if isinstance(error, ApiError) else None
            if (rest := self._ledger.note_failed(namespace, now, asked)) > 0:
                self._write_at = now + rest
            if not (isinstance(error, ApiError) and is_namespace_ending(error)):
                self._complain(f"the ShareReport of namespace {namespace} could not be written", error, _HINTS)
        else:
            self._ledger.note_written(namespace, report, self._clock())

    async def _apply(self, namespace: str, report: Report) -> None:
        manifest = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "ShareReport",
            "metadata": {"name": NAME},
            "status": report.read(),
        }
        await self._api.request(
            "PATCH",
            _find_path(namespace),
            query={"fieldManager": _FIELD_MANAGER, "force": "true"},
            body=msgspec.json.encode(manifest),
            content_type="application/apply-patch+yaml",
            timeout_seconds=WRITE_TIMEOUT_SECONDS,
            guard=self._may_write,
        )

    async def _delete(self, namespace: str) -> None:
        options = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions"})
        try:
            await self._api.request(
                "DELETE",
                _find_path(namespace),
                body=options,
                timeout_seconds=WRITE_TIMEOUT_SECONDS,
                guard=self._may_write,
            )
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _complain(self, trouble: str, error: Exception, hints: Mapping[int, str]) -> None:
        hint = hints.get(error.status, "") if isinstance(error, ApiError) else ""
        _log.log(self._complaints.choose_level(), "%s: %s%s", trouble, error, hint, extra={"reason": str(error)})


class _ItemMetadata(msgspec.Struct):
    namespace: str


class _Item(msgspec.Struct):
    metadata: _ItemMetadata
    status: Json = {}


class _PageMetadata(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _PageMetadata
    items: list[_Item] | None


_decode_page = msgspec.json.Decoder(_Page).decode


def _find_path(namespace: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{quote(namespace)}/{REPORTS}/{NAME}"
