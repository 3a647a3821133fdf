"""After a backlog on real nodes every policy has placed what the slow filling places, give or take one pod a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import TENANTS
from e2e.waiting import wait_for
from fairbind.model import PolicySettings
from fairbind.scheduling import POLICIES
from kind.arena import Arena, find_apart, open_arena
from kind.judge import check_shares, wait_calm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api
    from kind.release import Release
    from kindcluster.cluster import Cluster


@dataclass(frozen=True)
class Case:
    """A policy. options: for the exact mechanism. spec: the same as the SchedulingPolicy says it."""

    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


SEED = 7
OPTIONS: Mapping[str, Case] = {
    "alpha-pf-vds": Case("alpha-pf-vds", {"alpha": 1.0}, {"alphaPfVds": {"alpha": 1}}),
    "dynamic-drf": Case("dynamic-drf", {"expected_tenants": 4}, {"dynamicDrf": {"expectedTenants": 4}}),
    "two-choices-drfh": Case("two-choices-drfh", {}, {"twoChoicesDrfh": {"seed": SEED}}),
}


@pytest.fixture(scope="module")
def arena(kind_cluster: Cluster, fairbind_installed: Release, api: Api) -> Iterator[Arena]:
    wait_calm(api)
    with open_arena(kind_cluster, fairbind_installed, api) as arena:
        yield arena


def judge(arena: Arena, case: Case, weights: Mapping[str, float] | None = None) -> dict[str, int]:
    """Play a round; check that it ends as the slow filling does, and return how many pods of each tenant run."""
    policy = POLICIES[case.policy]
    scene = arena.make_scene(weights)
    exact = scene.solve(policy.mechanism or "drfh", **case.options)
    names = exact.problem.tenant_names
    totals = dict(zip(names, exact.totals_i.tolist(), strict=True))
    fair = dict(zip(names, exact.dominant_shares_i.tolist(), strict=True)) if policy.mechanism else None

    placed, waiting = arena.play(case.policy, totals, fair, **case.spec)

    targets = scene.make_targets(exact) if policy.follows_targets else None
    expected = scene.fill(PolicySettings(case.policy, seed=SEED), waiting, targets)
    assert find_apart(placed, expected) == [], f"{placed}, not {expected}"
    return placed


@pytest.mark.nightly  # each change tries best-fit-drfh, whose weights change below; e2e tries them without kubelets
@pytest.mark.parametrize("policy", POLICIES)
def test_a_backlog_is_shared_as_the_reference_does(arena: Arena, policy: str) -> None:
    judge(arena, OPTIONS.get(policy, Case(policy)))


def test_weights_that_kubectl_changes_act(kind_cluster: Cluster, arena: Arena, api: Api) -> None:
    case = Case("best-fit-drfh")
    even = judge(arena, case)
    tenant = arena.names["b"]
    try:
        kind_cluster.kubectl("patch", "tenant", tenant, "--type=merge", '--patch={"spec":{"weight":3}}')
        wait_for(
            lambda: arena.release.metrics().value("fairbind_tenant_weight", tenant=tenant) == 3.0,
            describe="the operator to see the new weight",
        )
        heavy = judge(arena, case, {"b": 3})
        assert heavy["b"] > even["b"]
        assert any(heavy[name] < even[name] for name in ("a", "c"))  # whoever else wants what `b` got
        shares = check_shares(api, *arena.names.values(), nodes=kind_cluster.workers())
        assert {name: shares[arena.names[name]]["running"] for name in heavy} == heavy
    finally:
        api.patch(f"{TENANTS}/{tenant}", {"spec": {"weight": 1}})
