"""The mix of fake nodes: always the same, every shape, in proportion."""

from __future__ import annotations

from collections import Counter

import pytest

from localplane.nodes import SHAPE_LABEL, SHAPES, make_node, mixed_nodes


def count_shapes(count: int) -> Counter[str]:
    return Counter(node["metadata"]["labels"][SHAPE_LABEL] for node in mixed_nodes(count))


def test_six_nodes_have_all_six_shapes() -> None:
    assert len(SHAPES) == 6
    assert set(count_shapes(6)) == {shape.name for shape in SHAPES}


@pytest.mark.parametrize("count", [30, 60, 1000])
def test_shapes_are_in_proportion(count: int) -> None:
    found = count_shapes(count)

    assert sum(found.values()) == count
    assert all(abs(found[shape.name] - count * shape.share / 30) <= 1 for shape in SHAPES)


def test_more_nodes_begin_with_the_same() -> None:
    assert mixed_nodes(100)[:20] == mixed_nodes(20)


def test_names_are_unique_and_carry_the_prefix() -> None:
    names = {node["metadata"]["name"] for node in mixed_nodes(500, prefix="a")}

    assert len(names) == 500
    assert all(name.startswith("a-") for name in names)


def test_node_takes_other_resources_and_taints() -> None:
    node = make_node("x", "gpu-t4", allocatable={"cpu": "1"}, taints=(), labels={"a": "b"})

    assert node["status"]["allocatable"] == {"cpu": "1"}
    assert node["spec"]["taints"] == []
    assert node["metadata"]["labels"]["a"] == "b"
    assert make_node("x", "gpu-t4")["spec"]["taints"] != []
