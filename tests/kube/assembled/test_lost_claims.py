"""Pods that wait for claims: what happens when their node goes, and when the claims are never bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.cluster.state.volume_plans import MOST_PLANS
from fairbind.kube.writers.claim_binder import CLAIM_SECONDS
from kube.assembled.replicas import Scene, in_virtual_time
from kube.assembled.test_claims import (
    SELECTED,
    add_class,
    claiming,
    find_nominated,
    find_selected,
    is_told,
    make_claim,
    make_volume,
    providing,
)
from kube.assembled.test_conditions import MODES, OTHER

AT_ONCE = 4.0
"""Seconds: two looks at the claims, and two at the nominations."""
HOST = "kubernetes.io/hostname"


def find_message(scene: Scene, key: str = "team/p") -> Json:
    conditions = scene.server.get("pods", key)["status"].get("conditions", ())
    return next((it for it in conditions if it["type"] == "PodScheduled"), {})


def put_claiming(scene: Scene, namespace: str, *names: str) -> list[str]:
    """Put pods with a claim each; return their keys."""
    for name in names:
        claim, pod = make_claim(name), claiming(f"p-{name}", name)
        claim["metadata"]["namespace"] = namespace
        pod["metadata"] |= {"namespace": namespace, "uid": f"{namespace}-{name}"}
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m"}}
        scene.server.put("persistentvolumeclaims", claim)
        scene.server.put("pods", pod)
    return [f"{namespace}/p-{name}" for name in names]


def put_large_node(scene: Scene) -> None:
    free = {"cpu": "1000", "memory": "1Ti", "pods": "2000"}
    scene.server.put("nodes", make_node("large", allocatable=free, labels={HOST: "large"}))


LOSSES: dict[str, Callable[[Scene, str], object]] = {
    "gone": lambda scene, node: scene.server.delete("nodes", node),
    "cordoned": lambda scene, node: scene.server.change(
        "nodes", node, lambda it: it["spec"].update(unschedulable=True)
    ),
    "tainted": lambda scene, node: scene.server.change(
        "nodes", node, lambda it: it["spec"].update(taints=[{"key": "out", "effect": "NoSchedule"}])
    ),
    "with another label": lambda scene, node: scene.server.change(
        "nodes", node, lambda it: it["metadata"]["labels"].pop("disk")
    ),
    "full": lambda scene, node: scene.server.put(
        "pods", make_pod("large", node=node, scheduler=OTHER, requests={"cpu": "4"})
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES)
@in_virtual_time
async def test_a_pod_that_loses_its_node_while_a_volume_is_made_goes_to_another_at_once(loss: str, mode: str) -> None:
    async with providing(**MODES[mode]) as (scene, controllers):
        controllers.is_away = True
        for name in ("n1", "n2"):
            scene.server.change("nodes", name, lambda it: it["metadata"]["labels"].update(disk="fast"))
        scene.server.put("persistentvolumeclaims", make_claim())
        pod = claiming()
        pod["spec"]["nodeSelector"] = {"disk": "fast"}
        scene.server.put("pods", pod)
        await scene.pass_until(lambda: find_nominated(scene.server) is not None)
        first = find_nominated(scene.server)
        assert first is not None
        assert find_selected(scene.server) == first
        (other,) = {"n1", "n2"} - {first}
        LOSSES[loss](scene, first)
        await scene.pass_until(lambda: find_selected(scene.server) == other, AT_ONCE)
        await scene.pass_until(lambda: find_nominated(scene.server) == other, AT_ONCE)
        controllers.is_away = False
        await scene.pass_until_bound("team/p")
        assert scene.server.find_node("team/p") == other


@in_virtual_time
async def test_a_pod_whose_only_node_goes_holds_nothing_and_is_nominated_nowhere() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        scene.server.delete("nodes", "n2")
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_nominated(scene.server) == "n1")
        scene.server.delete("nodes", "n1")
        await scene.pass_until(lambda: find_nominated(scene.server) is None, AT_ONCE)
        assert find_selected(scene.server) is None
        tenants = scene.leader.observer.tenants
        await scene.pass_until(lambda: "ns/team" in tenants and tenants["ns/team"].running == 0, AT_ONCE)
        scene.server.put("nodes", make_node("n3", labels={HOST: "n3"}))
        controllers.is_away = False
        await scene.pass_until_bound("team/p")


@in_virtual_time
async def test_a_volume_that_was_given_on_a_node_that_goes_is_free_again() -> None:
    async with providing() as (scene, controllers):
        controllers.is_away = True
        add_class(scene.server, "kubernetes.io/no-provisioner")
        scene.server.put("persistentvolumes", make_volume("local", "n2"))
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_nominated(scene.server) == "n2")
        scene.server.delete("nodes", "n2")
        await scene.pass_until(
            lambda: "claimRef" not in scene.server.get("persistentvolumes", "local")["spec"], AT_ONCE
        )


@in_virtual_time
async def test_the_next_leader_frees_a_claim_of_a_node_that_went_meanwhile() -> None:
    async with providing(replicas=2) as (scene, controllers):
        controllers.is_away = True
        scene.server.put("persistentvolumeclaims", make_claim())
        scene.server.put("pods", claiming())
        await scene.pass_until(lambda: find_nominated(scene.server) is not None)
        before, node = scene.leader, find_nominated(scene.server)
        assert node is not None
        before.kill()
        scene.server.delete("nodes", node)
        await scene.pass_until_leading(other_than=before)
        await scene.pass_until(lambda: find_selected(scene.server) not in {None, node})
        controllers.is_away = False
        await scene.pass_until_bound("team/p")


@in_virtual_time
async def test_a_claim_that_others_use_too_is_left_to_them_and_its_pod_is_told() -> None:
    """No further node could help, so the reason is not the one for which autoscalers add nodes."""
    async with providing() as (scene, controllers):
        controllers.is_away = True
        claim, shared = make_claim(), claiming("theirs")
        claim["metadata"]["annotations"] = {SELECTED: "gone"}
        shared["spec"]["schedulerName"] = OTHER
        scene.server.put("persistentvolumeclaims", claim)
        scene.server.put("pods", shared, claiming())
        await scene.pass_until(lambda: find_message(scene))
        condition = find_message(scene)
        assert condition["reason"] == "ClaimNotReady"
        words = 'persistentvolumeclaim "claim" waits for a volume on node "gone", which does not exist'
        assert condition["message"] == f"0/2 nodes are available: {words}."
        await asyncio.sleep(10.0)
        assert find_selected(scene.server) == "gone"
        assert scene.server.find_requests("/claim", "PATCH") == []


@pytest.mark.slow
@pytest.mark.parametrize("tenants", [1, 20])
@in_virtual_time
async def test_claims_that_are_never_bound_delay_no_other_tenants(tenants: int) -> None:
    """Of one tenant with many namespaces, or of many tenants: more pods than there are places for bindings."""
    async with providing() as (scene, controllers):
        put_large_node(scene)
        bad = [f"bad-{number}" for number in range(20)]
        controllers.ignores = set(bad)
        scene.server.put("namespaces", *(make_namespace(name) for name in (*bad, "good")))
        if tenants == 1:
            scene.server.put("tenants", {"metadata": {"name": "bad"}, "spec": {"namespaces": bad, "weight": 1}})
        hung = [key for name in bad for key in put_claiming(scene, name, *(f"c{n}" for n in range(MOST_PLANS + 4)))]
        await asyncio.sleep(10.0)
        waits = []
        for number in range(20):
            began = scene.now
            keys = put_claiming(scene, "good", *(f"c{number}-{n}" for n in range(4)))
            waits.append(await scene.pass_until_bound(*keys, patience=5.0) - began)
        assert max(waits) <= 2.0, waits
        planned = [
            claim
            for claim in scene.server.kinds["persistentvolumeclaims"].objects.values()
            if claim["metadata"]["namespace"] in controllers.ignores and claim["metadata"].get("annotations")
        ]
        assert len(planned) == tenants * MOST_PLANS
        controllers.ignores = set()
        await scene.pass_until_bound(*hung, patience=120.0)


@in_virtual_time
async def test_claims_that_cannot_be_bound_delay_no_other_pods_of_their_namespace() -> None:
    """The claims rest, each longer after each failure, and not the namespace."""
    async with providing() as (scene, controllers):
        put_large_node(scene)
        controllers.fails_on = {"large", "n1", "n2"}
        keys = put_claiming(scene, "team", *(f"c{n}" for n in range(20)))
        await asyncio.sleep(30.0)
        for number in range(10):
            began = scene.now
            scene.server.put("pods", make_pod(f"plain-{number}", requests={"cpu": "10m"}))
            assert await scene.pass_until_bound(f"team/plain-{number}", patience=5.0) - began < 0.5
        asked = len(controllers.asked)
        assert is_told(scene, "no volume could be made for the persistentvolumeclaim")
        await asyncio.sleep(60.0)
        assert len(controllers.asked) - asked <= 2 * len(keys)
        controllers.fails_on = set()
        await scene.pass_until_bound(*keys, patience=300.0)


@in_virtual_time
async def test_claims_that_are_never_bound_take_turns_with_others_of_their_tenant() -> None:
    async with providing() as (scene, controllers):
        put_large_node(scene)
        controllers.ignores = {"team"}
        scene.server.put(
            "tenants", {"metadata": {"name": "both"}, "spec": {"namespaces": ["team", "fine"], "weight": 1}}
        )
        put_claiming(scene, "team", *(f"c{n}" for n in range(MOST_PLANS)))
        plans = scene.leader.operator.parts.cache.state.volumes.plans
        await scene.pass_until(lambda: len(plans.by_uid) == MOST_PLANS)
        (key,) = put_claiming(scene, "fine", "c")
        await asyncio.sleep(CLAIM_SECONDS / 2)
        assert "of other pods of its tenant" in find_message(scene, key)["message"]
        await scene.pass_until_bound(key, patience=CLAIM_SECONDS)


@in_virtual_time
async def test_a_claim_that_cannot_be_bound_rests_also_when_its_pod_is_made_again() -> None:
    async with providing() as (scene, controllers):
        controllers.fails_on = {"n1", "n2"}
        scene.server.put("persistentvolumeclaims", make_claim())
        for number in range(60):
            pod = claiming(f"p-{number}")
            scene.server.put("pods", pod)
            await asyncio.sleep(1.0)
            scene.server.delete("pods", f"team/p-{number}")
        assert 4 <= len(controllers.asked) <= 8, "after 1, 2, 4, 8, 16 and 32 seconds"
        scene.server.put("pods", claiming())
        controllers.fails_on = set()
        await scene.pass_until_bound("team/p", patience=60.0)
