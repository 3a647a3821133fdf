from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from fairbind.cluster.tenancy.administration import Administration
from fairbind.cluster.tenancy.tenants import TenantSpec, TenantState
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import MAX_RETRY_AFTER_SECONDS, ApiError, TransientClusterError
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.kube.writers import status
from fairbind.kube.writers.status import (
    BUSY_BINDINGS,
    BUSY_INTERVAL_SECONDS,
    FIRST_ANSWER_SECONDS,
    INTERVAL_SECONDS,
    LATE_SECONDS,
    PAUSE_SECONDS,
    StatusWriter,
)
from fairbind.model import PolicySettings
from fairbind.model.overview import ClusterOverview, TenantOverview

TENANT = "/apis/fairbind.io/v1alpha1/tenants/a/status"


class FakeWorld:
    def replace_tenants(self, specs: list[TenantSpec]) -> None:
        """Take them."""

    def set_policy(self, settings: PolicySettings | None) -> None:
        """Take it."""


class FakeServer:
    """Keeps one Tenant as an API server does; its watch is late until `tell` is called."""

    def __init__(self) -> None:
        self.version = 1
        self.item: dict[str, Any] = {
            "metadata": {"name": "a", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"namespaces": ["a-1"]},
        }
        self.patches: list[dict[str, Any]] = []
        self.fault: Exception | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes,
        content_type: str,
        timeout_seconds: float,
        guard: Callable[[], bool],
    ) -> bytes:
        assert (method, path, content_type) == ("PATCH", TENANT, "application/merge-patch+json")
        assert timeout_seconds <= 5.0
        if not guard():
            raise NotAllowedError
        patch = json.loads(body)
        assert patch["metadata"] == {"uid": "u"}
        self.patches.append(patch["status"])
        if self.fault is not None:
            raise self.fault
        self.version += 1
        self.item = merge(self.item, {"status": patch["status"]})
        self.item["metadata"] = {**self.item["metadata"], "resourceVersion": str(self.version)}
        return json.dumps(self.item).encode()


def merge(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a merge patch, RFC 7386."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merge(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


class Bench:
    def __init__(self) -> None:
        self.server = FakeServer()
        self.administration = Administration(FakeWorld(), lambda: None, AdministrationLog())
        self.now = 100.0
        self.leads = True
        self.bindings = 0
        self.share = 0.25
        self.fair_share: float | None = 0.5
        self.fair_shares = ("True", "Solved", "Known.")
        self.writer = self.make_writer()
        self.tell()

    def make_writer(self) -> StatusWriter:
        return StatusWriter(
            cast("Any", self.server),
            self.administration,
            find_overview=self.make_overview,
            find_states=lambda: {"a": TenantState("a", {}, (), claims_nothing=False, unknown_resources=())},
            describe_fair_shares=lambda: self.fair_shares,
            find_unknown_resources=lambda: (),
            may_write=lambda: self.leads,
            count_bindings=lambda: self.bindings,
            clock=lambda: self.now,
        )

    def make_overview(self) -> ClusterOverview:
        tenant = TenantOverview(
            "a", 1.0, self.share, "cpu", self.share, {"cpu": 1.0}, 1, {}, fair_share=self.fair_share
        )
        return ClusterOverview({}, {}, 1, (tenant,), 1.0)

    def tell(self) -> None:
        """Let the watch catch up."""
        self.administration.tenants.apply(self.server.item)

    async def write(self, *, after: float = 0.0) -> int:
        """Let some time pass, let the writer look once, and return how often it has written in all."""
        self.now += after
        await self.writer.write_changes()
        return len(self.server.patches)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_first_status_is_whole(bench: Bench) -> None:
    assert await bench.write() == 1
    status = bench.server.item["status"]
    assert status["dominantShare"] == "0.250"
    assert status["allocated"] == {"cpu": "1"}
    assert {condition["type"] for condition in status["conditions"]} == {"Ready", "NamespacesConflict"}


async def test_what_did_not_change_is_not_written_again(bench: Bench) -> None:
    await bench.write()
    assert await bench.write(after=LATE_SECONDS / 2) == 1  # also while its own write has not come back
    bench.tell()
    assert await bench.write(after=60.0) == 1


async def test_a_write_that_does_not_come_back_is_repeated(bench: Bench) -> None:
    """The cluster may have been restored from a backup that knows nothing of it."""
    await bench.write()
    assert await bench.write(after=LATE_SECONDS) == 2


async def test_only_what_changed_is_written_and_not_too_often(bench: Bench) -> None:
    await bench.write()
    bench.tell()
    bench.share = 0.5
    assert await bench.write(after=INTERVAL_SECONDS / 2) == 1
    assert await bench.write(after=INTERVAL_SECONDS / 2) == 2
    assert bench.server.patches[-1] == {"dominantShare": "0.500", "weightedShare": "0.500"}


async def test_many_bindings_in_flight_make_it_slower(bench: Bench) -> None:
    bench.bindings = BUSY_BINDINGS
    await bench.write()
    bench.share = 0.5
    assert await bench.write(after=BUSY_INTERVAL_SECONDS - 0.1) == 1
    assert await bench.write(after=0.2) == 2


async def test_only_the_leader_writes(bench: Bench) -> None:
    bench.leads = False
    assert await bench.write() == 0


async def test_a_lead_that_ends_on_the_way_to_the_server_writes_nothing(bench: Bench) -> None:
    answers = iter((True, True, False))
    bench.writer = StatusWriter(
        cast("Any", bench.server),
        bench.administration,
        find_overview=bench.make_overview,
        find_states=dict,
        describe_fair_shares=lambda: ("True", "Solved", "Known."),
        find_unknown_resources=lambda: (),
        may_write=lambda: next(answers),
        count_bindings=lambda: 0,
        clock=lambda: bench.now,
    )
    assert await bench.write() == 0


async def test_a_new_leader_repeats_nothing(bench: Bench) -> None:
    await bench.write()
    bench.tell()
    bench.writer = bench.make_writer()
    assert await bench.write(after=60.0) == 1


async def test_an_edit_by_somebody_else_is_put_right(bench: Bench) -> None:
    await bench.write()
    bench.server.version += 1
    bench.server.item = merge(
        bench.server.item,
        {"status": {"dominantShare": "0.900"}, "metadata": {"resourceVersion": str(bench.server.version)}},
    )
    bench.tell()
    assert await bench.write(after=INTERVAL_SECONDS) == 2
    assert bench.server.patches[-1] == {"dominantShare": "0.250"}


@pytest.mark.parametrize(
    ("fault", "level", "pause"),
    [
        (ApiError(404, "NotFound", "it is gone"), "DEBUG", INTERVAL_SECONDS),
        (ApiError(409, "Conflict", "another uid"), "DEBUG", INTERVAL_SECONDS),
        (ApiError(403, "Forbidden", "not you"), "WARNING", PAUSE_SECONDS),
        (ApiError(429, "TooManyRequests", "slow", retry_after=20.0), "WARNING", 20.0),
        (ApiError(429, "TooManyRequests", "slow", retry_after=86400.0), "WARNING", MAX_RETRY_AFTER_SECONDS),
        (TransientClusterError("away"), "WARNING", PAUSE_SECONDS),
    ],
)
async def test_a_write_that_fails_is_tried_again_later(
    bench: Bench, fault: Exception, level: str, pause: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "fairbind")
    bench.server.fault = fault
    assert await bench.write() == 1
    assert [record.levelname for record in caplog.records if str(fault) in record.getMessage()] == [level]
    assert await bench.write(after=pause / 2) == 1
    bench.server.fault = None
    assert await bench.write(after=pause / 2) == 2
    assert bench.server.item["status"]["dominantShare"] == "0.250"


async def test_a_new_leader_waits_for_its_first_fair_shares_and_not_for_ever(bench: Bench) -> None:
    bench.fair_share, bench.fair_shares = None, ("False", "NotSolvedYet", "There is no answer yet.")
    assert await bench.write() == 0
    bench.fair_shares = ("True", "Solved", "Known.")
    assert await bench.write() == 0  # they are not in the overview yet
    bench.fair_share = 0.5
    assert await bench.write() == 1
    assert bench.server.item["status"]["fairShare"] == "0.500"

    bench.writer, bench.fair_share = bench.make_writer(), None
    bench.fair_shares = ("False", "NotSolvedYet", "There is no answer yet.")
    bench.tell()
    assert await bench.write() == 1
    assert await bench.write(after=FIRST_ANSWER_SECONDS) == 2
    assert "fairShare" not in bench.server.item["status"]


async def test_an_error_over_one_object_leaves_the_others_their_statuses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual = status.compute_tenant_status

    def fail_for_one(item: Any, *rest: Any) -> dict[str, Any]:
        if item["metadata"]["name"] == "0":
            raise ZeroDivisionError("a bug")
        return usual(item, *rest)

    monkeypatch.setattr(status, "compute_tenant_status", fail_for_one)
    odd = {"metadata": {"name": "0", "uid": "v", "generation": 1, "resourceVersion": "1"}, "spec": {}}
    bench.administration.tenants.apply(odd)
    assert await bench.write() == 1
    bench.share = 0.75
    assert await bench.write(after=INTERVAL_SECONDS) == 2
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "status: an error in a part that only reports; it goes on without it"
    ]
