from __future__ import annotations

import pytest

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.selectors import LabelSelector, NodeTerm, Requirement, make_label_selector, make_term


@pytest.mark.parametrize(
    ("operator", "values", "value", "met"),
    [
        ("In", ("a", "b"), "a", True),
        ("In", ("a", "b"), "c", False),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "x", False),
        ("Gt", ("5",), "6", True),
        ("Gt", ("5",), "5", False),
        ("Gt", ("5",), "10", True),
        ("Gt", ("-5",), "-4", True),
        ("Gt", ("5",), None, False),
        ("Gt", ("5",), "many", False),
        ("Gt", ("5",), "9223372036854775808", False),
        ("Lt", ("5",), "4", True),
        ("Lt", ("5",), "40", False),
        ("Lt", ("5", "6"), "4", False),
        ("Lt", ("5.5",), "4", False),
        ("Lt", (), "4", False),
        ("NotIn", (), "a", False),
        ("Matches", ("a",), "a", False),
    ],
)
def test_operators(operator: str, values: tuple[str, ...], value: str | None, met: bool) -> None:  # noqa: FBT001
    assert Requirement("key", operator, values).is_met_by(value) is met


def test_an_empty_node_term_matches_nothing_and_an_empty_label_selector_everything() -> None:
    assert not NodeTerm().is_met_by({"a": "b"}, "node")
    assert LabelSelector().is_met_by({})
    assert make_label_selector(None) is None


def test_a_term_needs_all_its_expressions_and_fields() -> None:
    term = make_term(
        wire.NodeSelectorTerm(
            match_expressions=[
                wire.SelectorRequirement("zone", "In", ["a"]),
                wire.SelectorRequirement("gpu", "Exists"),
            ],
            match_fields=[wire.SelectorRequirement("metadata.name", "NotIn", ["n2"])],
        )
    )
    assert term.is_met_by({"zone": "a", "gpu": ""}, "n1")
    assert not term.is_met_by({"zone": "a"}, "n1")
    assert not term.is_met_by({"zone": "a", "gpu": ""}, "n2")


@pytest.mark.parametrize(
    ("key", "operator", "values"),
    [("metadata.name", "In", ["n1", "n2"]), ("metadata.uid", "In", ["n1"]), ("metadata.name", "Exists", [])],
)
def test_field_expressions_that_the_api_refuses_match_nothing(key: str, operator: str, values: list[str]) -> None:
    term = make_term(wire.NodeSelectorTerm(match_fields=[wire.SelectorRequirement(key, operator, values)]))
    assert not term.is_met_by({}, "n1")


def test_pairs_and_expressions_of_a_label_selector_must_all_hold() -> None:
    selector = make_label_selector(
        wire.LabelSelector(match_labels={"a": "1"}, match_expressions=[wire.SelectorRequirement("b", "NotIn", ["2"])])
    )
    assert selector is not None
    assert selector.is_met_by({"a": "1"})
    assert not selector.is_met_by({"a": "1", "b": "2"})
    assert not selector.is_met_by({"b": "3"})
