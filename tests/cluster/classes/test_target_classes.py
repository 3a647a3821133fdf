"""What tenants hold on each class of the targets: the sum of what they hold on its nodes, and never another."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from cluster.builders import Cluster, make_node, make_pod, read_pod
from fairbind.model import PolicySettings, Snapshot, Targets

LARGE, SMALL = ({"cpu": cpu, "memory": "64Gi", "pods": "110"} for cpu in ("32", "8"))


def aim(**class_of: int) -> Targets:
    shares = dict.fromkeys(("ns/a", "ns/b"), (0.5, 0.5))
    by_class = dict.fromkeys(shares, (0.25, 0.25))
    return Targets("tsf", ("cpu", "memory"), shares, ("n0", "n2"), class_of, by_class)


def check(snapshot: Snapshot) -> None:
    targets, classes = snapshot.targets, snapshot.target_classes
    assert targets is not None
    assert classes is not None
    assert classes.targets is targets
    index = dict(zip(snapshot.servers.names, classes.class_k.tolist(), strict=True))
    assert index == {name: targets.class_of.get(name, 2) for name in snapshot.servers.names}
    counted_kr = np.where(snapshot.servers.accepting_k[:, None], snapshot.servers.capacity_kr, 0)
    for place, amount_r in enumerate(classes.capacity_pr):
        assert amount_r == tuple(counted_kr[classes.class_k == place].sum(axis=0).tolist())
    for tenant in snapshot.tenants:
        expected = np.zeros((3, len(snapshot.resources)), dtype=np.int64)
        for server, amount_r in tenant.allocated_by_server.items():
            expected[targets.class_of.get(server, 2)] += np.array(amount_r, dtype=np.int64)
        assert tenant.allocated_by_class == tuple(map(tuple, expected.tolist()))


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_is_held_on_the_nodes_of_each_class(seed: int) -> None:
    draw, cluster = Random(seed), Cluster()
    cache = cluster.cache
    cache.set_policy(PolicySettings("tsf"))  # which is told node by node, too
    cluster.add_nodes(*(make_node(f"n{n}", allocatable=LARGE if n < 2 else SMALL) for n in range(4)))
    pods: dict[str, dict[str, Any]] = {}
    cache.set_targets(aim(n0=0, n1=0, n2=1, n3=1))
    for step in range(60):
        if pods and draw.random() < 0.4:
            cache.pods.delete(read_pod(pods.pop(draw.choice(sorted(pods)))))
        else:
            requests = {"cpu": f"{draw.randrange(100, 900)}m", "memory": "1Gi"}
            node = f"n{draw.randrange(4)}"
            pods[f"p{step}"] = make_pod(
                f"p{step}", namespace=draw.choice("ab"), requests=requests, node=node, phase="Running"
            )
            cache.pods.apply(read_pod(pods[f"p{step}"]))
        if step == 20:
            cluster.add_nodes(make_node("n4", allocatable=SMALL))
        if step == 40:
            cache.set_targets(aim(n0=0, n1=1, n2=1, n4=0))
        check(cache.build_snapshot())


def test_without_guiding_nothing_is_told_by_class() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("n0", allocatable=LARGE), make_node("n2", allocatable=SMALL))
    cluster.cache.pods.apply(read_pod(make_pod("p", namespace="a", node="n0", phase="Running")))
    cluster.cache.set_targets(aim(n0=0, n2=1))
    cluster.cache.set_policy(PolicySettings("tsf", guided=False))
    snapshot = cluster.cache.build_snapshot()

    assert snapshot.targets is None
    assert snapshot.target_classes is None
    assert {tenant.allocated_by_class for tenant in snapshot.tenants} == {()}
