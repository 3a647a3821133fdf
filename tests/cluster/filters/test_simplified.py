"""What constraints come to is remembered while they are in use, and asked again by events that concern them."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from cluster.builders import make_node, make_pod, read_node, read_pod
from fairbind.cluster.filters.relevance import FeatureChanges
from fairbind.cluster.filters.simplified import SPARE_KEYS, SimplifiedConstraints
from fairbind.cluster.objects.facts import Constraints, NodeFacts


def read_constraints(**spec: Any) -> Constraints:
    """Return constraints that nothing else uses: those of pods that were read are kept for a while."""
    return replace(read_pod(make_pod("p", **spec)).constraints)


def tolerate(key: str) -> Constraints:
    return read_constraints(tolerations=[{"key": key, "operator": "Exists"}])


def make_tainted(*keys: str, **labels: str) -> NodeFacts:
    return read_node(make_node("n", labels=labels, taints=[{"key": key, "effect": "NoSchedule"} for key in keys]))


def test_an_event_that_concerns_none_asks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    usual = FeatureChanges.find_concerned

    def watch(self: FeatureChanges, known: list[Constraints]) -> list[Constraints]:
        asked.append(len(known))
        return usual(self, known)

    monkeypatch.setattr(FeatureChanges, "find_concerned", watch)
    simplified = SimplifiedConstraints()
    waiting = [tolerate("a"), read_constraints(nodeSelector={"zone": "1"})]
    plain = [simplified.get(each) for each in waiting]
    assert simplified.follow((), [make_tainted("other", host="n")]) is False
    assert (asked, [simplified.get(each) for each in waiting]) == ([], plain)

    assert simplified.follow([make_tainted("other", host="n")], [make_tainted("a", zone="1")]) is True
    assert asked == [2]
    assert [simplified.get(each) for each in waiting] == waiting
    assert simplified.version == 1


def test_constraints_are_remembered_as_long_as_they_are_in_use() -> None:
    simplified = SimplifiedConstraints()
    waiting = [tolerate(f"k{n}") for n in range(9)]
    for each in waiting:
        simplified.get(each)
    assert len(simplified._known) == 9
    del each
    del waiting[3:]
    gc.collect()
    assert len(simplified._known) == 3
    assert simplified.follow((), [make_tainted("k1", "k5")]) is True
    assert [simplified.get(each) is each for each in waiting] == [False, True, False]


def test_keys_that_none_asks_for_any_more_are_forgotten() -> None:
    """Pods come with tolerations of their own, for ever."""
    simplified = SimplifiedConstraints()
    stays = tolerate("stays")
    simplified.get(stays)
    most = 0
    for n in range(3 * SPARE_KEYS):
        simplified.get(tolerate(f"k{n}"))
        most = max(most, 0 if simplified._asked is None else len(simplified._asked))
        if n % 1_000 == 0:
            assert simplified.follow((), [make_tainted("stays")]) is True
            assert simplified.get(stays) is stays
            assert simplified.follow([make_tainted("stays")], ()) is True
            assert simplified.get(stays) is not stays
    assert most <= SPARE_KEYS + 8
