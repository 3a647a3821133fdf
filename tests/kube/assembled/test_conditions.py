"""The conditions of waiting pods say of which generation of the pod they are, in every mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.kube.operator.extender import ExtenderSettings
from fairbind.kube.operator.gates import GateSettings
from fairbind.kube.writers.nudge import PERMIT_CONDITION
from kube.assembled.replicas import Scene, in_virtual_time, playing

OTHER = "default-scheduler"
MODES: dict[str, dict[str, Any]] = {
    "bind": {},
    "gate": {"gates": GateSettings(OTHER)},
    "extender": {"extender": ExtenderSettings(frozenset({OTHER}))},
}


def find_observed(scene: Scene, kind: str) -> int | None:
    conditions = scene.server.get("pods", "team/p")["status"].get("conditions", ())
    return next((it.get("observedGeneration", 0) for it in conditions if it["type"] == kind), None)


def find_message(scene: Scene) -> str:
    conditions = scene.server.get("pods", "team/p")["status"].get("conditions", ())
    return next((str(it["message"]) for it in conditions if it["type"] == "PodScheduled"), "")


def tolerate(pod: Json) -> None:
    """Change the spec as a user may."""
    pod["spec"]["tolerations"] = [{"key": "other", "operator": "Exists"}]
    pod["metadata"]["generation"] += 1


@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_a_condition_follows_the_generation_of_its_pod(mode: str) -> None:
    async with playing(**MODES[mode]) as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.server.put("pods", make_pod("p", requests={"cpu": "100"}))
        await scene.pass_until(lambda: find_observed(scene, "PodScheduled") == 1)
        scene.server.change("pods", "team/p", tolerate)
        await scene.pass_until(lambda: find_observed(scene, "PodScheduled") == 2)


@pytest.mark.parametrize(
    ("shows", "said"),
    [(False, "2 node(s) had untolerated taint(s)"), (True, "1 node(s) had untolerated taint {pool: a}")],
)
@pytest.mark.parametrize("mode", MODES)
@in_virtual_time
async def test_taints_are_named_only_where_they_are_to_be_shown(mode: str, shows: bool, said: str) -> None:  # noqa: FBT001 - a parameter
    async with playing(**MODES[mode], shows_taints=shows) as scene:
        for name in "ab":
            scene.server.put("nodes", make_node(name, taints=[{"key": "pool", "value": name, "effect": "NoSchedule"}]))
        await scene.pass_until_leading()
        scene.server.put("pods", make_pod("p", requests={"cpu": "1"}))
        await scene.pass_until(lambda: said in find_message(scene))
        await asyncio.sleep(10.0)
        events = scene.server.kinds["events"].objects.values()
        assert said in find_message(scene)
        assert ("pool" in str([find_message(scene), *events])) is shows


@in_virtual_time
async def test_what_wakes_a_pod_says_of_which_generation_it_is() -> None:
    async with playing(**MODES["extender"]) as scene:
        scene.server.put("nodes", make_node("n1"))
        await scene.pass_until_leading()
        scene.server.put("pods", make_pod("p", scheduler=OTHER))
        await scene.pass_until(lambda: find_observed(scene, PERMIT_CONDITION) == 1)
