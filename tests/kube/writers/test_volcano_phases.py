"""Jobs of Volcano that wait for a phase of their PodGroup, and what is written for them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.builders import Cluster, Json, make_pod_group
from fairbind.cluster.cache.group_conditions import list_awaited_groups
from fairbind.cluster.objects.decode import VOLCANO_POD_GROUPS
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError
from fairbind.kube.observer import SilentObserver
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.volcano_phases import VolcanoPhases

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "job", "uid": "u", "controller": True}


class Scene:
    """A cluster, and an API server that remembers what is written and tells the cluster.

    has_subresource: whether the status is one, as newer versions of the CRD may have it.
    """

    def __init__(self, *, has_subresource: bool = False) -> None:
        self.cluster = Cluster()
        self.has_subresource = has_subresource
        self.groups: dict[str, Json] = {}
        self.writes: list[str] = []
        self.fault: ApiError | None = None
        self.leads = True
        self.now = 0.0
        self.writer = VolcanoPhases(
            self,
            lambda: list_awaited_groups(self.cluster.cache.state),
            lambda: self.leads,
            lambda: True,
            PartFailures(SilentObserver()),
            clock=lambda: self.now,
        )

    def put(self, name: str, *, phase: str = "", owner: Json = JOB) -> None:
        group = make_pod_group(name, minMember=2)
        group["metadata"]["ownerReferences"] = [owner]
        group["status"] = {"phase": phase} if phase else {}
        self.groups[name] = group
        self.cluster.put_objects(VOLCANO_POD_GROUPS, group)

    async def request(self, method: str, path: str, **rest: Any) -> bytes:
        assert (method, rest["content_type"]) == ("PATCH", "application/merge-patch+json")
        if not rest["guard"]():
            raise NotAllowedError(path)
        if self.fault is not None:
            raise self.fault
        name, *subresource = path.split("/")[7:]
        group = self.groups[name]
        assert path.startswith("/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/")
        patch = msgspec.json.decode(rest["body"])
        assert patch["metadata"] == {"uid": group["metadata"]["uid"]}
        self.writes.append("/".join([name, *subresource]))
        if self.has_subresource == bool(subresource):
            group = {**group, "status": patch["status"]}
            self.put(name, phase=patch["status"]["phase"])
        return msgspec.json.encode(group)

    async def look(self) -> list[str]:
        self.writes.clear()
        await self.writer.look()
        return sorted(self.writes)


async def test_pod_groups_of_volcanos_jobs_get_the_phase_for_which_the_job_waits() -> None:
    scene = Scene()
    scene.put("new")
    scene.put("pending", phase="Pending")
    scene.put("running", phase="Running")
    scene.put("spark", owner={**JOB, "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"})
    scene.put("plain", owner={**JOB, "apiVersion": "batch/v1"})
    scene.put("other", owner={**JOB, "controller": None})
    assert await scene.look() == ["new", "pending"]
    assert scene.groups["new"]["status"] == {"phase": "Inqueue"}
    assert await scene.look() == []
    scene.put("new", phase="Pending")
    assert await scene.look() == ["new"]


async def test_a_phase_in_a_subresource_is_written_there() -> None:
    scene = Scene(has_subresource=True)
    scene.put("new")
    assert await scene.look() == ["new", "new/status"]
    assert await scene.look() == []


async def test_who_does_not_lead_writes_nothing_and_a_missing_right_is_said(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.put("new")
    scene.leads = False
    assert await scene.look() == []
    scene.leads, scene.fault = True, ApiError(403, "Forbidden", 'User "x" cannot patch resource "podgroups"')
    assert await scene.look() == []
    assert "The phase of a PodGroup of Volcano could not be written" in caplog.text
    scene.now, scene.fault = 600.0, None
    assert await scene.look() == ["new"]


async def test_a_pod_group_that_is_gone_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.put("new")
    scene.fault = ApiError(404, "NotFound", "podgroups not found")
    assert await scene.look() == []
    assert not caplog.text


async def test_without_volcano_nothing_is_written() -> None:
    assert await Scene().look() == []
