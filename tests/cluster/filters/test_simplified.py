"""What constraints come to is remembered while they are in use, and asked again by events that concern them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cluster.builders import make_node, make_pod, read_node, read_pod
from fairbind.cluster.filters.relevance import AskedKeys, FeatureChanges
from fairbind.cluster.filters.simplified import SPARE_KEYS, SimplifiedConstraints
from fairbind.cluster.objects.facts import Constraints, NodeFacts


def read_constraints(**spec: Any) -> Constraints:
    """Return constraints that nothing else uses: those of pods that were read are kept for a while."""
    return replace(read_pod(make_pod("p", **spec)).constraints)


def tolerate(key: str) -> Constraints:
    return read_constraints(tolerations=[{"key": key, "operator": "Exists"}])


def make_tainted(*keys: str, **labels: str) -> NodeFacts:
    return read_node(make_node("n", labels=labels, taints=[{"key": key, "effect": "NoSchedule"} for key in keys]))


def is_followed(simplified: SimplifiedConstraints, old: Sequence[NodeFacts], new: Sequence[NodeFacts]) -> bool:
    """Take new nodes in the place of old ones, and return whether some constraints come to something else."""
    before = simplified.changes.revision
    simplified.follow(old, new)
    return simplified.changes.revision != before


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
    assert not is_followed(simplified, (), [make_tainted("other", host="n")])
    assert (asked, [simplified.get(each) for each in waiting]) == ([], plain)

    assert is_followed(simplified, [make_tainted("other", host="n")], [make_tainted("a", zone="1")])
    assert asked == [2]
    assert [simplified.get(each) for each in waiting] == waiting
    assert simplified.changes.revision == 1


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
    assert is_followed(simplified, (), [make_tainted("k1", "k5")])
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
            assert is_followed(simplified, (), [make_tainted("stays")])
            assert simplified.get(stays) is stays
            assert is_followed(simplified, [make_tainted("stays")], ())
            assert simplified.get(stays) is not stays
    assert most <= SPARE_KEYS + 8


def require(**term: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def prefer(**term: Any) -> dict[str, Any]:
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}


IN_ZONE = [{"key": "zone", "operator": "In", "values": ["1"]}]
IS_N = [{"key": "metadata.name", "operator": "In", "values": ["m", "n"]}]


@pytest.mark.parametrize(
    "affinity",
    [
        require(matchExpressions=IN_ZONE),
        prefer(matchExpressions=IN_ZONE),
        require(matchFields=IS_N),
        prefer(matchFields=IS_N),
    ],
    ids=["required", "preferred", "required name", "preferred name"],
)
def test_a_node_that_comes_and_goes_concerns_who_asks_for_it(affinity: dict[str, Any]) -> None:
    simplified, waits = SimplifiedConstraints(), read_constraints(affinity={"nodeAffinity": affinity})
    assert simplified.get(waits) is not waits
    assert is_followed(simplified, (), [make_tainted(zone="1")])
    assert simplified.get(waits) is waits
    assert is_followed(simplified, [make_tainted(zone="1")], ())
    assert simplified.get(waits) is not waits


def test_what_each_asks_for_is_found_out_once_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each has several keys of its own."""
    found: list[int] = []
    usual = AskedKeys.__init__

    def watch(self: AskedKeys, known: Iterable[Constraints] = ()) -> None:
        usual(self, known)
        found.append(len(self))

    monkeypatch.setattr(AskedKeys, "__init__", watch)
    simplified = SimplifiedConstraints()
    waiting = [
        read_constraints(tolerations=[{"key": f"k{n}-{m}", "operator": "Exists"} for m in range(8)])
        for n in range(SPARE_KEYS)
    ]
    for n, each in enumerate(waiting):
        simplified.get(each)
        simplified.follow((), [make_tainted(host=f"n{n}")])
    assert len(found) < 9
    assert found[-1] > SPARE_KEYS
