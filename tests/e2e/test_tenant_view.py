"""Members of a namespace read its ShareReport, with the rights that a namespace's administrator has, and no other's."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from e2e.members import check_refused, joined, wait_allowed
from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeTenant, StartOperator

REPORTS = "/apis/fairbind.io/v1alpha1/namespaces/{}/sharereports"
ON = {"operator": {"enabled": False}, "tenantView": {"enabled": True}}
OFF = {"operator": {"enabled": False}}


@pytest.fixture
def shown(cluster: Cluster) -> Iterator[None]:
    cluster.install_chart(ON)
    yield
    cluster.install_chart(OFF)


def find_path(namespace: str) -> str:
    return f"{REPORTS.format(namespace)}/fairbind"


def read_status(api: Api, namespace: str) -> Json:
    status: Json = api.get(find_path(namespace))["status"]
    return status


def fill(api: Api, mine: str, theirs: str) -> None:
    """Let more pods wait than a node of twelve cores can hold, mine of twice the size."""
    for number in range(8):
        api.post(f"/api/v1/namespaces/{mine}/pods", make_pod({"cpu": "2"}, name=f"mine-{number}"))
        api.post(f"/api/v1/namespaces/{theirs}/pods", make_pod({"cpu": "1"}, name=f"theirs-{number}"))


def is_settled(api: Api, mine: str, theirs: str) -> bool:
    """Whether the node is full and the report of `mine` says so."""
    if not (count_bound(api, mine) and count_bound(api, theirs) and api.exists(find_path(mine))):
        return False
    status = read_status(api, mine)
    return status["running"] == count_bound(api, mine) and any("cpu" in one["message"] for one in status["waiting"])


@pytest.mark.usefixtures("shown", "node")
def test_a_member_reads_the_report_of_its_namespace_and_no_other(
    cluster: Cluster, api: Api, mine: str, theirs: str, tenant: MakeTenant, operator: StartOperator
) -> None:
    names = tenant(make_name("mine"), namespaces=[mine]), tenant(make_name("theirs"), namespaces=[theirs])
    fill(api, mine, theirs)
    operator("--tenant-view=own")
    wait_for(lambda: is_settled(api, mine, theirs), describe="the report of a full cluster")

    with joined(cluster, mine) as member:
        wait_allowed(functools.partial(member.get, find_path(mine)))
        report = member.get(find_path(mine))
        status, text = report["status"], json.dumps(report["status"])
        assert (status["tenant"], status["claimed"], status["policy"]) == (names[0], True, "best-fit-drfh")
        assert status["running"] + status["pending"] == 8
        assert 0 < float(status["dominantShare"]) <= 1
        assert status["startsNext"] == {
            "pods": status["pending"],
            "example": status["waiting"][0]["example"],
            "requests": {"cpu": "2"},
        }
        assert names[1] not in text
        assert theirs not in text

        check_refused(functools.partial(member.get, find_path(theirs)))
        check_refused(functools.partial(member.get, "/apis/fairbind.io/v1alpha1/sharereports"))
        check_refused(functools.partial(member.patch, find_path(mine), {"status": {"tenant": "x"}}))
        check_refused(functools.partial(member.delete, find_path(mine)))
        check_refused(
            functools.partial(
                member.post,
                REPORTS.format(mine),
                {"apiVersion": "fairbind.io/v1alpha1", "kind": "ShareReport", "metadata": {"name": "other"}},
            )
        )


@pytest.mark.usefixtures("shown", "node")
def test_kubectl_shows_it_in_one_line(
    cluster: Cluster, api: Api, mine: str, theirs: str, operator: StartOperator
) -> None:
    fill(api, mine, theirs)  # no Tenant claims either
    operator("--tenant-view=all")
    wait_for(lambda: is_settled(api, mine, theirs), describe="the report of a full cluster")
    with joined(cluster, mine) as member:
        wait_allowed(functools.partial(member.get, find_path(mine)))
        header, row = cluster.kubectl("get", "sharereports", f"--namespace={mine}").splitlines()
    assert header.split() == ["NAME", "SHARE", "FAIR", "SHARE", "RUNNING", "PENDING", "BEFORE", "AGE"]
    assert row.split()[0] == "fairbind"
    assert read_status(api, mine)["claimed"] is False


@pytest.mark.slow
@pytest.mark.usefixtures("shown", "node")
def test_a_restart_writes_no_report_again_and_an_empty_namespace_loses_its_own(
    api: Api, mine: str, theirs: str, operator: StartOperator
) -> None:
    fill(api, mine, theirs)
    running = operator("--tenant-view=own")
    wait_for(lambda: is_settled(api, mine, theirs), describe="the report of a full cluster")
    seen: list[str] = []

    def is_quiet() -> bool:
        """Whether the report was the same for two looks at all namespaces."""
        seen.append(api.get(find_path(mine))["metadata"]["resourceVersion"])
        return len(seen) > 25 and len(set(seen[-25:])) == 1

    wait_for(is_quiet, pause=1.0, describe="the report to stay")
    running.stop()
    operator("--tenant-view=own")
    before, seen = seen[-1], []
    wait_for(is_quiet, pause=1.5, describe="the report to stay")
    assert seen[-1] == before

    for pod in api.items(f"/api/v1/namespaces/{mine}/pods"):
        api.delete(f"/api/v1/namespaces/{mine}/pods/{pod['metadata']['name']}")
    wait_for(lambda: not api.exists(find_path(mine)), describe="the report to go")
    assert api.exists(find_path(theirs))
