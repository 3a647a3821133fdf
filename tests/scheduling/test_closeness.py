"""With tiny tasks each policy comes as close to its exact mechanism as whole tasks allow: within one per cent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fairbind.model import PolicySettings, Snapshot
from fairbind.scheduling import POLICIES
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot, decide, weigh

# Tasks take 1/500 of a server, or less.
SIZE = 2_000
# What is left decides for rps-dsf, so it only leans towards ps-dsf.
APPROACHING = sorted(policy.id for policy in POLICIES.values() if policy.is_fair and policy.id != "rps-dsf")
POOLED = ["asset-fairness", "ceei", "drbf", "drf", "dynamic-drf"]
ALL_SERVERS = ["first-fit-drfh", "two-choices-drfh"]
"""They do not look for the servers that suit the tasks best."""


def build_equal_servers() -> Snapshot:
    """Three tenants with weights, one of which wants less than it could have, on four equal servers."""
    servers = build_servers({f"s{k}": (SIZE, SIZE) for k in range(4)})
    placement = build_placement(servers)
    classes = [
        build_class("cpu", (4, 1), placement, 4 * SIZE),
        build_class("memory", (1, 4), placement, 4 * SIZE),
        build_class("both", (3, 3), placement, 300),
    ]
    return build_snapshot(servers, classes, tenants=[weigh("cpu", 1), weigh("memory", 2), weigh("both", 1)])


def build_two_kinds() -> Snapshot:
    """The servers of DRFH's figure 2, a hundred times as large, and its two users with different weights."""
    servers = build_servers({"cpu": (6 * SIZE, SIZE), "memory": (SIZE, 6 * SIZE)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 5), placement, 4 * SIZE), build_class("b", (5, 1), placement, 4 * SIZE)]
    return build_snapshot(servers, classes, tenants=[weigh("a", 2), weigh("b", 1)])


def build_restricted() -> Snapshot:
    """Tenant a may use only the smaller server, b and c both."""
    servers = build_servers({"x": (SIZE, SIZE), "y": (2 * SIZE, 2 * SIZE)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (4, 4), build_placement(servers, only=["x"]), SIZE),
        build_class("b", (4, 4), everywhere, SIZE),
        build_class("c", (4, 4), everywhere, SIZE),
    ]
    return build_snapshot(servers, classes, tenants=[weigh("a"), weigh("b"), weigh("c", 2)])


CASES = [
    *((build_equal_servers, policy) for policy in APPROACHING),
    *((build_two_kinds, policy) for policy in APPROACHING if policy not in [*POOLED, *ALL_SERVERS]),
    *((build_restricted, policy) for policy in ("ps-dsf", "drfh", "alpha-pf-vds", "per-server-drf")),
]


@pytest.mark.parametrize(("build", "policy"), CASES)
def test_the_filling_comes_to_the_exact_mechanism(build: Callable[[], Snapshot], policy: str) -> None:
    snapshot = build()
    exact = make_exact_problem(snapshot, PolicySettings(policy))
    assert exact is not None
    answer = solve_exactly(exact)

    report = decide(replace(snapshot, targets=answer.targets), policy)

    weight_of = {tenant.name: float(tenant.weight) for tenant in snapshot.tenants}
    filled = {name: share * weight_of[name] for name, share in report.weighted_shares}
    for name, share in answer.fair_shares.items():
        assert filled[name] == pytest.approx(share, rel=0.01), name
