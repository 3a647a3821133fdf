"""What the kube-scheduler of a control plane chose is held against the oracle's points."""

from __future__ import annotations

import pytest

from differential.living import judge_choice

SCORES = {"a": {"one": 5, "other": 1}, "b": {"other": 6}, "c": {"one": 5}}


@pytest.mark.parametrize(("node", "faults"), [("a", 0), ("b", 0), ("c", 1), ("gone", 1)])
def test_a_node_that_is_worth_less_than_another_is_a_fault(node: str, faults: int) -> None:
    assert len(list(judge_choice(node, SCORES))) == faults


def test_a_node_without_others_has_no_points_and_is_none() -> None:
    assert list(judge_choice("a", {})) == []
