"""Why pods wait, on clusters small enough to count by hand."""

from __future__ import annotations

from typing import Any

from cluster.builders import make_node, make_pod
from fairbind.cluster.cache.tenant_ranking import Standing
from fairbind.what_if.explanation import Explained, explain_pods, list_refusals
from fairbind.what_if.listed_objects import ListedObjects
from what_if.snapshots import make_snapshot, make_tenant

BIG = {"cpu": "4", "memory": "16Gi", "pods": "110"}


def make_pods(tenant: str, running: int, waiting: int, **spec: Any) -> list[dict[str, Any]]:
    return [
        make_pod(
            f"{tenant}-{number}",
            namespace=tenant,
            requests={"cpu": "1"},
            node="n-1" if number < running else None,
            phase="Running" if number < running else "Pending",
            created=f"2026-01-01T00:0{number}:00Z",
            **spec,
        )
        for number in range(running + waiting)
    ]


def make_cluster(*, policy: str = "best-fit-drfh") -> ListedObjects:
    """Four cores, all held: 3 by a, 1 by b. Both want 2 more; c holds nothing and wants one. n-2 is tainted."""
    taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    return make_snapshot(
        nodes=[make_node("n-1", allocatable=BIG), make_node("n-2", allocatable=BIG, taints=[taint])],
        pods=[*make_pods("a", 3, 2), *make_pods("b", 1, 2), *make_pods("c", 0, 1)],
        tenants=[make_tenant(name) for name in "abc"],
        policy={"policy": policy},
    )


def explain(listed: ListedObjects, *names: str, most_changes: int = 1, **more: Any) -> list[Explained]:
    return explain_pods(listed, [f"uid-{name}" for name in names], most_changes=most_changes, **more)


def test_equal_pods_are_one_group_with_nodes_by_reason_and_who_comes_before() -> None:
    (found,) = explain(make_cluster(), "a-4", "a-3", most_changes=0)

    assert (found.namespace, found.tenant, found.pods) == ("a", "a", ("a-3", "a-4"))
    assert found.requests == {"cpu": "1"}
    assert list_refusals(found) == [(1, "Insufficient cpu"), (1, "node(s) had untolerated taint {gpu: true}")]
    assert found.tenants_before == (Standing("c", 0.0), Standing("b", 0.125))
    assert (found.share, found.own_before, found.change) == (0.375, 0, None)
    assert found.describe()["next"] == {"tenant": "c", "share": 0.0}


def test_what_is_asked_of_one_pod_counts_those_before_it() -> None:
    (found,) = explain(make_cluster(), "a-4")

    assert (found.pods, found.own_before) == (("a-4",), 1)
    assert found.change is not None
    assert found.change.text == "a toleration of the taint gpu=true:NoSchedule"


def test_the_least_has_no_tenant_before_it() -> None:
    (found,) = explain(make_cluster(), "c-0")

    assert (found.tenants_before, found.describe()["next"]) == ((), None)


def test_in_a_tree_siblings_are_compared() -> None:
    """Of a team's four cores a holds none; its sibling b and the team as a whole hold more than c."""
    listed = make_snapshot(
        nodes=[make_node("n-1", allocatable=BIG)],
        pods=[*make_pods("a", 0, 1), *make_pods("b", 3, 1), *make_pods("c", 1, 1)],
        tenants=[
            make_tenant("team", namespaces=[]),
            make_tenant("a", parent="team"),
            make_tenant("b", parent="team"),
            make_tenant("c"),
        ],
    )
    a, b, c = (
        explain(listed, f"{name}-{number}", most_changes=0)[0] for name, number in (("a", 0), ("b", 3), ("c", 1))
    )

    assert c.tenants_before == ()
    assert a.tenants_before == (Standing("c", 0.25, ("c", "team", 0.75)),)
    assert b.tenants_before == (*a.tenants_before, Standing("a", 0.0))
    compared = {"tenant": "c", "with": "team", "ownShare": 0.75}
    assert b.describe()["tenantsBefore"] == [
        {"tenant": "c", "weightedShare": 0.25, "compared": compared},
        {"tenant": "a", "weightedShare": 0.0},
    ]


def test_without_fairness_no_tenant_comes_before() -> None:
    (found,) = explain(make_cluster(policy="fifo"), "a-4")

    assert (found.tenants_before, found.own_before) == ((), 1)


def test_what_starts_now_says_where() -> None:
    listed = make_snapshot(nodes=[make_node("n-1", allocatable=BIG)], pods=make_pods("a", 1, 2))
    (found,) = explain(listed, "a-1", "a-2")

    assert (found.node, found.pods, found.wait, found.change) == ("n-1", ("a-1", "a-2"), None, None)


def test_gates_and_what_is_not_honoured_have_their_own_words() -> None:
    gated = make_pods("a", 0, 1, schedulingGates=[{"name": "mine"}])
    odd = make_pods("b", 0, 1, resourceClaims=[{"name": "x"}])
    listed = make_snapshot(nodes=[make_node("n-1", allocatable=BIG)], pods=[*gated, *odd])
    first, second = explain(listed, "a-0", "b-0")

    assert first.reason == "pod has scheduling gates: mine"
    assert second.wait is not None
    assert second.wait.blocked is not None
    assert second.change is None


def test_a_wait_is_estimated_from_given_run_times() -> None:
    (found,) = explain(make_cluster(), "c-0", given_run_times={"a": [100.0], "b": [100.0]})

    assert found.estimate is not None
    assert found.estimate.median > 0


def test_pods_of_other_schedulers_are_left_out() -> None:
    listed = make_snapshot(nodes=[make_node("n-1")], pods=make_pods("a", 0, 1, scheduler="default-scheduler"))

    assert explain(listed, "a-0") == []
