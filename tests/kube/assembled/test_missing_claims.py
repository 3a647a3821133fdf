"""Pods whose claims are not there, or in use, take no turn from others, and have theirs as soon as that changes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from cluster.builders import Json, make_node
from cluster.devices import make_claim
from cluster.volumes import BOUND
from fairbind.kube.writers.nudge import PERMIT_CONDITION
from kube.assembled.faults import refuse
from kube.assembled.replicas import Scene, in_virtual_time, playing
from kube.assembled.test_claims import make_volume
from kube.assembled.test_devices import DEVICES
from kube.assembled.test_extender import SETTINGS, KubeScheduler, make_asking, scheduling
from kube.assembled.test_gates import GATES, find_events, is_open, make_gated, place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NAMED = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-0"}]}
OF_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]}
VOLUME = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def put_named(scene: Scene) -> None:
    scene.server.put("resourceclaims", make_claim("gpu-0", []))


def put_of_template(scene: Scene) -> None:
    put_named(scene)
    note_made(scene, "gpu-0")


def note_made(scene: Scene, claim: str | None) -> None:
    """Let the pod's status say which claim was made; None: none is necessary."""
    made = {"name": "gpu"} if claim is None else {"name": "gpu", "resourceClaimName": claim}
    scene.server.change("pods", "team/lacking", lambda pod: pod["status"].update(resourceClaimStatuses=[made]))


def put_volume(scene: Scene, mode: str = "ReadWriteOnce") -> None:
    scene.server.put("persistentvolumes", make_volume("disk", "n1"))
    bound = {"metadata": {"name": "data", "namespace": "team", "annotations": BOUND}, "status": {"phase": "Bound"}}
    scene.server.put("persistentvolumeclaims", {**bound, "spec": {"volumeName": "disk", "accessModes": [mode]}})


KINDS = [
    pytest.param(NAMED, put_named, 'resourceclaim "gpu-0" not found', id="claim"),
    pytest.param(OF_TEMPLATE, put_of_template, 'create the resourceclaim "gpu"', id="template"),
    pytest.param(VOLUME, put_volume, 'persistentvolumeclaim "data" not found', id="volume"),
]
MODES = pytest.mark.parametrize("asks", [False, True], ids=["gate", "extender"])


class Turns:
    """One of both modes, as far as turns are concerned. scheduler: who asks in extender mode; None: gate mode."""

    def __init__(self, scene: Scene, scheduler: KubeScheduler | None) -> None:
        self.scene = scene
        self.scheduler = scheduler
        self.asks = asks = scheduler is not None
        self.make_pod: Callable[..., Json] = make_asking if asks else make_gated

    async def pass_until_placed(self, name: str) -> None:
        key = f"team/{name}"
        if not self.asks:
            await self.scene.pass_until(lambda: is_open(self.scene, key))
            place(self.scene)
        await self.scene.pass_until_bound(key)

    def has_had_turn(self, name: str) -> bool:
        if not self.asks:
            return is_open(self.scene, f"team/{name}")
        conditions = self.scene.server.get("pods", f"team/{name}")["status"].get("conditions") or []
        return any(condition["type"] == PERMIT_CONDITION for condition in conditions)

    def find_words(self, name: str) -> str:
        """Return why a pod waits, as its user reads it."""
        if self.scheduler is not None:
            return self.scheduler.reasons.get(f"team/{name}", "")
        events = find_events(self.scene, "FailedScheduling")
        return " ".join(event["note"] for event in events if event["regarding"]["name"] == name)

    def count_on_their_way(self) -> int:
        operator = self.scene.leader.operator
        mode: Any = operator.parts.extender if self.asks else operator.parts.gates
        return len(mode.rules.gate_limiter)


@contextlib.asynccontextmanager
async def taking_turns(*, asks: bool, count: int = 1) -> AsyncIterator[Turns]:
    modes: dict[str, Any] = {"extender": SETTINGS} if asks else {"gates": GATES}
    async with playing(count, **modes) as scene, contextlib.AsyncExitStack() as stack:
        scene.server.put("nodes", make_node("n1", labels={"kubernetes.io/hostname": "n1"}))
        yield Turns(scene, await stack.enter_async_context(scheduling(scene)) if asks else None)


@MODES
@pytest.mark.parametrize(("spec", "put_claim", "reason"), KINDS)
@in_virtual_time
async def test_a_pod_waits_for_a_claim_that_is_not_there_and_takes_no_place_meanwhile(
    spec: Json, put_claim: Callable[[Scene], None], reason: str, *, asks: bool
) -> None:
    async with taking_turns(asks=asks) as turns:
        scene = turns.scene
        scene.server.put("pods", turns.make_pod("lacking", **spec))
        await scene.pass_until_leading()
        await scene.pass_until(lambda: reason in turns.find_words("lacking"))
        scene.server.put("pods", turns.make_pod("other"))
        await turns.pass_until_placed("other")
        await scene.pass_until(lambda: turns.count_on_their_way() == 0)
        assert asks or not is_open(scene, "team/lacking")
        assert scene.server.find_node("team/lacking") is None
        put_claim(scene)
        await turns.pass_until_placed("lacking")


@MODES
@in_virtual_time
async def test_a_claim_that_is_not_necessary_is_not_waited_for(*, asks: bool) -> None:
    async with taking_turns(asks=asks) as turns:
        turns.scene.server.put("pods", turns.make_pod("lacking", **OF_TEMPLATE))
        await turns.scene.pass_until_leading()
        note_made(turns.scene, None)
        await turns.pass_until_placed("lacking")


@MODES
@in_virtual_time
async def test_where_the_api_server_serves_no_claims_none_is_waited_for(*, asks: bool) -> None:
    async with taking_turns(asks=asks, count=0) as turns:
        scene = turns.scene
        scene.cause(refuse(404, DEVICES, message="the server could not find the requested resource"))
        scene.server.put("pods", turns.make_pod("lacking", **NAMED))
        scene.start()
        await scene.pass_until_leading()
        await turns.pass_until_placed("lacking")


@MODES
@in_virtual_time
async def test_of_pods_that_share_a_claim_for_one_pod_only_one_has_a_turn(*, asks: bool) -> None:
    """One cycle decides them all. After a failed binding kube-scheduler looks again at all pods that lack volumes."""
    async with taking_turns(asks=asks) as turns:
        scene = turns.scene
        put_volume(scene, "ReadWriteOncePod")
        names = [f"sharing{n}" for n in range(20)]
        scene.server.put("pods", *(turns.make_pod(name, **VOLUME) for name in names))
        await scene.pass_until_leading()
        await scene.pass_until(lambda: any(turns.has_had_turn(name) for name in names))
        (chosen,) = (name for name in names if turns.has_had_turn(name))
        await turns.pass_until_placed(chosen)
        await asyncio.sleep(5.0)
        assert [name for name in names if turns.has_had_turn(name)] == [chosen]
        assert turns.count_on_their_way() == 0
        if turns.scheduler is not None:
            assert turns.scheduler.failed == []
