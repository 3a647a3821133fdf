from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.tenancy.guarantees import (
    GuaranteeOf,
    Overcommitment,
    ScaledGuarantees,
    scale_guarantees,
    share_by_weight,
    sum_guaranteed,
)
from fairbind.cluster.tenancy.tenants import TenantSpec, parse_tenant
from fairbind.cluster.tenancy.tree import build_tree

H100 = {"matchLabels": {"gpu": "h100"}}
Specs = dict[str, TenantSpec]


def make_specs(**specs: dict[str, Any]) -> Specs:
    return {name: parse_tenant({"metadata": {"name": name}, "spec": spec}) for name, spec in specs.items()}


def guarantee(amount: int | str, nodes: Any = None, resource: str = "gpu") -> dict[str, Any]:
    return {"resources": {resource: amount}} if nodes is None else {"nodes": nodes, "resources": {resource: amount}}


def scale(specs: Specs, capacity: int = 16, few: int = 8) -> ScaledGuarantees:
    """There is so much of everything on all nodes, and few of it on those that a selector selects."""
    return scale_guarantees(
        specs,
        build_tree(specs.values()),
        lambda selector: selector,
        lambda selector, _: capacity if selector is None else few,
    )


def test_guarantees_that_fit_count_in_full() -> None:
    scaled = scale(make_specs(a={"guarantee": [guarantee(8)]}, b={"guarantee": [guarantee(8)]}))
    assert scaled.amount_of == {GuaranteeOf("a", 0, "gpu"): 8, GuaranteeOf("b", 0, "gpu"): 8}
    assert scaled.overcommitted == {}


def test_more_than_the_nodes_have_is_scaled_by_weight() -> None:
    scaled = scale(make_specs(
        a={"guarantee": [guarantee(16)], "weight": 3}, b={"guarantee": [guarantee(16)]}, c={"guarantee": [guarantee(0)]}
    ))  # fmt: skip
    assert [scaled.amount_of[GuaranteeOf(name, 0, "gpu")] for name in "abc"] == [12, 4, 0]
    found = (Overcommitment("gpu", 32, 16, None),)
    assert scaled.overcommitted == {"a": found, "b": found}


def test_only_siblings_share() -> None:
    scaled = scale(make_specs(
        top={"guarantee": [guarantee(16)]},
        a={"guarantee": [guarantee(16)], "parent": "top"},
        b={"guarantee": [guarantee(16)], "parent": "top"},
    ))  # fmt: skip
    assert [scaled.amount_of[GuaranteeOf(name, 0, "gpu")] for name in ("top", "a", "b")] == [16, 8, 8]
    assert sorted(scaled.overcommitted) == ["a", "b"]


def test_nodes_are_shared_by_those_that_name_them() -> None:
    scaled = scale(
        make_specs(a={"guarantee": [guarantee(16), guarantee(9, H100)]}, b={"guarantee": [guarantee(8, H100)]})
    )
    assert scaled.amount_of[GuaranteeOf("a", 0, "gpu")] == 16
    assert [scaled.amount_of[GuaranteeOf("a", 1, "gpu")], scaled.amount_of[GuaranteeOf("b", 0, "gpu")]] == [4, 4]
    (found,) = scaled.overcommitted["b"]
    assert (found.promised, found.capacity, found.selector is None) == (17, 8, False)


def test_two_entries_for_the_same_nodes_are_one_promise() -> None:
    scaled = scale(make_specs(a={"guarantee": [guarantee(16), guarantee(6)]}, b={"guarantee": [guarantee(10)]}))
    assert scaled.overcommitted == {}
    assert [scaled.amount_of[GuaranteeOf("a", number, "gpu")] for number in (0, 1)] == [6, 6]


def test_what_is_guaranteed_is_at_most_what_the_parent_has() -> None:
    specs = make_specs(
        top={"guarantee": [guarantee(4)]},
        a={"guarantee": [guarantee(6), guarantee("3m", resource="cpu")], "parent": "top"},
        b={"guarantee": [guarantee(2)], "parent": "a"},
        c={"guarantee": [guarantee(5)], "parent": "plain"},
        plain={},
    )
    assert sum_guaranteed(specs, build_tree(specs.values()), scale(specs)) == {
        "top": {"gpu": 4},
        "a": {"gpu": 4, "cpu": 3},
        "b": {"gpu": 2},
        "c": {"gpu": 5},
    }


def test_what_is_guaranteed_is_the_sum_over_kinds_of_nodes() -> None:
    specs = make_specs(a={"guarantee": [guarantee(3, H100), guarantee(2, {"matchLabels": {"gpu": "a100"}})]})
    assert sum_guaranteed(specs, build_tree(specs.values()), scale(specs)) == {"a": {"gpu": 5}}


AMOUNTS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1)


@given(AMOUNTS, st.integers(0, 100))
def test_parts_fit_and_none_could_grow(found: dict[str, tuple[int, int]], capacity: int) -> None:
    own = {name: amount for name, (amount, _) in found.items()}
    weights = {name: Fraction(weight, 2) for name, (_, weight) in found.items()}
    counting = share_by_weight(own, weights, capacity)
    assert sum(counting.values()) <= capacity
    assert all(counting[name] <= own[name] for name in own)
    if sum(own.values()) <= capacity:
        assert counting == own
    else:
        assert sum(counting.values()) > capacity - len(own), "rounding leaves less than one each"
        level = min((counting[name] + 1) / weights[name] for name in own if counting[name] < own[name])
        assert all(counting[name] <= weights[name] * level for name in own)
