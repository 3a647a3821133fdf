"""A small soak: what stays in memory of some thousand pods, and whether a leak would be noticed."""

from __future__ import annotations

from typing import Any

import pytest

from fairbind.cluster.objects import decode
from soak.soak import MAX_BYTES_PER_100_000, Summary, find_caches, run

LIVES, PODS_PER_ROUND = 6_000, 40
MOST_BYTES = MAX_BYTES_PER_100_000 * 200 / PODS_PER_ROUND
"""Names change each round, so a round of few pods may leave as much as one of many."""


@pytest.mark.nightly
def test_nothing_stays_of_pods_that_came_and_went() -> None:
    summary = run(LIVES, traced=True, pods_per_round=PODS_PER_ROUND)
    assert summary.find_faults(MOST_BYTES) == []
    assert summary.lives >= LIVES
    assert summary.bound > 0.8 * summary.lives
    assert summary.tenants == 2 * summary.lives / PODS_PER_ROUND
    assert summary.cycles >= LIVES / PODS_PER_ROUND


@pytest.mark.nightly
def test_a_leak_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    convert, leaked = decode.PODS.convert, []

    def convert_and_leak(pod: Any) -> Any:
        leaked.append(pod.metadata.name * 5)
        return convert(pod)

    monkeypatch.setattr(decode.PODS, "convert", convert_and_leak)
    assert "memory grows" in run(2_000, traced=True, pods_per_round=PODS_PER_ROUND).find_faults(MOST_BYTES)[0]


def test_what_is_judged() -> None:
    summary = Summary(slope_resident=2.0**21, series_before=10, series_after=11, interned=10_000)
    assert len(summary.find_faults()) == 3


def test_every_cache_of_the_package_is_bounded() -> None:
    unbounded = {name for name, cached in find_caches().items() if cached.cache_info().maxsize is None}
    # There are as many answers as features that are not supported, which the code names.
    assert unbounded <= {"fairbind.cluster.objects.constraints._reject"}
