"""What nodes have and constraints ask for: of thousands of constraints those are looked at that a change concerns."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster import strategies as some
from cluster.builders import make_node, make_pod, read_node, read_pod
from fairbind.cluster.filters.relevance import NodeFeatures
from fairbind.cluster.objects.facts import Constraints, NodeFacts


@st.composite
def nodes(draw: st.DrawFn) -> NodeFacts:
    name, cordoned = draw(st.sampled_from(some.NODE_NAMES)), draw(st.booleans())
    return read_node(make_node(name, labels=draw(some.labels), taints=draw(some.taints), unschedulable=cordoned))


def read_constraints(spec: dict[str, Any]) -> Constraints:
    return read_pod(make_pod(**spec)).constraints


@given(st.lists(nodes(), max_size=3), st.lists(nodes(), max_size=3), some.constraints)
def test_constraints_that_a_change_does_not_concern_stay_as_simple_as_they_are(
    old: list[NodeFacts], new: list[NodeFacts], spec: dict[str, Any]
) -> None:
    features, constraints = NodeFeatures(), read_constraints(spec)
    features.replace((), old)
    before = features.simplify(constraints)
    changes = features.replace(old, new)

    assert changes.may_concern(constraints) or features.simplify(constraints) is before
    fresh = NodeFeatures()
    fresh.replace((), new)
    assert features.simplify(constraints) is fresh.simplify(constraints)


def test_a_change_concerns_those_who_ask_for_what_came_or_went() -> None:
    features = NodeFeatures()
    features.replace((), [read_node(make_node("a", labels={"zone": "1", "disk": "ssd"}))])
    changes = features.replace(
        [read_node(make_node("a", labels={"zone": "1", "disk": "ssd"}))],
        [
            read_node(
                make_node("a", labels={"zone": "2", "disk": "ssd"}, taints=[{"key": "gpu", "effect": "NoSchedule"}])
            )
        ],
    )

    def concerns(**spec: Any) -> bool:
        return changes.may_concern(read_constraints(spec))

    assert concerns(nodeSelector={"zone": "1"})
    assert concerns(nodeSelector={"zone": "2"})
    assert not concerns(nodeSelector={"zone": "3"})
    assert not concerns(nodeSelector={"disk": "ssd"})
    assert concerns(tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert concerns(tolerations=[{"operator": "Exists"}])
    assert not concerns(tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    assert not concerns(tolerations=[{"key": "old", "operator": "Exists"}])


def test_a_second_taint_of_an_effect_does_not_concern_those_who_tolerate_every_key() -> None:
    gpu, old = ({"key": key, "effect": "NoSchedule"} for key in ("gpu", "old"))
    features = NodeFeatures()
    features.replace((), [read_node(make_node("a", taints=[gpu])), read_node(make_node("b"))])
    changes = features.replace([read_node(make_node("b"))], [read_node(make_node("b", taints=[old]))])

    assert not changes.may_concern(read_constraints({"tolerations": [{"operator": "Exists"}]}))
    assert changes.may_concern(read_constraints({"tolerations": [{"key": "old", "operator": "Exists"}]}))
