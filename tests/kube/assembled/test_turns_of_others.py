"""One tenant takes all turns that it can, and its scheduler says nothing about its pods; others wait hardly longer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import pytest

from cluster.builders import make_namespace, make_node, make_pod
from fairbind.cluster.loop.pacing import COALESCE_SECONDS
from fairbind.cluster.other_schedulers.places import FLOW_SECONDS
from kube.assembled.other_scheduler import OtherScheduler
from kube.assembled.replicas import Scene, in_virtual_time, judging, playing
from kube.assembled.test_extender import SETTINGS, KubeScheduler, make_asking
from kube.assembled.test_gates import GATES, make_gated, put_tenants

SECONDS = 60
NODE = {"cpu": "64", "memory": "256Gi", "pods": "110"}


def is_bad(key: str) -> bool:
    """Whether kube-scheduler says nothing about a pod, as about those that it keeps out of its queue."""
    return key.startswith("greedy/bad")


def prepare(scene: Scene, backlog: int, *, asks: bool) -> None:
    """Put three tenants, of which the greedy one comes first, and its backlog."""
    scene.server.put("namespaces", *(make_namespace(name) for name in ("greedy", "other", "own")))
    put_tenants(scene, greedy=1, other=1, own=1)
    scene.server.put("nodes", *(make_node(f"n{n}", allocatable=NODE) for n in range(10)))
    for name in ("other", "own"):
        running = (f"{name}-old{n}" for n in range(60))
        scene.server.put(
            "pods",
            *(
                make_pod(
                    key, namespace=name, uid=f"uid-{key}", node=f"n{n % 10}", phase="Running", requests={"cpu": "1"}
                )
                for n, key in enumerate(running)
            ),
        )
    make = make_asking if asks else make_gated
    bad = (make(f"bad{n}", namespace="greedy", requests={"cpu": "10m"}) for n in range(backlog))
    scene.server.put("pods", *bad)


async def measure(backlog: int, *, asks: bool) -> dict[str, float]:
    """Return how long the slowest but one in a hundred of the others' pods waited, by tenant."""
    scene = Scene(0, solves=False, extender=SETTINGS) if asks else Scene(0, solves=False, gates=GATES)
    async with judging(scene):
        prepare(scene, backlog, asks=asks)
        scene.start()
        await scene.pass_until_leading()
        scheduler = (
            KubeScheduler(scene, ignores=is_bad)
            if asks
            else OtherScheduler(scene, per_second=100.0, latency_seconds=0.2, ignores=is_bad)
        )
        running = asyncio.get_running_loop().create_task(scheduler.run())
        await asyncio.sleep(2.0)
        born: dict[str, float] = {}
        waits: dict[str, list[float]] = {"other": [], "own": []}
        make = make_asking if asks else make_gated
        for n in range(SECONDS):
            scene.server.put("pods", make(f"new{n}", namespace="other", requests={"cpu": "100m"}))
            scene.server.put("pods", make_pod(f"own{n}", namespace="own", uid=f"uid-own{n}", requests={"cpu": "100m"}))
            born |= {f"other/new{n}": scene.now, f"own/own{n}": scene.now}
            for _ in range(10):
                await asyncio.sleep(0.1)
                for key in [key for key in born if scene.server.find_node(key)]:
                    waits[key.partition("/")[0]].append(scene.now - born.pop(key))
        for key, since in born.items():
            waits[key.partition("/")[0]].append(scene.now - since)
        running.cancel()
        return {name: sorted(each)[int(0.99 * len(each)) - 1] for name, each in waits.items()}


@pytest.mark.parametrize("asks", [False, True], ids=["gate", "extender"])
@in_virtual_time
async def test_a_tenant_whose_pods_are_never_placed_at_most_doubles_the_wait_of_others(*, asks: bool) -> None:
    quiet, busy = await measure(0, asks=asks), await measure(600, asks=asks)
    for name, seconds in quiet.items():
        assert busy[name] <= 2 * seconds, (quiet, busy)


@pytest.mark.parametrize("asks", [False, True], ids=["gate", "extender"])
@in_virtual_time
async def test_pods_that_fairbind_binds_wait_for_no_place(*, asks: bool) -> None:
    modes: dict[str, Any] = {"extender": replace(SETTINGS, most=1)} if asks else {"gates": replace(GATES, most=1)}
    async with playing(**modes) as scene:
        scene.server.put("nodes", make_node("n0", allocatable=NODE))
        scene.server.put("pods", (make_asking if asks else make_gated)("silent"))
        operator = (await scene.pass_until_leading()).operator
        mode: Any = operator.parts.extender if asks else operator.parts.gates
        await scene.pass_until(lambda: mode.rules.gate_limiter.free == 0)
        scene.server.put("pods", make_pod("own"))
        await scene.pass_until_bound("team/own")
        assert mode.rules.gate_limiter.free == 0, "the other one still has the place"


@pytest.mark.parametrize("asks", [False, True], ids=["gate", "extender"])
@in_virtual_time
async def test_a_pod_that_comes_amid_a_round_gets_its_place_at_once(*, asks: bool) -> None:
    """The greedy tenant has all places that it may, is next, and had them just now."""
    mode: Any = {"extender": SETTINGS} if asks else {"gates": GATES}
    async with playing(solves=False, **mode) as scene:
        operator = (await scene.pass_until_leading()).operator
        prepare(scene, 600, asks=asks)
        part: Any = operator.parts.extender if asks else operator.parts.gates
        gate_limiter, make = part.rules.gate_limiter, make_asking if asks else make_gated
        await scene.pass_until(lambda: not gate_limiter.lets_in("greedy"))
        for name in ("other", "own"):  # the first of them begins the round, and the second comes amid it
            scene.server.put("pods", make("new", namespace=name, requests={"cpu": "100m"}))
            put_at = scene.now
            await scene.pass_until(lambda: gate_limiter.round_ends_at < inf)
            await scene.pass_until(partial(gate_limiter.__contains__, f"uid-{name}-new"))
            assert scene.now - put_at <= 3 * COALESCE_SECONDS < FLOW_SECONDS / 4
