"""When ShareReports are written: rarely, only what changed, tenants in turn, and nothing again after a restart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest

from cluster.builders import Cluster, make_namespace, make_node, make_pod
from fairbind.cluster.cache.tenant_view import TenantView
from fairbind.cluster.messages import MAX_CHARACTERS
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.kube.client.api import MOST_PAGE_BYTES, NotAllowedError
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.observer import SilentObserver
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers import share_reports
from fairbind.kube.writers.share_report import MAX_LISTED, ReportWords
from fairbind.kube.writers.share_reports import (
    LOOK_SECONDS,
    RELIST_SECONDS,
    REST_SECONDS,
    SETTLE_SECONDS,
    WRITES_PER_SECOND,
    ShareReportWriter,
)

Json = dict[str, Any]
COLLECTION = "/apis/fairbind.io/v1alpha1/sharereports"
STEP_SECONDS = 1.0 / WRITES_PER_SECOND


class FakeServer:
    """Keeps ShareReports as an API server does. failing: namespaces where writes fail, with what."""

    def __init__(self) -> None:
        self.reports: dict[str, Json] = {}
        self.writes: list[tuple[str, str]] = []
        self.lists = 0
        self.failing: dict[str, Exception] = {}
        self.list_fault: Exception | None = None

    async def request(self, method: str, path: str, **call: Any) -> bytes:
        if method == "GET":
            return self._list(path, call["query"])
        if not call["guard"]():
            raise NotAllowedError
        before, _, namespace = path.removesuffix("/sharereports/fairbind").rpartition("/")
        assert before == "/apis/fairbind.io/v1alpha1/namespaces"
        self.writes.append((method, namespace))
        if namespace in self.failing:
            raise self.failing[namespace]
        if method == "DELETE":
            if self.reports.pop(namespace, None) is None:
                raise ApiError(404, "NotFound", "no such report")
            return b"{}"
        assert (method, call["content_type"]) == ("PATCH", "application/apply-patch+yaml")
        assert call["query"] == {"fieldManager": "fairbind", "force": "true"}
        body: Json = json.loads(call["body"])
        assert body["metadata"] == {"name": "fairbind"}
        self.reports[namespace] = {"metadata": {"namespace": namespace}, "status": body["status"]}
        return b"{}"

    def _list(self, path: str, query: Mapping[str, str]) -> bytes:
        assert path == COLLECTION
        assert query["fieldSelector"] == "metadata.name=fairbind"
        self.lists += 1
        if self.list_fault is not None:
            raise self.list_fault
        first, size = int(query.get("continue", 0)), int(query["limit"])
        items = list(self.reports.values())
        more = str(first + size) if first + size < len(items) else ""
        return json.dumps({"metadata": {"continue": more}, "items": items[first : first + size]}).encode()


class Bench:
    """Namespaces with one running pod each, and a clock that goes on with the writer's steps."""

    def __init__(self) -> None:
        self.server = FakeServer()
        self.cluster = Cluster()
        self.cluster.add_nodes(make_node("n", allocatable={"cpu": "1000", "memory": "1Ti", "pods": "9999"}))
        self.pods: dict[str, Json] = {}
        self.now = 1000.0
        self.leads = self.sees = True
        self.writer = self.make_writer()

    def make_writer(self) -> ShareReportWriter:
        return ShareReportWriter(
            cast("Any", self.server),
            TenantView(self.cluster.cache.state),
            find_overview=self.cluster.cache.queries.build_overview,
            may_write=lambda: self.leads,
            may_look=lambda: self.sees,
            words=ReportWords(),
            failures=PartFailures(SilentObserver()),
            clock=lambda: self.now,
            wall_clock=lambda: 1_767_225_600.0 + self.now,
        )

    def claim(self, **claims: list[str]) -> None:
        specs = [TenantSpec(name, namespaces=frozenset(of)) for name, of in claims.items()]
        self.cluster.cache.replace_tenants(specs)

    def add(self, *namespaces: str, cpu: str = "1") -> None:
        """Let a pod run in each, or another one in place of it."""
        self.cluster.add_namespaces(*(make_namespace(name) for name in namespaces))
        for name in namespaces:
            self.remove(name)
            self.pods[name] = make_pod(f"p-{name}-{self.now}", namespace=name, node="n", requests={"cpu": cpu})
            self.cluster.add_pods(self.pods[name])

    def remove(self, namespace: str) -> None:
        if namespace in self.pods:
            self.cluster.delete_pod(self.pods.pop(namespace))

    async def play(self, seconds: float) -> int:
        """Let time pass, and return how many writes there were."""
        before = len(self.server.writes)
        for _ in range(round(seconds / STEP_SECONDS)):
            await self.writer.step()
            self.now += STEP_SECONDS
        return len(self.server.writes) - before

    async def restart(self) -> None:
        self.writer = self.make_writer()

    def read_cpu(self, namespace: str) -> str:
        held: Mapping[str, str] = self.server.reports[namespace]["status"]["held"]
        return held["cpu"]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_each_namespace_with_pods_gets_one_report(bench: Bench) -> None:
    bench.claim(a=["a-1", "a-2"])
    bench.cluster.add_namespaces(make_namespace("empty"))
    bench.add("a-1", "a-2", "free", "kube-system")
    assert await bench.play(SETTLE_SECONDS + 2) == 3
    assert {name: report["status"]["tenant"] for name, report in bench.server.reports.items()} == {
        "a-1": "a",
        "a-2": "a",
        "free": "ns/free",
    }
    assert bench.read_cpu("a-1") == "2"


async def test_members_are_told_of_all_users_of_their_tenant_together(bench: Bench) -> None:
    spec = TenantSpec("a", namespaces=frozenset({"x", "y"}), users_label="user")
    bench.cluster.cache.replace_tenants([spec])
    bench.add("x", "y")
    for name in ("ann", "bob"):
        labels = {"user": name}
        bench.cluster.add_pods(make_pod(name, namespace="x", requests={"cpu": "2000"}, labels=labels))
    await bench.play(60)

    status = bench.server.reports["x"]["status"]
    assert (status["tenant"], status["held"]["cpu"], status["running"], status["pending"]) == ("a", "2", 2, 2)
    assert sum(pods["pods"] for pods in status["waiting"]) == 2
    assert bench.server.reports["y"]["status"]["waiting"] == []


async def test_what_does_not_change_is_written_once(bench: Bench) -> None:
    bench.add("x")
    assert await bench.play(300.0) == 1


async def test_a_report_is_written_every_thirty_seconds_at_most(bench: Bench) -> None:
    bench.add("x")
    await bench.play(SETTLE_SECONDS + 1)
    for second in range(120):
        bench.add("x", cpu=str(2 + second))
        await bench.play(1.0)
    assert 120 / (REST_SECONDS + LOOK_SECONDS) <= len(bench.server.writes) - 1 <= 120 / REST_SECONDS
    await bench.play(REST_SECONDS + LOOK_SECONDS)
    assert bench.read_cpu("x") == "121"


async def test_the_time_of_the_last_change_stays_while_nothing_changes(bench: Bench) -> None:
    bench.add("x")
    await bench.play(SETTLE_SECONDS + 1)
    first = bench.server.reports["x"]["status"]["updated"]
    await bench.play(100.0)
    assert bench.server.reports["x"]["status"]["updated"] == first
    bench.add("x", cpu="2")
    await bench.play(LOOK_SECONDS + 1)
    assert bench.server.reports["x"]["status"]["updated"] > first


async def test_at_most_five_reports_a_second_are_written(bench: Bench) -> None:
    bench.add(*(f"x-{number}" for number in range(100)))
    await bench.play(SETTLE_SECONDS)
    for _ in range(10):
        assert await bench.play(1.0) <= WRITES_PER_SECOND
    assert len(bench.server.writes) >= 40


async def test_tenants_take_turns_however_many_namespaces_one_has(bench: Bench) -> None:
    many = [f"many-{number:03}" for number in range(200)]
    bench.claim(a=many)
    bench.add(*many, "few-1", "few-2")
    await bench.play(SETTLE_SECONDS + 2)
    written = [namespace for _, namespace in bench.server.writes[:9]]
    assert {"few-1", "few-2"} <= set(written)


async def test_a_restart_writes_nothing_again(bench: Bench) -> None:
    names = ["x-1", "x-2", "x-3"]
    bench.add(*names)
    await bench.play(60.0)
    assert len(bench.server.writes) == len(names)
    await bench.restart()
    bench.now += 1000.0
    assert await bench.play(100.0) == 0
    bench.add(names[0], cpu="2")
    assert await bench.play(LOOK_SECONDS + 1) == 1


async def test_reports_are_listed_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add("x-1", "x-2", "x-3", "x-4", "x-5")
    await bench.play(30.0)
    monkeypatch.setattr(share_reports, "PAGE", 2)
    await bench.restart()
    bench.server.lists = 0
    assert await bench.play(30.0) == 0
    assert bench.server.lists == 3


def test_a_page_of_the_largest_reports_can_be_read() -> None:
    """One tenant must not keep all others from their reports, whatever its pods are called and ask for."""
    requests = {f"{'d' * 100}.example/{number:02}": "1" * 12 for number in range(8)}
    pods = {"pods": 10**6, "example": "p" * 253, "requests": requests}
    entry = {**pods, "reason": "Unschedulable", "message": "m" * MAX_CHARACTERS, "position": 10**6}
    status = {"startsNext": pods, "waiting": [{**entry, "expectedStartUnknown": "u" * 100}] * MAX_LISTED}
    rest = 4096  # shares, amounts and metadata
    assert share_reports.PAGE * (len(json.dumps(status)) + rest) < MOST_PAGE_BYTES


async def test_a_new_leader_begins_with_a_list_and_waits_until_it_knows(bench: Bench) -> None:
    bench.add("x")
    bench.leads = False
    assert await bench.play(100.0) == 0
    assert bench.server.lists == 0
    bench.leads = True
    assert await bench.play(SETTLE_SECONDS) == 0
    assert bench.server.lists == 1
    assert await bench.play(1.0) == 1


async def test_who_leads_again_believes_nothing_that_it_knew_before(bench: Bench) -> None:
    bench.add("x")
    await bench.play(60.0)
    bench.leads = False
    await bench.play(1.0)
    bench.server.reports["x"]["status"]["dominantShare"] = "0.999"  # of another leader, which saw other pods
    bench.leads = True
    assert await bench.play(SETTLE_SECONDS + 1) == 1
    assert bench.server.lists == 2
    assert bench.server.reports["x"]["status"]["dominantShare"] != "0.999"


async def test_a_namespace_without_pods_loses_its_report(bench: Bench) -> None:
    bench.add("x", "y")
    await bench.play(60.0)
    bench.remove("x")
    await bench.play(LOOK_SECONDS + 1)
    assert bench.server.writes[-1] == ("DELETE", "x")
    assert list(bench.server.reports) == ["y"]
    assert await bench.play(100.0) == 0


async def test_while_pods_are_out_of_sight_no_report_goes(bench: Bench) -> None:
    bench.add("x", "y")
    await bench.play(60.0)
    bench.sees = False
    bench.remove("x")  # as in the middle of a list that is read again
    assert await bench.play(100.0) == 0
    bench.add("x")
    bench.sees = True
    assert await bench.play(100.0) == 0


async def test_a_namespace_that_is_gone_takes_its_report_with_it(bench: Bench) -> None:
    bench.add("x")
    await bench.play(60.0)
    bench.remove("x")
    bench.cluster.cache.state.directory.set_labels("x", None)
    assert await bench.play(100.0) == 0


async def test_what_others_changed_or_deleted_is_put_right(bench: Bench) -> None:
    bench.add("x", "y")
    await bench.play(60.0)
    bench.server.reports["x"]["status"]["dominantShare"] = "0.999"
    del bench.server.reports["y"]
    await bench.play(RELIST_SECONDS + LOOK_SECONDS + 1)
    assert bench.server.reports["x"]["status"]["dominantShare"] != "0.999"
    assert "y" in bench.server.reports


@pytest.mark.parametrize(
    "error",
    [
        ApiError(403, "Forbidden", "exceeded quota: count/sharereports.fairbind.io=0"),
        ApiError(403, "Forbidden", "namespace x is being terminated"),
        TransientClusterError("timed out"),
    ],
    ids=str,
)
async def test_a_namespace_where_writes_fail_delays_no_other(bench: Bench, error: Exception) -> None:
    names = [f"x-{number}" for number in range(20)]
    bench.add("broken", *names)
    bench.server.failing["broken"] = error
    await bench.play(SETTLE_SECONDS + 10)
    assert set(bench.server.reports) == set(names)
    await bench.play(120.0)
    assert Counter(bench.server.writes)["PATCH", "broken"] <= 5
    del bench.server.failing["broken"]
    await bench.play(REST_SECONDS + LOOK_SECONDS + 1)
    assert "broken" in bench.server.reports


async def test_where_all_writes_fail_few_are_tried(bench: Bench) -> None:
    names = [f"x-{number}" for number in range(100)]
    bench.add(*names)
    bench.server.failing = {name: ApiError(500, "InternalError", "no") for name in names}
    assert await bench.play(SETTLE_SECONDS + 60) <= 60


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        (ApiError(403, "Forbidden", "cannot list"), "the chart grants this with tenantView.enabled"),
        (ApiError(404, "NotFound", "no such kind"), "apply crds/sharereports.yaml"),
        (TransientClusterError("timed out"), "ShareReports could not be listed: timed out"),
    ],
    ids=str,
)
async def test_without_a_list_nothing_is_written(
    bench: Bench, caplog: pytest.LogCaptureFixture, fault: Exception, hint: str
) -> None:
    bench.add("x")
    bench.server.list_fault = fault
    assert await bench.play(100.0) == 0
    assert bench.server.lists <= 4
    assert hint in caplog.text
    bench.server.list_fault = None
    assert await bench.play(60.0) == 1


async def test_who_ceases_to_lead_writes_no_more(bench: Bench) -> None:
    bench.add("x", "y", "z")
    await bench.play(SETTLE_SECONDS)
    assert await bench.play(2 * STEP_SECONDS) >= 1
    bench.leads = False
    assert await bench.play(100.0) == 0
