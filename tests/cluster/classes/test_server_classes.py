from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.classes.server_classes import ServerGrouping, number_signatures
from fairbind.model import Placement
from fairbind.model.servers import BoolArray, IntArray
from fairbind.scheduling import compute_server_classes


def place(eligible_k: BoolArray) -> Placement:
    return Placement(eligible_k, None, ())


@st.composite
def worlds(draw: st.DrawFn) -> tuple[IntArray, list[BoolArray]]:
    """Nodes of a few kinds, alike or nearly so, and who may use them."""
    kinds = draw(st.lists(st.tuples(*[st.sampled_from([0, 1, 100, 101, 103, 10**15])] * 2), min_size=1, max_size=4))
    rows = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=12))
    vector = st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)).map(np.array)
    return np.array(rows, dtype=np.int64), draw(st.lists(vector, max_size=4))


@given(world=worlds(), tolerance=st.sampled_from([0.0, 0.02, 0.5]))
def test_comparing_one_node_of_each_kind_is_comparing_all(
    world: tuple[IntArray, list[BoolArray]], tolerance: float
) -> None:
    capacity_kr, eligible_sk = world
    names = [f"n{k:02d}" for k in range(len(capacity_kr))]
    signatures = [tuple(bool(eligible_k[k]) for eligible_k in eligible_sk) for k in range(len(names))]
    expected_k, expected_names = compute_server_classes(capacity_kr, signatures, names, tolerance)

    class_k, class_names = ServerGrouping().compute(names, capacity_kr, 1, map(place, eligible_sk), tolerance)

    assert (class_k.tolist(), class_names) == (expected_k.tolist(), expected_names)


def test_more_vectors_than_a_number_has_bits_are_told_apart() -> None:
    differing, equal = np.array([True, False]), np.array([True, True])

    first, second = number_signatures([differing] + 70 * [equal], 2).tolist()

    assert first != second


def test_an_answer_is_kept_until_a_capacity_changes() -> None:
    grouping, names = ServerGrouping(), ["a", "b"]
    placements = [place(np.array([True, False]))]

    first = grouping.compute(names, np.array([[1], [1]]), 1, placements, 0.0)

    assert grouping.compute(names, np.array([[1], [1]]), 1, placements, 0.0) is first
    assert grouping.compute(names, np.array([[1], [1]]), 1, [], 0.0)[1] == ("a",)
    assert grouping.compute(names, np.array([[1], [2]]), 2, [], 0.0)[1] == ("a", "b")
