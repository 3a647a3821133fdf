"""Gate mode, assembled: shares in an overloaded cluster, and how many gates are open when it is full.

Requests that open gates fail, hang or lose their answer, and the lease is lost meanwhile. When the nodes are full and
all tenants still wait, the shares are those of a quiet cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from cluster.builders import make_namespace, make_node
from fairbind.cluster.objects.facts import HOSTNAME
from fairbind.kube.operator.gates import GateSettings
from kube.assembled.faults import LEASES, Fault, delay, ignore, lose_answer
from kube.assembled.other_scheduler import OtherScheduler
from kube.assembled.replicas import Scene, in_virtual_time, judging
from kube.assembled.test_gates import OTHER, count_by_namespace, make_gated, put_tenants

WEIGHTS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
PATCHES = r"/pods/p\d+$"
CORES = 30
TOLERANCE = 2

MakeFaults = Callable[[random.Random, float], list[Fault]]


def make_slow(dice: random.Random, _: float) -> list[Fault]:
    """Seven in ten requests take long, and some of them too long."""
    return [delay(seconds, PATCHES, chance=0.26, dice=dice) for seconds in (0.8, 1.6, 2.6, 4.0)]


def lose_leases(_: random.Random, now: float) -> list[Fault]:
    """The lease is out of reach for nine seconds of each twenty."""
    return [ignore(LEASES, since=now + 20 * n + 5, until=now + 20 * n + 14) for n in range(10)]


TROUBLES: dict[str, MakeFaults] = {
    "most requests are lost on their way": lambda dice, _: [lose_answer(PATCHES, happens=False, chance=0.8, dice=dice)],
    "most answers are lost": lambda dice, _: [lose_answer(PATCHES, chance=0.8, dice=dice)],
    "most requests take long": make_slow,
    "the answers about one tenant's pods never come": lambda _, now: [
        ignore("/three/pods/", method="PATCH", happens=True, until=now + 20.0)
    ],
    "the requests about one tenant's pods are lost for a while": lambda _, now: [
        ignore("/three/pods/", method="PATCH", until=now + 2.0)
    ],
    "requests take long, and the lease is lost": lambda dice, now: [*make_slow(dice, now), *lose_leases(dice, now)],
}


@contextlib.asynccontextmanager
async def filling(
    nodes: int | Sequence[int],
    backlog: int,
    trouble: MakeFaults | None,
    *,
    lag_seconds: float = 0.0,
    seed: int = 0,
    policy: str = "best-fit-drfh",
) -> AsyncIterator[tuple[Scene, OtherScheduler]]:
    """A cluster whose nodes fill, with so many pods of each tenant that some are left.

    nodes: how many of `CORES`, or the cores of each.
    """
    cores_of = [CORES] * nodes if isinstance(nodes, int) else nodes
    scene = Scene(seed, solves=False, gates=GateSettings(OTHER))
    async with judging(scene):
        scene.server.put("namespaces", *(make_namespace(name) for name in WEIGHTS))
        put_tenants(scene, **WEIGHTS)
        scene.server.put("schedulingpolicies", {"metadata": {"name": "default"}, "spec": {"policy": policy}})
        for n, cores in enumerate(cores_of):
            allocatable = {"cpu": str(cores), "memory": "999Gi", "pods": "999"}
            scene.server.put("nodes", make_node(f"n{n}", allocatable=allocatable, labels={HOSTNAME: f"n{n}"}))
        scene.server.put("pods", *(make_gated(f"p{n}", namespace=name) for name in WEIGHTS for n in range(backlog)))
        for _ in range(2):
            scene.start().connection.lag_seconds = lag_seconds
        await scene.pass_until_leading()
        if trouble is not None:
            scene.cause(*trouble(random.Random(seed), scene.now))
        scheduler = OtherScheduler(scene, per_second=60.0, latency_seconds=0.2)
        running = asyncio.get_running_loop().create_task(scheduler.run())
        try:
            yield scene, scheduler
        finally:
            running.cancel()


async def fill(
    playing: contextlib.AbstractAsyncContextManager[tuple[Scene, OtherScheduler]],
) -> tuple[Counter[str], Counter[str]]:
    """Return how many pods of each tenant have a node when all are full, and how many have an open gate."""
    async with playing as (scene, scheduler):
        await scene.pass_until(lambda: not scheduler.left, patience=600.0, step=0.5)
        return count_by_namespace(scene), count_by_namespace(scene, opened=True)


def check_shares(counts: Counter[str]) -> None:
    for name, weight in WEIGHTS.items():
        fair = counts.total() * weight / sum(WEIGHTS.values())
        assert abs(counts[name] - fair) <= TOLERANCE, counts


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES)
@in_virtual_time
async def test_in_an_overloaded_cluster_shares_come_out_by_weights(name: str) -> None:
    bound, _ = await fill(filling(10, 140, TROUBLES[name]))
    check_shares(bound)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lag_seconds", [0.0, 3.0])
@pytest.mark.parametrize("name", TROUBLES)
@in_virtual_time
async def test_of_two_thousand_pods_shares_come_out_by_weights(name: str, lag_seconds: float, seed: int) -> None:
    bound, _ = await fill(filling(30, 400, TROUBLES[name], lag_seconds=lag_seconds, seed=seed))
    check_shares(bound)


@in_virtual_time
async def test_no_more_gates_are_open_than_the_nodes_can_hold_where_pods_go_elsewhere_than_was_decided() -> None:
    """Best fit fills one node after the other, and the other scheduler spreads pods over all of them."""
    bound, opened = await fill(filling(10, 140, None))
    assert opened == bound == {name: 20 * weight for name, weight in WEIGHTS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
@in_virtual_time
async def test_by_server_class_too_while_requests_that_open_gates_take_long(seed: int) -> None:
    """What comes to another node of its class takes the place of a pod whose gate is still being opened."""
    bound, opened = await fill(filling([30, 30, 20, 40] * 2, 140, make_slow, seed=seed, policy="ps-dsf"))
    assert opened == bound
    check_shares(bound)
