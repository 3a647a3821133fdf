"""What nodes have and constraints ask for: of thousands of constraints those are looked at that a change concerns."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster import strategies as some
from cluster.builders import make_node, make_pod, read_node, read_pod
from fairbind.cluster.filters.refusals import find_refusal
from fairbind.cluster.filters.relevance import AskedKeys, NodeFeatures
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

    assert changes.find_concerned([constraints]) or features.simplify(constraints) is before
    assert changes.may_concern(AskedKeys([constraints])) or not changes.find_concerned([constraints])
    fresh = NodeFeatures()
    fresh.replace((), new)
    assert features.simplify(constraints) is fresh.simplify(constraints)


@given(st.lists(nodes(), min_size=1, max_size=3), some.constraints)
def test_what_is_left_out_makes_no_difference_to_any_node(known: list[NodeFacts], spec: dict[str, Any]) -> None:
    features, constraints = NodeFeatures(), read_constraints(spec)
    features.replace((), known)
    simple = features.simplify(constraints)

    assert [find_refusal(node, simple) for node in known] == [find_refusal(node, constraints) for node in known]
    assert features.simplify(simple) is simple


def ask_for(*expressions: tuple[str, str, list[str]]) -> Constraints:
    """Return the constraints of a pod with one required term."""
    term = {"matchExpressions": [{"key": key, "operator": how, "values": values} for key, how, values in expressions]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return read_constraints({"affinity": {"nodeAffinity": required}})


def test_values_that_no_node_has_are_left_out() -> None:
    features = NodeFeatures()
    features.replace((), [read_node(make_node("a", labels={"zone": "1"})), read_node(make_node("b"))])

    def simplify(*expressions: tuple[str, str, list[str]]) -> Constraints:
        return features.simplify(ask_for(*expressions))

    assert simplify(("zone", "NotIn", ["2", "3"])) is read_constraints({})
    assert simplify(("zone", "NotIn", ["1", "2"])) is ask_for(("zone", "NotIn", ["1"]))
    assert simplify(("zone", "In", ["1", "2"])) is ask_for(("zone", "In", ["1"]))
    both = ("zone", "NotIn", ["2"]), ("zone", "Exists", list[str]())
    assert simplify(*both) is ask_for(("zone", "Exists", []))
    for nowhere in (("zone", "In", ["2"]), ("zone", "NotIn", list[str]())):
        assert simplify(nowhere) is not read_constraints({})


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
        return bool(changes.find_concerned([read_constraints(spec)]))

    assert concerns(nodeSelector={"zone": "1"})
    assert concerns(nodeSelector={"zone": "2"})
    assert not concerns(nodeSelector={"zone": "3"})
    assert not concerns(nodeSelector={"disk": "ssd"})
    against = [ask_for(("zone", "NotIn", ["0", value])) for value in "123"]
    assert changes.find_concerned(against) == against[:2]
    assert concerns(tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert not concerns(tolerations=[{"operator": "Exists"}])
    assert not concerns(tolerations=[{"key": "old", "operator": "Exists"}])


@given(st.lists(nodes(), max_size=3))
def test_who_tolerates_every_key_is_as_simple_whatever_taints_there_are(known: list[NodeFacts]) -> None:
    """Thousands of pods may do so, and the first taint of all would move all of them."""
    features = NodeFeatures()
    features.replace((), known)
    constraints = read_constraints({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]})
    assert features.simplify(constraints) is constraints
