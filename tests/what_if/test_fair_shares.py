"""Targets of a simulated cluster: solved for where they guide something, and no more often than they are wanted."""

from __future__ import annotations

import pytest

from cluster.builders import Cluster, make_node, make_pod, read_pod
from fairbind.model import PolicySettings
from fairbind.what_if.fair_shares import FairShares


def build(*cpus: str, policy: str = "best-fit-drfh", guided: bool = True) -> Cluster:
    cluster = Cluster()
    cluster.cache.set_policy(PolicySettings(policy, guided=guided))
    nodes = [make_node(f"n{n}", allocatable={"cpu": cpu, "memory": "8Gi", "pods": "9"}) for n, cpu in enumerate(cpus)]
    cluster.add_nodes(*nodes)
    cluster.cache.pods.apply(read_pod(make_pod("p", requests={"cpu": "1"})))
    return cluster


@pytest.mark.parametrize(
    ("cpus", "settings", "has_targets"),
    [
        (("4", "8"), {}, True),
        (("4", "8"), {"guided": False}, False),
        (("4", "4"), {}, False),
        (("4", "4"), {"policy": "drfh"}, True),
        (("4", "8"), {"policy": "asset-fairness"}, False),
        (("4", "8"), {"policy": "drf", "guided": False}, True),
    ],
)
def test_it_solves_where_a_policy_reads_the_answer(
    cpus: tuple[str, ...], settings: dict[str, str | bool], *, has_targets: bool
) -> None:
    cluster = build(*cpus, **settings)  # type: ignore[arg-type]  # the names are those of the parameters
    cache = cluster.cache
    FairShares(cache, cache.settings.policy).follow()

    assert (cache.state.policy.targets is not None) == has_targets


def test_targets_are_good_for_a_while() -> None:
    cluster = build("4", "8")
    fair_shares = FairShares(cluster.cache, "best-fit-drfh", every=10)
    fair_shares.follow(0)
    first = cluster.cache.state.policy.targets
    cluster.cache.pods.apply(read_pod(make_pod("q", namespace="other", requests={"cpu": "1"})))

    fair_shares.follow(9)
    assert cluster.cache.state.policy.targets is first
    fair_shares.follow(10)
    assert cluster.cache.state.policy.targets is not first
