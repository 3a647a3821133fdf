"""Torn groups are found, also those that are torn for too long and whole in the end; and nothing else is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from e2e.checks import View, is_waiting
from faults.groups import (
    SIZES,
    TORN_SECONDS,
    TornGroups,
    count_room,
    draw_members,
    find_groups,
    find_incomplete,
    find_whole,
    get_group,
    make_member,
    make_successor,
)
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Json

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
GROUP = ("red", "g")


def pod(node: str = "", phase: str = "Running") -> Json:
    """A pod of a group of three, each of half a core."""
    made = make_member("g", 3, SIZES[0])
    made["metadata"]["namespace"] = "red"
    made["spec"] |= {"nodeName": node} if node else {}
    return {**made, "status": {"phase": phase if node else "Pending"}}


def see(*pods: Json, cores: tuple[str, ...] = ("1", "1")) -> View:
    nodes = {}
    for name, cpu in zip("ab", cores, strict=False):
        made = make_node(name, taints=[])
        allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
        nodes[name] = made | {"spec": {}, "status": {**READY, "allocatable": allocatable}}
    view = View(nodes, list(pods), {}, {})
    view.used = view.sum_by_node()
    return view


def find(*pods: Json, cores: tuple[str, ...] = ("1", "1")) -> dict[tuple[str, str], tuple[int, int]]:
    return find_incomplete(see(*pods, cores=cores), is_waiting, stood=[GROUP])


def test_a_group_is_incomplete_where_all_that_it_lacks_would_fit() -> None:
    assert find(pod(), pod(), pod()) == {GROUP: (0, 3)}
    assert find(pod("a"), pod(), pod()) == {GROUP: (1, 3)}
    assert find(pod("a"), pod("b"), pod("b"), pod()) == {GROUP: (3, 3)}, "one above the minimum waits beside room"
    assert find(pod(), pod(), pod(), cores=("1",)) == {}, "there is room for two"
    assert find(pod("a"), pod(), pod(), cores=("1",)) == {}, "it stood, and there is room for one"
    assert find(pod("a"), pod()) == {}, "the third does not exist"
    assert find(pod("a"), pod("a", "Failed"), pod()) == {}, "the third has ended"
    assert find(pod("a"), pod("a"), pod("b")) == {}


def test_room_is_counted_in_whole_pods_of_each_node() -> None:
    assert count_room(see(cores=("700m", "1400m")), pod()) == 3
    assert count_room(see(pod("a"), pod("b"), cores=("700m", "1400m")), pod()) == 1


def test_groups_that_are_torn_at_the_last_look_or_were_for_too_long_are_named() -> None:
    now = 0.0
    torn = TornGroups(lambda: now)
    torn.begin()
    torn.note({GROUP: (1, 3), ("red", "none"): (0, 2), ("red", "whole"): (2, 2)})
    assert torn.find() == ["group red/g is torn"]
    now = TORN_SECONDS
    torn.note({})
    assert torn.find() == []
    torn.note({GROUP: (1, 3)})
    now += TORN_SECONDS + 1.0
    torn.note({GROUP: (2, 3)})
    torn.note({})
    assert torn.find() == ["group red/g is torn"]
    torn.begin()
    assert torn.find() == []


@pytest.mark.parametrize("seed", range(5))
def test_members_of_a_group_and_their_successors_say_the_same(seed: int) -> None:
    first, *others = draw_members(random.Random(seed))
    members = [first, *others, make_successor(first)]
    assert others
    assert len({get_group(each) for each in members}) == 1
    assert {each["metadata"]["annotations"].popitem()[1] for each in members} == {str(len(others) + 1)}
    assert len({str(each["spec"]) for each in members}) == 1
    assert len({each["metadata"]["name"] for each in members}) == len(members)


def test_whole_groups_are_found() -> None:
    view = see(pod("a"), pod("a"), pod("b"))
    assert [len(pods) for pods in find_groups(view).values()] == [3]
    assert find_whole(view, is_waiting) == {GROUP}
    assert find_whole(see(pod("a"), pod("a")), is_waiting) == set()


def test_a_group_that_has_begun_and_never_stood_is_torn_also_without_room() -> None:
    begun, whole = see(pod("a"), pod(), pod(), cores=("1",)), see(pod("a"), pod("a"), pod("b"))
    torn = TornGroups()
    assert torn.look(begun, is_waiting) == {GROUP: (1, 3)}
    assert torn.find() == ["group red/g is torn"]
    assert torn.look(whole, is_waiting) == {}
    assert torn.look(begun, is_waiting) == {}, "it stood, and the cluster shrank"
    assert torn.find() == []
