"""Server classes: nearly equal is equal, wherever the values lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.model import InvalidProblemError
from fairbind.scheduling import compute_server_classes

amounts = st.sampled_from([0, 1, 2, 98, 99, 100, 101, 102, 103, 104, 106, 1_000, 1_015, 2**53])
capacities = st.integers(1, 3).flatmap(
    lambda axes: st.lists(st.lists(amounts, min_size=axes, max_size=axes), min_size=1, max_size=12)
)


def group(capacity_kr: list[list[int]], tolerance: float, signatures: list[object] | None = None) -> list[set[int]]:
    names = [f"n{k:02}" for k in range(len(capacity_kr))]
    class_k, class_names = compute_server_classes(
        np.array(capacity_kr, dtype=np.int64), signatures or [0] * len(names), names, tolerance
    )
    assert class_k.dtype == np.int32
    assert set(class_k.tolist()) == set(range(len(class_names)))
    return [set(np.flatnonzero(class_k == c).tolist()) for c in range(len(class_names))]


def test_values_on_both_sides_of_any_grid_line_are_one_class() -> None:
    for base in range(900, 1_100):
        assert len(group([[base], [base + 1], [base - 1]], 0.02)) == 1


def test_a_class_is_named_after_its_first_server_and_classes_are_in_the_order_of_names() -> None:
    class_k, class_names = compute_server_classes(
        np.array([[8], [4], [8], [4]], dtype=np.int64), "xxxx", ["d", "c", "b", "a"], 0.0
    )

    assert class_names == ("a", "b")
    assert class_k.tolist() == [1, 0, 1, 0]


def test_what_else_must_be_equal_splits() -> None:
    assert group([[8], [8], [8]], 0.02, [("x",), b"y", ("x",)]) == [{0, 2}, {1}]


def test_zero_equals_only_zero() -> None:
    assert group([[0], [1], [0]], 0.5) == [{0, 2}, {1}]


def test_a_chain_without_gaps_is_cut_at_the_tolerance() -> None:
    """100 to 104 in steps of 1 %: the first class takes up to 102."""
    assert group([[100], [101], [102], [103], [104]], 0.02) == [{0, 1, 2}, {3, 4}]


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_another_kind_of_server_does_not_move_the_border_of_a_class(axes: tuple[int, int]) -> None:
    """The memory of both kinds overlaps; counted together, the large kind would be cut at 1020."""
    capacities = [[8, 1000], [8, 1005], [16, 1015], [16, 1030]]

    assert group([[row[axis] for axis in axes] for row in capacities], 0.02) == [{0, 1}, {2, 3}]


def test_no_servers_have_no_classes() -> None:
    class_k, class_names = compute_server_classes(np.zeros((0, 2), dtype=np.int64), [], [], 0.02)

    assert (class_k.shape, class_names) == ((0,), ())


@pytest.mark.parametrize("tolerance", [-0.01, 0.51, float("nan")])
def test_a_tolerance_that_cannot_be_meant_is_refused(tolerance: float) -> None:
    with pytest.raises(InvalidProblemError, match="server_class_tolerance"):
        compute_server_classes(np.zeros((0, 2), dtype=np.int64), [], [], tolerance)


@given(capacity_kr=capacities, tolerance=st.sampled_from([0.0, 0.01, 0.02, 0.5]))
def test_members_are_within_the_tolerance_of_each_other(capacity_kr: list[list[int]], tolerance: float) -> None:
    for members in group(capacity_kr, tolerance):
        for column in zip(*(capacity_kr[k] for k in members), strict=True):
            assert max(column) - min(column) <= tolerance * min(column)


@given(capacity_kr=capacities)
def test_without_a_tolerance_equal_means_equal(capacity_kr: list[list[int]]) -> None:
    classes = group(capacity_kr, 0.0)

    assert len(classes) == len({tuple(row) for row in capacity_kr})


@given(capacity_kr=capacities, tolerance=st.sampled_from([0.0, 0.02, 0.5]), order=st.permutations(range(12)))
def test_neither_the_order_of_servers_nor_of_resources_matters(
    capacity_kr: list[list[int]], tolerance: float, order: list[int]
) -> None:
    order = [k for k in order if k < len(capacity_kr)]
    shuffled = [list(reversed(capacity_kr[k])) for k in order]

    expected = {frozenset(members) for members in group(capacity_kr, tolerance)}
    assert {frozenset(order[k] for k in members) for members in group(shuffled, tolerance)} == expected
