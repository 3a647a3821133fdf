"""The example of unfair totals in docs/concepts.md is what fairbind really decides."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fairbind.model import Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant
from fairbind.scheduling import compute_server_classes, run_cycle
from house.tree import ROOT

ORDINARY, BIG = (32_000, 128), (32_000, 3_360)  # milli-CPU, GiB
PODS = {"a": (1_000, 8), "b": (2_000, 1)}


def decide(policy: str) -> Counter[str]:
    """Return how many pods each tenant gets: five ordinary nodes for both, a big one for neither, both want 100."""
    names = ("big", *(f"ordinary-{number}" for number in range(5)))
    capacity_kr = np.array([BIG, *[ORDINARY] * 5], dtype=np.int64)
    usable_k = np.ones(len(names), dtype=np.bool_)
    eligible_k = np.array([name != "big" for name in names])
    class_k, class_names = compute_server_classes(capacity_kr, [bool(flag) for flag in eligible_k], names, 0.02)
    placement = Placement(eligible_k)
    classes = tuple(
        TaskClass(name, pod, pod, placement, tuple(Task(f"{name}{n:03}", f"{name}/{n}", 0, 0.0) for n in range(100)))
        for name, pod in PODS.items()
    )
    snapshot = Snapshot(
        resources=("cpu", "memory"),
        counts_r=(True, True),
        total_r=tuple(int(total) for total in capacity_kr.sum(axis=0)),
        servers=ServerTable(names, capacity_kr, capacity_kr.copy(), usable_k, class_k, class_names),
        tenants=tuple(Tenant(name, allocated_r=(0, 0)) for name in PODS),
        task_classes=classes,
    )
    return Counter(bind.tenant for bind in run_cycle(snapshot, PolicySettings(policy), 0.0).bindings)


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf"])
def test_example_has_the_numbers_that_fairbind_decides(policy: str) -> None:
    pods = decide(policy)
    memory, cpu = pods["a"] * 8 / 640, pods["b"] * 2 / 160
    row = f"{pods['a']} pods, {memory:.0%} of the memory | {pods['b']} pods, {cpu:.0%} of the CPUs |"

    assert row in (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
