"""Levels of inner tenants that are kept: of now where they count, also on pools that open later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np

from fairbind.scheduling.cycle.order.inner_levels import InnerLevels, LevelsOfOne
from fairbind.scheduling.policies.levels import Progress

AMOUNTS = ([10], [20], [40])


def compute(progress: Progress, pool: int) -> int:
    return progress.compute_level(AMOUNTS[pool])


def test_the_least_level_is_of_now_on_whatever_pools_are_open() -> None:
    progress = Progress("a", [0], ((0, 1, 1),))
    levels = SimpleNamespace(is_by_pool=True, version_p=[0, 0, 0], compute=compute)
    kept = LevelsOfOne(cast("InnerLevels", levels), progress)

    for pools in ([0], [1, 2], [0, 2], [0, 1, 2], [1]):
        progress.add([3])

        assert kept.find_least(np.array(pools)) == min(compute(progress, pool) for pool in pools)
        assert [kept.compute(pool) for pool in range(3)] == [compute(progress, pool) for pool in range(3)]


def test_a_level_that_fell_is_forgotten() -> None:
    progress = Progress("a", [5], ((0, 1, 1),))
    levels = SimpleNamespace(is_by_pool=True, version_p=[0], compute=compute)
    kept = LevelsOfOne(cast("InnerLevels", levels), progress)
    kept.compute(0)

    progress.remove([2])
    kept.forget()

    assert kept.find_least(np.array([0])) == compute(progress, 0)
