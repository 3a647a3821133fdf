"""Devices that pods hold through claims, and API servers that know no devices."""

from __future__ import annotations

from cluster.builders import make_node, make_pod
from cluster.devices import IMPLICIT, make_claim, make_slice
from fairbind.kube.client.reflector import ABSENT_SECONDS
from kube.assembled.faults import refuse
from kube.assembled.replicas import Replica, Scene, in_virtual_time, playing

DEVICES = "/apis/resource.k8s.io/"


def put_held_device(scene: Scene) -> None:
    scene.server.put("resourceslices", make_slice("s", 4, node="n1", pool="n1"))
    scene.server.put("resourceclaims", make_claim("claim", ["gpu-0"], ["uid-holds"], pool="n1"))
    scene.server.put("pods", make_pod("holds", node="n1", scheduler="default-scheduler"))


def find_share(replica: Replica) -> float:
    tenant = replica.observer.tenants.get("ns/team") if replica.observer.overview is not None else None
    return tenant.dominant_share if tenant is not None and tenant.dominant_resource == IMPLICIT else 0.0


@in_virtual_time
async def test_what_pods_hold_through_claims_counts_as_long_as_the_claim_says_so() -> None:
    async with playing() as scene:
        scene.server.put("nodes", make_node("n1"))
        leader = await scene.pass_until_leading()
        put_held_device(scene)
        await scene.pass_until(lambda: find_share(leader) == 1 / 4)
        scene.server.delete("resourceclaims", "team/claim")
        await scene.pass_until(lambda: find_share(leader) == 0.0)


@in_virtual_time
async def test_an_api_server_without_devices_is_asked_seldom_and_everything_works() -> None:
    async with playing(0) as scene:
        scene.cause(refuse(404, DEVICES, message="the server could not find the requested resource", until=200.0))
        scene.server.put("nodes", make_node("n1"))
        replica = scene.start()
        put_held_device(scene)
        scene.server.put("pods", make_pod("first"))
        assert await scene.pass_until_bound("team/first") < 10.0
        await scene.pass_until(lambda: scene.now > 180.0, patience=200.0)
        assert replica.health.find_unready() is None
        scene.server.put("pods", make_pod("later"))
        await scene.pass_until_bound("team/later")
        asked = [request for request in scene.server.requests if request.path.startswith(DEVICES)]
        assert len(asked) <= 3 * (2 * 200.0 / ABSENT_SECONDS + 2)

        await scene.pass_until(lambda: find_share(replica) == 1 / 4, patience=60.0)
        scene.cause(refuse(404, DEVICES, message="the server could not find the requested resource"))
        scene.server.break_watches()
        await scene.pass_until(
            lambda: find_share(replica) == 0.0 and replica.health.find_unready() is None, patience=60.0
        )
