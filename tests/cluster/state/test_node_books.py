"""The rows of nodes: what changed is computed, the rest is carried over, whatever comes and goes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, read_node
from fairbind.cluster.state import offered_resources
from fairbind.model import PolicySettings
from seeds import draw_seeds

ZONES = "123"
RESOURCES = [f"example.com/r{n}" for n in range(5)]


def make_rich_node(name: str, *resources: str, count: int = 4, **options: Any) -> Json:
    offered = {"cpu": "9", "memory": "8Gi", "pods": "110"} | {resource: str(count) for resource in resources}
    return make_node(name, allocatable=offered, **options)


@pytest.mark.parametrize("seed", draw_seeds(8, nightly=60))
def test_whatever_comes_and_goes_rows_are_those_that_would_be_made_anew(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where more resources are offered than are axes, so that one takes the place of another."""
    if seed % 2:
        monkeypatch.setattr(offered_resources, "MAX_AXES", 6)
    draw, cluster, pods = Random(seed), Cluster(), dict[str, Json]()
    cluster.add_pods(*(make_pod(f"w{zone}", nodeSelector={"zone": zone}) for zone in ZONES))
    for step in range(60):
        for n in range(draw.choice([1, 1, 2, 4])):
            node, name = f"n{draw.randrange(8)}", f"p{step}-{n}"
            some = draw.sample(RESOURCES, draw.randrange(4))
            match draw.randrange(6):
                case 0:
                    cluster.cache.nodes.delete(read_node(make_node(node)))
                case 1 | 2:
                    options = {"labels": {"zone": draw.choice(ZONES)}, "unschedulable": draw.random() < 0.2}
                    cluster.add_nodes(make_rich_node(node, *some, count=draw.randrange(1, 5), **options))
                case 3 if pods:
                    cluster.delete_pod(pods.pop(draw.choice(list(pods))))
                case _:
                    system: dict[str, Any] = {}
                    if draw.random() < 0.3:
                        system = {"namespace": "kube-system", "scheduler": "default-scheduler"}
                    pods[name] = make_pod(name, node=node, requests={"cpu": "1"} | dict.fromkeys(some, "2"), **system)
                    cluster.add_pods(pods[name])
        if draw.random() < 0.1:
            selector = ((("zone", draw.choice(ZONES)),), ())[draw.randrange(2)]
            cluster.cache.set_policy(PolicySettings(server_selector=selector))
        cluster.cache.check_consistent()
