"""A user is a label that members choose: what one tenant may have at most, its users have together."""

from __future__ import annotations

from typing import Any

from cluster.limited import World, make_pods, make_tenant
from fairbind.cluster.state.kubelet_refusals import (
    FIRST_REST_SECONDS,
    MOST_KNOWN,
    MOST_REFUSALS,
    KubeletRefusals,
    find_kind,
)

USERS: dict[str, Any] = {"users": {"label": "user"}}
REFUSED = {"phase": "Failed", "reason": "OutOfcpu"}


def test_a_node_rests_for_all_users_of_a_tenant_after_refusals_of_several() -> None:
    world = World(make_tenant("a", **USERS), make_tenant("b"), nodes=2)
    for n in range(MOST_REFUSALS):
        (pod,) = make_pods("a", 1, f"x{n}-", node="n0", labels={"user": f"u{n}"})
        world.add_pods(pod)
        world.change_pod(pod, lambda pod: pod["status"].update(REFUSED))
    world.add_pods(*make_pods("a", 1, labels={"user": "another"}), *make_pods("b", 1))

    def find_open() -> dict[str, list[bool]]:
        return {it.tenant: list(it.placement.eligible_k) for it in world.cache.build_snapshot().task_classes}

    assert find_open() == {"another@a": [False, True], "b": [True, True]}
    assert [rest.tenant for rest in world.cache.advance_rests(0.0)] == ["a"]
    world.cache.advance_rests(FIRST_REST_SECONDS)
    assert find_open() == {"another@a": [True, True], "b": [True, True]}
    world.cache.check_consistent()


def test_refusals_of_many_users_are_no_more_than_those_of_one_tenant() -> None:
    refusals = KubeletRefusals()
    for n in range(MOST_KNOWN + 5):
        kind = find_kind(f"u{n}@a", (("cpu", n),))
        for _ in range(MOST_REFUSALS):
            refusals.refuse(kind, f"n{n}")
    assert len(refusals.list_refusing()) == MOST_KNOWN
