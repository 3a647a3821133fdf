"""Gate mode, assembled: random worlds in which the other scheduler refuses what fairbind lets through.

It refuses some pods everywhere, as a plugin would, and one node altogether, as a taint after the fact does. What it
does not refuse has a node in the end, and no later than the time-outs of the rest take.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from cluster.builders import make_namespace, make_node
from fairbind.cluster.other_schedulers.gate_limiter import STUCK_SECONDS, TIMEOUT_SECONDS
from fairbind.kube.operator.gates import GateSettings
from kube.assembled.other_scheduler import OtherScheduler
from kube.assembled.replicas import Scene, in_virtual_time, judging
from kube.assembled.test_gates import OTHER, find_events, make_gated, put_tenants
from seeds import draw_seeds

CORES = 8
SEEDS = [pytest.param(seed, marks=[pytest.mark.nightly] if n >= 4 else []) for n, seed in enumerate(draw_seeds(60))]


class World:
    """What one seed makes. pods: by key, with their cores. refused: their keys. blocked: the node that is refused."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.nodes = [f"n{n}" for n in range(dice.randint(2, 4))]
        self.blocked = dice.choice(["", *self.nodes])
        self.tenants = {f"team{n}": dice.randint(1, 3) for n in range(dice.randint(2, 3))}
        self.unlucky = dice.choice(["", *self.tenants])
        self.most = dice.randint(1, 4)
        self.scale_ups = dice.choice([0, 2])
        self.pods: dict[str, int] = {}
        self.refused: set[str] = set()
        left = {node: CORES for node in self.nodes if node != self.blocked}
        for number in range(40):
            tenant, cores = dice.choice(list(self.tenants)), dice.randint(1, 2)
            key = f"{tenant}/p{number}"
            if tenant == self.unlucky or dice.random() < 0.2:
                self.refused.add(key)
            else:
                node = max(left, key=lambda name: left[name])
                if left[node] < 2 + cores:  # some is left on each node, so that each pod fits whatever went where
                    continue
                left[node] -= cores
            self.pods[key] = cores
        self.refused &= self.pods.keys()

    def refuses(self, key: str, node: str) -> bool:
        return key in self.refused or node == self.blocked

    def put(self, scene: Scene) -> None:
        scene.server.put("namespaces", *(make_namespace(name) for name in self.tenants))
        put_tenants(scene, **self.tenants)
        allocatable = {"cpu": str(CORES), "memory": "99Gi", "pods": "99"}
        scene.server.put("nodes", *(make_node(name, allocatable=allocatable) for name in self.nodes))
        for key, cores in self.pods.items():
            namespace, _, name = key.partition("/")
            scene.server.put("pods", make_gated(name, namespace=namespace, requests={"cpu": str(cores)}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@in_virtual_time
async def test_what_the_other_scheduler_refuses_stops_nothing_else_for_long(seed: int) -> None:
    world = World(seed)
    scene = Scene(seed, solves=False, gates=GateSettings(OTHER, most=world.most, most_scale_ups=world.scale_ups))
    async with judging(scene):
        world.put(scene)
        scene.start()
        await scene.pass_until_leading()
        scheduler = OtherScheduler(scene, per_second=10.0, latency_seconds=0.5, refuses=world.refuses)
        running = asyncio.get_running_loop().create_task(scheduler.run())
        try:
            wanted = world.pods.keys() - world.refused
            rounds = len(world.pods) / world.most + len(world.pods)  # each may take a place for its time, and be alone
            await scene.pass_until(
                lambda: all(scene.server.find_node(key) for key in wanted),
                patience=rounds * (TIMEOUT_SECONDS + STUCK_SECONDS),
                step=0.5,
            )
            assert not any(scene.server.find_node(key) for key in world.refused)
            assert len(find_events(scene, "NotPlacedInTime")) <= len(world.pods)
            scene.leader.operator.parts.cache.check_consistent()
        finally:
            running.cancel()
