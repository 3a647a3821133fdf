"""What one new pod costs in a large cluster: no function is called for other tenants, classes and servers."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest

from cluster.builders import Cluster, make_node, make_pod
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.model import PolicySettings
from fairbind.scheduling.cycle.waits.unschedulable_cache import MANY_CLASSES

TENANTS = 900
MORE_CALLS = 8
"""So much more may a function be called in the large cluster: searches of what is sorted are as long as a logarithm."""


class Scene:
    """Tenants of which each has a pod that runs, and every third one that fits nowhere; a node for every third."""

    def __init__(self, tenants: int, policy: str) -> None:
        self.cluster, self.decider = Cluster(), Decider()
        self.cluster.cache.set_policy(PolicySettings(policy))
        self.nodes = tenants // 3
        shapes = [{"cpu": str(cpu), "memory": "64Gi", "pods": "110"} for cpu in (16, 32)]
        self.cluster.add_nodes(*(make_node(f"n{n:03}", allocatable=shapes[n % 2]) for n in range(self.nodes)))
        for number in range(tenants):
            self.add_pod(f"r{number}", number, cpu=1, node=f"n{number % self.nodes:03}")
            if number % 3 == 0:
                self.add_pod(f"w{number}", number, cpu=33 + number)
        assert self.decide() == []
        assert len(self.cluster.cache.build_snapshot().task_classes) == self.nodes > MANY_CLASSES

    def add_pod(self, name: str, tenant: int, *, cpu: int, node: str | None = None) -> None:
        requests = {"cpu": str(cpu), "memory": "1Gi"}
        self.cluster.add_pods(make_pod(name, namespace=f"t{tenant}", requests=requests, node=node))

    def decide(self) -> list[str]:
        """Decide as the loop does, and take what is decided for bound; return whose it is."""
        cache = self.cluster.cache
        report = self.decider.decide(cache.build_snapshot(), cache.settings, 0.0, RunCycle(256, explains=False))
        assert all(cache.assume(bind.task.uid, bind.server) for bind in report.bindings)
        return [bind.task.uid for bind in report.bindings]


def count_calls_for_one_pod(tenants: int, policy: str) -> Counter[str]:
    """Return how often functions of ours are called, and call what is not Python, for a pod: the third of its kind."""
    scene, counts = Scene(tenants, policy), Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event in {"call", "c_call"} and "fairbind" in frame.f_code.co_filename:
            counts[f"{event} {frame.f_code.co_qualname.partition('.<locals>')[0]}"] += 1

    for number in range(3):
        counts.clear()
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            scene.add_pod(f"new{number}", 7, cpu=1)
            decided = scene.decide()
        finally:
            sys.setprofile(before)
        assert decided == [f"uid-new{number}"]
    return counts


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_one_pod_costs_the_same_however_many_tenants_classes_and_servers_there_are(policy: str) -> None:
    large, small = (count_calls_for_one_pod(tenants, policy) for tenants in (TENANTS, TENANTS * 3 // 4))

    assert sum(small.values()) > 100
    costly = {name: (large[name], small[name]) for name in large if large[name] > small[name] + MORE_CALLS}
    assert not costly
