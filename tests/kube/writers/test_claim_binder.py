"""What is written for the claims of a pod, and when it is not; whole operators are in `kube.assembled.test_claims`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from cluster.volumes import VolumeCluster, claiming
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError
from fairbind.kube.writers.binder import Binder
from fairbind.kube.writers.claim_binder import ClaimBinder
from kube.fakes import CountingObserver

Json = dict[str, Any]

CLAIM = "/api/v1/namespaces/team/persistentvolumeclaims/claim"
SELECTED = "volume.kubernetes.io/selected-node"


class FakeServer:
    """Objects by path, patched as the API server does it. before_write: called before a write is looked at."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.requests: list[tuple[str, str]] = []
        self.before_write: Callable[[], None] = lambda: None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,  # noqa: ARG002 - as the protocol has it
        body: bytes | None = None,
        content_type: str = "",  # noqa: ARG002 - the same
        timeout_seconds: float = 0.0,  # noqa: ARG002 - the same
        guard: Callable[[], bool] | None = None,
    ) -> bytes:
        await asyncio.sleep(0)
        if method == "GET":
            self.requests.append((method, path))
            return msgspec.json.encode(self.objects[path])
        self.before_write()
        if guard is not None and not guard():
            raise NotAllowedError(path)
        self.requests.append((method, path))
        assert body is not None
        if path.endswith("/binding"):
            return b"{}"
        patch, found = msgspec.json.decode(body), self.objects[path]
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        found["metadata"].setdefault("annotations", {}).update(patch["metadata"].get("annotations", {}))
        found["metadata"]["resourceVersion"] += "+"
        return msgspec.json.encode(found)

    def find_writes(self) -> list[str]:
        return [path for method, path in self.requests if method != "GET"]


class Scene:
    """A pod that has a node and one unbound claim, whose volume must be made."""

    def __init__(self) -> None:
        self.cluster = VolumeCluster()
        self.cluster.add_late_claim("claim")
        self.cluster.add_pods(claiming("pod", "claim"))
        self.cluster.cache.build_snapshot()
        assert self.cluster.cache.assume("uid-pod", "a")
        self.server = FakeServer()
        self.server.objects[CLAIM] = {"metadata": {"name": "claim", "resourceVersion": "1"}, "spec": {}}
        self.leads = True
        self.stalls: list[bool] = []
        self.waits: list[bool] = []
        self.looks = 0
        self.binder = ClaimBinder(
            Binder(self.server, CountingObserver(), may_bind=lambda: self.leads),  # type: ignore[arg-type]  # requests only
            self.cluster.cache.queries,
            self.cluster.cache.rest_claim,
            clock=lambda: 0.0,
            sleep=self.sleep,
        )
        self.binder.on_wait = lambda _uid, awaits: self.waits.append(awaits)

    async def sleep(self, _seconds: float) -> None:
        """The first look finds nothing; before the second one the claim is bound."""
        self.looks += 1
        self.cluster.add_volume("v", "a")
        self.cluster.add_claim("claim", "v", storage_class="late")
        await asyncio.sleep(0)

    async def bind(self) -> BindResult:
        return await self.binder.bind("team", "pod", "uid-pod", "a", self.stalls.append)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_pod_that_waits_for_its_claim_leaves_its_place_to_others(scene: Scene) -> None:
    assert await scene.bind() is BindResult.BOUND

    assert (scene.waits, scene.stalls) == ([True, False], [])
    assert scene.looks == 1
    assert scene.server.find_writes() == [CLAIM, "/api/v1/namespaces/team/pods/pod/binding"]
    assert scene.server.objects[CLAIM]["metadata"]["annotations"] == {SELECTED: "a"}


async def test_nothing_is_written_by_who_does_not_lead_any_more(scene: Scene) -> None:
    def lose() -> None:
        scene.leads = False

    scene.server.before_write = lose  # after the claim was read
    assert await scene.bind() is BindResult.FENCED
    assert scene.server.find_writes() == []


async def test_who_loses_the_lead_waits_for_no_claim(scene: Scene) -> None:
    async def lose(_seconds: float) -> None:
        scene.leads = False

    scene.binder._sleep = lose
    assert await scene.bind() is BindResult.FENCED
    assert scene.server.find_writes() == [CLAIM]


async def test_what_others_changed_meanwhile_is_not_overwritten(scene: Scene) -> None:
    claim = scene.server.objects[CLAIM]["metadata"]

    def change() -> None:
        claim["resourceVersion"] = "2"
        claim["annotations"] = {SELECTED: "b"}
        scene.server.before_write = lambda: None

    scene.server.before_write = change  # after the claim was read
    assert await scene.bind() is BindResult.DEFERRED
    assert claim["annotations"] == {SELECTED: "b"}


async def test_of_a_pod_that_is_given_up_while_its_claims_are_bound_all_is_taken_back(scene: Scene) -> None:
    async def abandon(_seconds: float) -> None:
        scene.binder.abandon("uid-pod")

    assert scene.binder.must_prepare("uid-pod")
    scene.binder._sleep = abandon
    assert await scene.binder.prepare("team", "uid-pod", "a") is BindResult.DEFERRED
    assert scene.server.find_writes() == [CLAIM, CLAIM]
    assert scene.server.objects[CLAIM]["metadata"]["annotations"] == {SELECTED: None}

    scene.binder._sleep = scene.sleep
    assert await scene.binder.prepare("team", "uid-pod", "a") is None, "and it may begin again"
    assert not scene.binder.must_prepare("uid-pod")


async def test_a_pod_without_unbound_claims_has_nothing_to_prepare_whenever_it_is_given_up(scene: Scene) -> None:
    scene.binder.abandon("uid-other")
    assert await scene.binder.prepare("team", "uid-other", "a") is None
    assert scene.binder._abandoned == set()
