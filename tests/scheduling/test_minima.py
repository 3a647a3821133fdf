"""The first least score, found by blocks, is the one that a look at all scores finds."""

from __future__ import annotations

import numpy as np
import pytest

from fairbind.model import PolicySettings, Snapshot
from fairbind.scheduling import run_cycle
from fairbind.scheduling.cycle.servers import minima, shapes
from fairbind.scheduling.cycle.servers.minima import BlockMinima
from scheduling.strategies import POLICY_IDS
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, describe
from seeds import draw_seeds

VALUES = [0.0, 0.0, 0.5, 0.5, 1.0, 2.0, np.inf, np.inf]  # ties and servers without room come up all the time


@pytest.mark.parametrize("seed", draw_seeds(40))
def test_it_is_the_first_least_score_of_a_slice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(seed)
    monkeypatch.setattr(minima, "BLOCK", int(draw.integers(1, 6)))
    count = int(draw.integers(1, 40))
    scores = draw.choice(VALUES, count) if seed % 4 else np.full(count, np.inf)
    least = BlockMinima(scores)
    for _ in range(60):
        if draw.random() < 0.5:
            position, score = int(draw.integers(count)), float(draw.choice(VALUES))
            scores[position] = score
            least.lower(position, score)
        else:
            positions = draw.integers(0, count, 5)
            some = draw.choice(VALUES, count)[positions]
            scores[positions] = some
            least.lower_many(positions, some)
        start = int(draw.integers(count))
        stop = int(draw.integers(start + 1, count + 1))
        assert least.find_least(start, stop) == start + scores[start:stop].argmin()


def build_world(draw: np.random.Generator) -> Snapshot:
    kinds = [(8, 8), (12, 6), (4, 16)]
    servers = build_servers({f"s{n:02}": kinds[draw.integers(3)] for n in range(40)})
    wishes = {name: int(draw.integers(2)) for name in servers.names}
    placements = [build_placement(servers), build_placement(servers, wishes=wishes)]
    classes = [
        build_class("abc"[n % 3], draw.integers(0, 5, 2).tolist(), placements[draw.integers(2)], 12) for n in range(6)
    ]
    return build_snapshot(servers, classes)


@pytest.mark.parametrize("policy", POLICY_IDS)
@pytest.mark.parametrize("seed", range(4))
def test_cycles_with_blocks_decide_as_without(policy: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, settings = build_world(np.random.default_rng(seed)), PolicySettings(policy)
    without = describe(run_cycle(snapshot, settings, 0.0))

    monkeypatch.setattr(shapes, "MANY", 3)
    monkeypatch.setattr(minima, "BLOCK", 4)
    monkeypatch.setattr(shapes, "SINGLE_SCORES", 1 + seed % 3)
    monkeypatch.setattr(shapes, "CHANGED_SCORES", (2, 6, 128, 0)[seed])

    assert describe(run_cycle(snapshot, settings, 0.0)) == without
