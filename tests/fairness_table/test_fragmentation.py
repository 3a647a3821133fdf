"""The published rule by hand, fairbind's own beside it, and the run that fills a cluster."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fairbind.simulator.baselines.registry import make_fgd
from fairness_table.fragmentation import (
    Fragmentation,
    Openb,
    Shape,
    State,
    descend,
    fill,
    find_allocated,
    fit_best,
    inflate,
    place,
    read_openb,
)
from fairness_table.inflation import WHOLE, make_whole, measure_inflation, simulate_whole
from simulator.test_baselines import build_operator

if TYPE_CHECKING:
    from pathlib import Path

    from fairbind.cluster.objects.facts import Amounts

HALF, WHOLE_GPU, TWO = Shape(1000, 10, 1, 500), Shape(2000, 10, 1, 1000), Shape(4000, 10, 2, 1000)
CPUS = Shape(3000, 10, 0, 0)


def test_fragmentation_by_hand() -> None:
    """A GPU half free and one free, 3 cpus: what each typical task cannot use of the 1,500 thousandths."""
    state = State(3000, 100, (500, 1000))
    by_task = {task: Fragmentation(Counter([task])).compute(state) for task in (HALF, WHOLE_GPU, TWO, CPUS)}

    assert by_task == {HALF: 0, WHOLE_GPU: 500, TWO: 1500, CPUS: 1500}
    assert Fragmentation(Counter({HALF: 2, WHOLE_GPU: 3, CPUS: 1})).compute(state) == 3 * 500 + 1500
    assert Fragmentation(Counter([HALF])).compute(state._replace(cpu_milli=999)) == 1500, "no cpu for it"
    assert Fragmentation(Counter([HALF])).compute(state._replace(memory_mib=9)) == 1500, "no memory for it"


def test_a_part_of_a_gpu_lies_on_one_device() -> None:
    state = State(9000, 100, (300, 700, 1000))

    assert {left.free for left in place(state, HALF)} == {(200, 300, 1000), (300, 500, 700)}
    assert [left.free for left in place(state, WHOLE_GPU)] == [(0, 300, 700)]
    assert place(state, TWO) == []
    assert [left.free for left in place(state, CPUS)] == [state.free]
    assert place(state._replace(cpu_milli=999), HALF) == []


def test_the_rule_breaks_a_gpu_that_is_broken_already() -> None:
    """Typical are halves and whole GPUs; only on the broken GPU a half costs nothing."""
    nodes = [State(9000, 100, (1000,)), State(9000, 100, (500, 1000))]
    scores = [descend(Counter([HALF, WHOLE_GPU]))(node, HALF) for node in nodes]

    assert scores == [(500, State(8000, 90, (500,))), (-500, State(8000, 90, (0, 1000)))]
    assert fit_best(nodes[1])(nodes[1], HALF) == (8000 / 9000 + 1000 / 1500, State(8000, 90, (0, 1000)))


def test_filling_takes_the_first_of_equal_nodes_and_loses_what_does_not_fit() -> None:
    nodes = [State(4000, 100, (1000, 1000))] * 2
    tasks = [WHOLE_GPU, TWO, TWO, HALF]

    assert fill(nodes, tasks, descend(Counter(tasks))) == [1000, 3000, 3000, 3500]
    assert find_allocated(tasks, [1000, 3000, 3000, 3500], 4000, 0.7) == 0.75
    assert find_allocated(tasks, [1000, 3000, 3000, 3500], 4000, 9) == 3500 / 4000


def test_inflated_tasks_have_all_that_are_published_and_more() -> None:
    shapes = [HALF, WHOLE_GPU, TWO]
    tasks = inflate(shapes, 9000, seed=1)

    assert 9000 <= sum(task.gpu_milli for task in tasks) < 11000
    assert not Counter(shapes) - Counter(tasks)
    assert tasks == inflate(shapes, 9000, seed=1) != inflate(shapes, 9000, seed=2)


@pytest.mark.parametrize("seed", range(3))
def test_with_whole_gpus_fairbinds_rule_is_the_published_one(seed: int) -> None:
    """Random nodes, typical tasks and tasks; the two were written apart."""
    random = np.random.default_rng(seed)

    def draw(most_gpus: int) -> Shape:
        gpus = int(random.integers(most_gpus + 1))
        return Shape(int(random.integers(1, 9)) * 1000, int(random.integers(1, 9)), gpus, 1000 * (gpus > 0))

    typical = Counter(draw(4) for _ in range(20))
    openb = Openb((State(16000, 16, (1000,) * 4),), tuple(typical))
    snapshot = build_operator(make_whole(openb, openb.pods)).cache.build_snapshot()
    axes = {"cpu": 0, "memory": 1, "nvidia.com/gpu": 2}

    def write(cpu_milli: int, memory_mib: int, gpus: int) -> list[int]:
        amounts = (cpu_milli, memory_mib * 2**20, gpus)
        return [amounts[axes[name]] if name in axes else 9 for name in snapshot.resources]

    counts: Counter[Amounts] = Counter()
    for shape, count in typical.items():
        counts[("cpu", shape.cpu_milli), ("memory", shape.memory_mib * 2**20), ("nvidia.com/gpu", shape.gpus)] = count
    fit, fragmentation = make_fgd("fifo", counts).build_fit(snapshot), Fragmentation(typical)
    compared = 0
    for _ in range(100):
        state = State(int(random.integers(17)) * 1000, int(random.integers(17)), (1000,) * int(random.integers(5)))
        task = draw(2)
        for left in place(state, task):
            demand_r = [
                amount if name in axes else 0
                for name, amount in zip(
                    snapshot.resources, write(task.cpu_milli, task.memory_mib, task.gpus), strict=True
                )
            ]
            score = fit.build_score(demand_r).score_one(0, write(state.cpu_milli, state.memory_mib, len(state.free)))
            growth = fragmentation.compute(left._replace(free=tuple(filter(None, left.free))))
            assert 1000 * score == growth - fragmentation.compute(state)
            compared += 1
    assert compared > 20


def test_all_rules_fill_a_small_cluster() -> None:
    openb = Openb((State(8000, 100, (1000, 1000)),) * 3, (HALF, HALF, WHOLE_GPU, TWO, CPUS))
    rows = measure_inflation(openb)

    assert [row["gpus"] for row in rows] == ["parts"] * 3 + ["whole"] * len(WHOLE)
    assert all(0 < at_full <= at_end <= 1 for at_full, at_end in (row["allocated"] for row in rows))


def test_the_simulator_fills_as_the_published_rule_does() -> None:
    """Whole GPUs, and no two nodes tie: the same tasks find a place, by fairbind's cycles and by the loop here."""
    nodes = tuple(State(4000 * n, 1000, (1000,) * n) for n in range(1, 5))
    tasks = inflate([WHOLE_GPU, TWO, CPUS, Shape(7000, 10, 1, 1000)], 13000, seed=3)
    allocated = fill(nodes, tasks, descend(Counter(tasks)))
    expected = [find_allocated(tasks, allocated, 10000, arrived) for arrived in (1.0, 1.3)]

    assert simulate_whole(Openb(nodes, ()), tasks, "fgd-fifo") == expected
    assert expected[1] < 1


def test_the_publishers_files_are_read(tmp_path: Path) -> None:

    pods, nodes = tmp_path / "pods.csv.gz", tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,1024,0,\nb,8000,2048,2,T4\n", encoding="utf-8")
    pods.write_bytes(gzip.compress(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,4000,16,1,460\nq,1000,1,0,0\n"))

    assert read_openb(pods, nodes) == Openb(
        (State(8000, 2048, (1000, 1000)),), (Shape(4000, 16, 1, 460), Shape(1000, 1, 0, 0))
    )
