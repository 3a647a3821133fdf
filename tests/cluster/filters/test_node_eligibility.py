"""The columns say the same as asking node by node, whatever changed in between."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster import strategies as some
from cluster.builders import Json, make_node, make_pod, read_node, read_pod
from fairbind.cluster.filters.node_eligibility import MANY_REASONS, Eligibility
from fairbind.cluster.filters.refusals import OUTSIDE, AskedNode, find_refusal
from fairbind.cluster.objects.facts import Constraints, NodeFacts

SELECTORS = ((), (("zone", "1"),))


@st.composite
def nodes(draw: st.DrawFn) -> Json:
    return make_node(
        labels=draw(some.labels),
        taints=draw(some.taints),
        ready=draw(st.booleans() | st.just(value=True)),
        unschedulable=draw(st.booleans()),
    )


def name_nodes(shapes: list[Json]) -> list[NodeFacts]:
    named = [
        {**shape, "metadata": {**shape["metadata"], "name": name}}
        for name, shape in zip("abcdefgh", shapes, strict=False)
    ]
    return [read_node(node) for node in named]


def read_constraints(spec: dict[str, Any]) -> Constraints:
    return read_pod(make_pod(**spec)).constraints


def check(eligibility: Eligibility, constraints: Constraints, known: list[NodeFacts], selector: Any) -> None:
    """Compare the placement with plain questions."""
    placement = eligibility.get_placement(constraints)
    refusals = [find_refusal(node, constraints, selector) for node in known]
    assert placement.eligible_k.tolist() == [refusal is None for refusal in refusals]
    counted = {refusal: refusals.count(refusal) for refusal in refusals if refusal is not None}
    assert dict(placement.rejections) == counted
    eligible = [node for node, refusal in zip(known, refusals, strict=True) if refusal is None]
    scores = [compute_score(node, constraints, eligible) for node in eligible]
    if placement.preference_k is None:
        assert len(set(scores)) <= 1
    else:
        assert placement.preference_k[placement.eligible_k].tolist() == scores


def compute_score(node: NodeFacts, constraints: Constraints, eligible: list[NodeFacts]) -> int:
    """As kube-scheduler's default plugins score: affinity twice, soft taints three times."""
    most_liked = max(AskedNode(other, ()).compute_liking(constraints) for other in eligible)
    most_disliked = max(AskedNode(other, ()).count_disliked(constraints) for other in eligible)
    score = 0
    if most_liked:
        score += 2 * (100 * AskedNode(node, ()).compute_liking(constraints) // most_liked)
    if most_disliked:
        score += 3 * (100 - 100 * AskedNode(node, ()).count_disliked(constraints) // most_disliked)
    return score


@given(
    st.lists(nodes(), max_size=6),
    st.lists(some.constraints, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 5), nodes()), max_size=3),
    st.sampled_from(SELECTORS),
)
@settings(max_examples=3 * settings().max_examples)
def test_columns_agree_with_asking_each_node(
    shapes: list[Json], specs: list[dict[str, Any]], changes: list[tuple[int, Json]], selector: Any
) -> None:
    known = name_nodes(shapes)
    eligibility = Eligibility()
    eligibility.set_nodes(known, None, selector)
    wanted = [read_constraints(spec) for spec in specs]
    for constraints in wanted:
        check(eligibility, constraints, known, selector)
    for index, shape in changes:
        if index < len(known):
            known[index] = name_nodes([shape] * (index + 1))[index]
            eligibility.change_nodes({index: known[index]})
            for constraints in wanted:
                check(eligibility, constraints, known, selector)


@given(st.lists(nodes(), min_size=1, max_size=6), some.constraints, st.data())
def test_answers_move_with_their_nodes_when_nodes_come_and_go(
    shapes: list[Json], spec: dict[str, Any], data: st.DataObject
) -> None:
    known, constraints = name_nodes(shapes), read_constraints(spec)
    eligibility = Eligibility()
    first = [node for node in known if data.draw(st.booleans())]
    eligibility.set_nodes(first, None, ())
    check(eligibility, constraints, first, ())
    second = [node for node in known if data.draw(st.booleans())]
    kept = np.array([first.index(node) if node in first else -1 for node in second], dtype=np.int64)
    eligibility.set_nodes(second, kept, ())
    check(eligibility, constraints, second, ())


def test_a_placement_stays_the_same_object_while_no_answer_changes() -> None:
    known = [read_node(make_node("a")), read_node(make_node("b"))]
    eligibility = Eligibility()
    eligibility.set_nodes(known, None, ())
    constraints = read_constraints({"nodeSelector": {"disk": "ssd"}})
    before = eligibility.get_placement(constraints)
    eligibility.change_nodes({0: read_node(make_node("a", labels={"other": "label"}))})
    assert eligibility.get_placement(constraints) is before
    eligibility.change_nodes({0: read_node(make_node("a", labels={"disk": "ssd"}))})
    assert eligibility.get_placement(constraints) is not before
    eligibility.keep_only([])
    assert len(eligibility) == 0


TOLERATION = {"key": "gpu", "operator": "Exists"}
SAME = {
    "a toleration that meets no taint": {"tolerations": [{"key": "none", "operator": "Exists"}]},
    "a label that no node has": {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}}
                ]
            }
        }
    },
    "a soft wish that all nodes meet": {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}
                ]
            }
        }
    },
    "a term that all nodes meet": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["z"]}]}
                    ]
                }
            }
        }
    },
}


@pytest.mark.parametrize("spec", SAME.values(), ids=list(SAME))
def test_constraints_with_the_same_outcome_on_all_nodes_share_one_placement(spec: Json) -> None:
    eligibility = Eligibility()
    eligibility.set_nodes([read_node(make_node("a")), read_node(make_node("b", unschedulable=True))], None, ())

    placement = eligibility.get_placement(read_constraints(spec))
    assert placement is eligibility.get_placement(read_constraints({}))
    assert placement.eligible_k.tolist() == [True, False]


def test_what_no_node_meets_is_one_placement_and_one_verdict() -> None:
    eligibility = Eligibility()
    eligibility.set_nodes([read_node(make_node("a", labels={"disk": "hdd"}))], None, ())
    other = {"key": "metadata.name", "operator": "NotIn", "values": ["b"]}  # without it the name would be a pin
    names = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{n}"]}, other]} for n in range(9)
    ]
    required = [{"nodeSelectorTerms": [name]} for name in names]
    wanted = [
        *(read_constraints({"nodeSelector": {"disk": f"d{n}"}}) for n in range(9)),
        *(
            read_constraints({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": each}}})
            for each in required
        ),
    ]

    assert len({id(eligibility.get_placement(constraints)) for constraints in wanted}) == 1
    assert len(eligibility) == 1


def test_a_taint_that_comes_sets_those_apart_that_tolerate_it() -> None:
    known = [read_node(make_node("a")), read_node(make_node("b"))]
    eligibility = Eligibility()
    eligibility.set_nodes(known, None, ())
    tolerating, plain = read_constraints({"tolerations": [TOLERATION]}), read_constraints({})
    assert eligibility.get_placement(tolerating) is eligibility.get_placement(plain)

    eligibility.change_nodes({0: read_node(make_node("a", taints=[{"key": "gpu", "effect": "NoSchedule"}]))})
    assert eligibility.get_placement(tolerating).eligible_k.tolist() == [True, True]
    assert eligibility.get_placement(plain).eligible_k.tolist() == [False, True]

    eligibility.change_nodes({0: known[0]})
    assert eligibility.get_placement(tolerating) is eligibility.get_placement(plain)


def test_a_change_that_changes_no_answer_is_none_to_those_who_keep_answers() -> None:
    eligibility = Eligibility()
    eligibility.set_nodes([read_node(make_node("a"))], None, ())
    eligibility.get_placement(read_constraints({}))
    before = eligibility.answers.revision
    eligibility.change_nodes({0: read_node(make_node("a", allocatable={"cpu": "9", "pods": "1"}))})
    assert eligibility.answers.revision == before
    eligibility.change_nodes({0: read_node(make_node("a", unschedulable=True))})
    assert eligibility.answers.revision > before


def test_names_are_looked_up_among_the_nodes() -> None:
    known = [read_node(make_node(name)) for name in "abcd"]
    eligibility = Eligibility()
    eligibility.set_nodes(known, None, ())
    for operator, values in itertools.product(("In", "NotIn", "Exists"), (["b"], ["z"], ["a", "b"], [], [""])):
        fields = [{"key": "metadata.name", "operator": operator, "values": values}]
        term = {"nodeSelectorTerms": [{"matchFields": fields}]}
        spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}
        check(eligibility, read_constraints(spec), known, ())


def is_as_if_made_anew(eligibility: Eligibility, constraints: Constraints, known: list[NodeFacts]) -> bool:
    anew = Eligibility()
    anew.set_nodes(known, None, ())
    return anew.get_placement(constraints).rejections == eligibility.get_placement(constraints).rejections


@pytest.mark.parametrize("comes_and_goes", [False, True], ids=["changed nodes", "another list"])
def test_reasons_that_nobody_gives_any_more_are_forgotten(comes_and_goes: bool) -> None:  # noqa: FBT001 - a parameter
    """An autoscaler puts the time into its taints."""
    eligibility, constraints = Eligibility(), read_constraints({})
    known = [read_node(make_node(name)) for name in "abc"]
    eligibility.set_nodes(known, None, ())
    most = 0
    for moment in range(20 * MANY_REASONS):
        index = moment % 2  # the third node is never touched
        taint = {"key": "ToBeDeleted", "value": str(moment), "effect": "NoSchedule"}
        known[index] = read_node(make_node(known[index].name, taints=[taint]))
        if comes_and_goes:
            eligibility.set_nodes(known, np.array([-1 if k == index else k for k in range(3)], dtype=np.int64), ())
        else:
            eligibility.change_nodes({index: known[index]})
        assert is_as_if_made_anew(eligibility, constraints, known)
        most = max(most, len(eligibility.reasons))

    assert most == MANY_REASONS
    assert len(eligibility.reasons._rejections) <= MANY_REASONS + 1


def test_a_new_selector_forgets_reasons_too() -> None:
    eligibility, constraints = Eligibility(), read_constraints({})
    known = [read_node(make_node("a", taints=[{"key": str(n), "effect": "NoSchedule"}])) for n in range(500)]
    eligibility.set_nodes(known, None, ())
    eligibility.get_placement(constraints)
    assert len(eligibility.reasons) > 500

    eligibility.set_nodes(known, None, (("zone", "1"),))

    assert len(eligibility.reasons) == 1
    assert eligibility.get_placement(constraints).rejections == ((OUTSIDE, 500),)


def test_columns_go_with_the_verdicts() -> None:
    """Selectors that nobody else has, and domains of pods that move on, must not add up."""
    eligibility = Eligibility()
    eligibility.set_nodes([read_node(make_node(str(n), labels={"host": str(n)})) for n in range(9)], None, ())
    most = 0
    for n in range(300):
        eligibility.get_placement(read_constraints({"nodeSelector": {"host": str(n), f"key-{n}": "x"}}))
        assert eligibility.match_values("host", [str(n % 9), str(n % 7)]).sum() == len({n % 9, n % 7})
        if len(eligibility) > 10:
            eligibility.keep_only([])
        columns = eligibility.get_columns()
        most = max(most, len(columns._masks), len(columns._columns))

    assert most <= 2 * 11
