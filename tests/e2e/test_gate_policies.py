"""Gate mode with each policy: the real kube-scheduler places the pods, and tenants get what they get in bind mode.

The backlog of two thousand pods stays from one policy to the next; only what was let through is made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e.backlogs import Backlog, make_case, opening_backlog
from e2e.leases import hold_lease, renew_lease
from e2e.test_admission import ENFORCED
from e2e.test_admission_gate import REQUIRED, find_gates
from e2e.test_operator_policies import Case, has_fair_shares
from e2e.turns import gating, wait_gated
from e2e.waiting import wait_for
from fairbind.scheduling import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Json
    from e2e.clusters import Cluster
    from e2e.conftest import StartOperator

pytestmark = [pytest.mark.local_plane, pytest.mark.nightly]


@pytest.fixture(scope="module")
def backlog(cluster: Cluster) -> Iterator[Backlog]:
    with gating(cluster), opening_backlog(cluster, find_gates, ENFORCED) as backlog:
        for space in backlog.spaces.values():
            wait_gated(cluster.api, space)
        yield backlog


def is_narrowed(pod: Json) -> bool:
    """Tell whether a pod was narrowed to some nodes: the tests' own pods ask for none."""
    return REQUIRED in pod["spec"].get("affinity", {}).get("nodeAffinity", {})


@pytest.mark.parametrize("case", [make_case(name) for name in POLICIES], ids=lambda case: case.policy)
def test_shares_of_two_thousand_pods_are_those_of_bind_mode(
    backlog: Backlog, policy: Callable[..., None], operator: StartOperator, case: Case
) -> None:
    """An operator that follows a mechanism leads when it knows the mechanism's answer, so that it decides all by it."""
    api, chosen = backlog.api, POLICIES[case.policy]
    backlog.stock()
    policy(policy=case.policy, guided=False, **case.spec)
    expected = backlog.compute_expected(case)
    with hold_lease(api) as let_go:
        started = operator("--mode", "gate")
        if chosen.follows_targets:
            exact = case.solve()
            fair = dict(zip(exact.problem.tenant_names, exact.dominant_shares_i.tolist(), strict=True))

            def has_fair_shares_meanwhile() -> bool:
                renew_lease(api)
                return has_fair_shares(started, backlog.stem, fair)

            wait_for(has_fair_shares_meanwhile, describe=f"fair shares {fair}")
        let_go()

        backlog.wait_shared(expected)

    passed = backlog.list_passed()
    assert len(passed) == sum(expected.values()), "no more gates are open than the nodes can hold"
    assert {is_narrowed(pod) for pod in passed} == {chosen.decides_class}
    started.stop()
