"""The name of one node in required affinity is told apart from the rest, and both parts say what the whole says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster import strategies as some
from fairbind.cluster.objects.pins import Terms, split_pin
from fairbind.cluster.objects.selectors import NodeTerm, Requirement

A = Requirement("metadata.name", "In", ("a",))
B = Requirement("metadata.name", "In", ("b",))
SSD = Requirement("disk", "In", ("ssd",))
HDD = Requirement("disk", "In", ("hdd",))
requirements = st.sampled_from([SSD, HDD])
fields = st.sampled_from(
    [A, B, Requirement("metadata.name", "NotIn", ("a",)), Requirement("metadata.uid", "In", ("a",))]
)
terms = st.builds(
    NodeTerm,
    st.lists(requirements, max_size=1).map(tuple),
    st.lists(fields, min_size=1, max_size=2, unique=True).map(tuple) | st.just((A,)),
)


def is_met(required: Terms, labels: dict[str, str], name: str) -> bool:
    return required is None or any(term.is_met_by(labels, name) for term in required)


@given(st.none() | st.lists(terms, max_size=3, unique=True).map(tuple), some.labels, st.sampled_from(some.NODE_NAMES))
@example((NodeTerm((SSD,), (A,)), NodeTerm((), (A,))), {"disk": "hdd"}, "a")
def test_both_parts_say_what_the_whole_says(required: Terms, labels: dict[str, str], name: str) -> None:
    rest, pin = split_pin(required)

    assert is_met(required, labels, name) == (is_met(rest, labels, name) and pin in {None, name})


@pytest.mark.parametrize(
    ("required", "rest", "pin"),
    [
        ((NodeTerm((), (A,)),), None, "a"),
        ((NodeTerm((SSD,), (A,)),), (NodeTerm((SSD,)),), "a"),
        ((NodeTerm((HDD,), (A,)), NodeTerm((SSD,), (A,))), (NodeTerm((HDD,)), NodeTerm((SSD,))), "a"),
        ((NodeTerm((), (A,)), NodeTerm((), (B,))), ..., None),
        ((NodeTerm((), (A,)), NodeTerm((SSD,))), ..., None),
        ((NodeTerm((), (Requirement("metadata.name", "In", ("a", "b")),)),), ..., None),
        ((NodeTerm((), (A, Requirement("metadata.name", "NotIn", ("b",)))),), ..., None),
        ((NodeTerm((), ()),), ..., None),
        ((), ..., None),
        (None, ..., None),
    ],
)
def test_one_name_in_every_term_is_a_pin(required: Terms, rest: Any, pin: str | None) -> None:
    assert split_pin(required) == (required if rest is ... else rest, pin)
