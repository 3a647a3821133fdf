from __future__ import annotations

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.scheduling import POLICIES
from fairbind.what_if.advice import advise, find_representatives
from fairbind.what_if.listed_objects import ListedObjects
from what_if.snapshots import make_snapshot, make_tenant, make_two_tenants

LARGE = {"cpu": "32", "memory": "128Gi", "pods": "110"}
DATABASE = {"cpu": "32", "memory": "3360Gi", "pods": "110"}


def make_pods(tenant: str, count: int, **requests: str) -> list[Json]:
    return [make_pod(f"{tenant}-{number}", namespace=tenant, requests=requests) for number in range(count)]


def make_example(*tenants: Json) -> ListedObjects:
    """The example of docs/concepts.md: memory that neither tenant can use makes memory look cheap."""
    taints = [{"key": "database", "effect": "NoSchedule"}]
    return make_snapshot(
        nodes=[
            *(make_node(f"n-{number}", allocatable=LARGE) for number in range(5)),
            make_node("n-5", allocatable=DATABASE, taints=taints),
        ],
        pods=[*make_pods("a", 90, cpu="1", memory="8Gi"), *make_pods("b", 90, cpu="2", memory="1Gi")],
        tenants=tenants or [make_tenant("a"), make_tenant("b")],
    )


def test_who_loses_by_totals_is_named_and_the_other_policy_recommended() -> None:
    found = advise(make_example())

    assert [loss.tenant for loss in found.losses] == ["b"]
    # In pods that can be divided: by totals a has 2 pods for each of b, and (16 + 1) GiB of 640 go to each such three;
    # on the five nodes both have as many, and (1 + 2) CPUs of 160 go to each two.
    pods_by_totals, pods_by_classes = 640 / 17, 160 / 3
    assert found.losses[0].part == pytest.approx(1 - pods_by_totals / pods_by_classes, abs=1e-6)
    assert found.losses[0].pods_by_totals == pytest.approx(pods_by_totals)
    assert found.losses[0].pods_by_classes == pytest.approx(pods_by_classes)
    assert found.recommended == "ps-dsf"
    assert found.reason.startswith("shares of totals hurt b: 37.6 pods in place of 53.3, 29% less")


def test_where_all_nodes_serve_all_the_default_is_recommended() -> None:
    found = advise(make_two_tenants())

    assert found.losses == ()
    assert found.recommended == "best-fit-drfh"
    assert found.fair_shares["best-fit-drfh"] == pytest.approx({"a": 0.5, "b": 0.5})


def test_every_policy_with_a_mechanism_has_a_column_or_a_reason() -> None:
    found = advise(make_two_tenants())
    mechanisms = {POLICIES[policy].mechanism for policy in (*found.fair_shares, *found.left_out)}

    assert mechanisms == {policy.mechanism for policy in POLICIES.values()} - {None}
    assert len(find_representatives()) == len(mechanisms)
    assert found.left_out == {}


def test_a_cluster_where_no_pod_waits_has_advice_too() -> None:
    found = advise(make_snapshot(nodes=[make_node()], pods=[]))

    assert (found.recommended, found.losses) == ("best-fit-drfh", ())
    assert "no more than one tenant" in found.reason


def test_it_is_described_in_plain_values() -> None:
    found = advise(make_example()).describe()

    assert found.keys() == {"policy", "fair_shares", "left_out", "losers", "recommendation"}
    assert found["losers"][0].keys() == {
        "tenant",
        "by_totals",
        "by_classes",
        "part_lost",
        "pods_by_totals",
        "pods_by_classes",
    }
    assert found["fair_shares"]["ps-dsf"].keys() == {"a", "b"}


def test_what_does_not_end_in_a_tree_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flattened shares beside others of the tree would tell of losses by the flattening."""
    team = make_tenant("team", namespaces=[])
    below = make_tenant("a", parent="team"), make_tenant("b", parent="team")
    monkeypatch.setattr("fairbind.scheduling.fair_shares.problem.TREE_EFFORT", 1)
    found = advise(make_example(team, *below))
    assert {"best-fit-drfh", "tsf", "ps-dsf"} <= found.left_out.keys()
    assert "drf" in found.fair_shares
    assert found.losses == ()
