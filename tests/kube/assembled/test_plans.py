"""Pods of one plan of which some have claims: the claims of all are bound before the first pod is."""

from __future__ import annotations

import asyncio

import pytest

from cluster.builders import make_pod
from fairbind.kube.operator import compose
from kube.assembled.replicas import Scene, in_virtual_time
from kube.assembled.test_claims import claiming, find_selected, make_claim, providing
from what_if.torn import JoiningDecider

PODS = [f"team/{name}" for name in ("p", "q", "r")]


@pytest.fixture(autouse=True)
def _one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "Decider", JoiningDecider)


def put_pods(scene: Scene) -> None:
    scene.server.put("persistentvolumeclaims", make_claim())
    plain = [make_pod(name.removeprefix("team/"), requests={"cpu": "1"}) for name in PODS[1:]]
    scene.server.put("pods", claiming(), *plain)


def find_nodes(scene: Scene) -> list[str | None]:
    return [scene.server.find_node(name) for name in PODS]


@in_virtual_time
async def test_no_pod_is_bound_before_the_claims_of_all() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        put_pods(scene)
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        await asyncio.sleep(30.0)
        assert find_nodes(scene) == [None] * 3

        scene.server.put("pods", make_pod("other", requests={"cpu": "100m"}))
        await scene.pass_until_bound("team/other")
        controllers.is_away = False
        await scene.pass_until_bound(*PODS)


@in_virtual_time
async def test_where_no_volume_can_be_made_no_pod_is_bound_and_all_are_decided_again() -> None:
    async with providing() as (scene, controllers):
        controllers.fails_on = {"n1", "n2"}
        put_pods(scene)
        await scene.pass_until(lambda: bool(controllers.asked))
        assert find_nodes(scene) == [None] * 3
        await scene.pass_until_bound(*PODS[1:])  # each for itself
        controllers.fails_on = set()
        await scene.pass_until_bound(*PODS)


@in_virtual_time
async def test_where_a_node_goes_while_a_volume_is_made_all_are_decided_again() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        put_pods(scene)
        await scene.pass_until(lambda: find_selected(scene.server) is not None)
        node = find_selected(scene.server)
        assert node is not None
        scene.server.delete("nodes", node)
        await scene.pass_until(lambda: find_selected(scene.server) not in {None, node})
        controllers.is_away = False
        await scene.pass_until_bound(*PODS)
        assert node not in find_nodes(scene)
