"""After a backlog of tiny pods on a real control plane: each policy's shares are those of its exact mechanism.

A test holds the operator's lease until the exact answer is known, so that also the policies that follow it decide
everything by it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from e2e.checks import View
from e2e.conftest import remove
from e2e.fillings import Scene, make_requests
from e2e.objects import make_name, make_pod
from e2e.operators import NAMESPACE
from e2e.waiting import wait_for
from e2e.workloads import count_bindings, create_pods, list_pods
from fairbind.model import PolicySettings, Task
from fairbind.scheduling import POLICIES
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Operator
    from fairbind.fairness.allocation import Allocation

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
CLOSE = 0.01
ENOUGH = 1.03
"""Each tenant has so many times the pods that it can get, and some more: nobody ever has enough."""

PODS = {"a": (1, 0.5), "b": (0.25, 1), "c": (0.75, 1)}
ALIKE = Scene({"n1": (500, 500), "n2": (125, 125)}, PODS)
FOUR = Scene({f"n{k}": (125, 125) for k in range(4)}, PODS, {"a": 2})
UNLIKE = Scene({"n1": (500, 200), "n2": (200, 400)}, {"a": (1, 0.25), "b": (0.5, 1), "c": (0.75, 0.75)}, {"a": 2})


@dataclass(frozen=True)
class Case:
    """A policy on a scene. options: for the exact mechanism. spec: the same as the SchedulingPolicy says it."""

    policy: str
    scene: Scene
    options: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def solve(self) -> Allocation:
        mechanism = POLICIES[self.policy].mechanism
        assert mechanism is not None
        return self.scene.solve(mechanism, **self.options)

    def fill(self, exact: Allocation, waiting: Mapping[str, Sequence[Task]]) -> dict[str, int]:
        """Return what the slow filling places of these."""
        targets = self.scene.make_targets(exact) if POLICIES[self.policy].follows_targets else None
        return self.scene.fill(PolicySettings(self.policy, seed=self.spec.get("seed", 0)), waiting, targets)


CASES = [
    Case("two-choices-drfh", FOUR, spec={"seed": 7}),
    Case("tsf", UNLIKE),
    Case("asset-fairness", ALIKE),
    Case("alpha-pf-vds", UNLIKE, {"alpha": 1.0}, {"alpha": 1}),
    Case("per-server-drf", UNLIKE),
    Case("ceei", ALIKE),
    Case("drbf", ALIKE),
]
LIKE_DEFAULT = {"two-choices-drfh"}
RESERVED = Case("dynamic-drf", ALIKE, {"expected_tenants": 4}, {"expectedTenants": 4})


@contextlib.contextmanager
def hold_lease(api: Api) -> Iterator[Callable[[], None]]:
    """Lead in an operator's place; the function lets go."""
    path = f"{LEASES}/fairbind"
    remove(api, path)
    now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    spec = {"holderIdentity": "a test", "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}
    api.post(LEASES, {"metadata": {"name": "fairbind"}, "spec": spec})
    try:
        yield lambda: api.patch(path, {"spec": {"holderIdentity": ""}})
    finally:
        api.patch(path, {"spec": {"holderIdentity": ""}})


@dataclass(frozen=True)
class Stage:
    """The fixtures of a test as one."""

    cluster: Cluster
    nodes: MakeNodes
    namespace: MakeNamespace
    tenant: MakeTenant
    policy: Callable[..., None]
    operator: StartOperator

    def play(self, case: Case, exact: Allocation, *, factor: float = ENOUGH) -> dict[str, int]:
        """Place a backlog; check that what runs is what the slow filling places, and return how many of each tenant.

        factor: so many times what the mechanism gives each tenant has pods.
        """
        api, scene, stem = self.cluster.api, case.scene, make_name("p")
        self.nodes(
            [
                make_node(f"{stem}-{name}", allocatable={**make_requests(amounts), "pods": "2000"})
                for name, amounts in scene.nodes.items()
            ]
        )
        self.policy(policy=case.policy, **case.spec)
        spaces = {name: self.namespace() for name in scene.pods}
        for (name, space), total in zip(spaces.items(), exact.totals_i.tolist(), strict=True):
            self.tenant(f"{stem}-{name}", namespaces=[space], weight=scene.weights.get(name, 1))
            create_pods(api, space, [make_pod(make_requests(scene.pods[name])) for _ in range(int(factor * total) + 5)])
        with hold_lease(api) as let_go:
            running = self.operator()
            fair = dict(zip(exact.problem.tenant_names, exact.dominant_shares_i.tolist(), strict=True))
            wait_for(lambda: has_fair_shares(running, stem, fair), describe=f"fair shares {fair}")
            assert count_bindings(running) == 0
            let_go()
            wait_for(lambda: is_settled(running), describe="all to be placed that fits", pause=0.25)
        overcommitted = View.take(api).find_overcommitted()
        assert not overcommitted, overcommitted
        pods = {name: list_pods(api, space) for name, space in spaces.items()}
        placed = {name: sum(1 for pod in some if pod["spec"].get("nodeName")) for name, some in pods.items()}
        expected = case.fill(exact, {name: [make_task(pod) for pod in some] for name, some in pods.items()})
        assert max(abs(placed[name] - count) for name, count in expected.items()) <= 1, f"{placed}, not {expected}"
        return placed


@pytest.fixture
def stage(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    policy: Callable[..., None],
    operator: StartOperator,
) -> Stage:
    return Stage(cluster, nodes, namespace, tenant, policy, operator)


def has_fair_shares(running: Operator, stem: str, fair: Mapping[str, float]) -> bool:
    metrics = running.metrics()
    seen = {name: metrics.value("fairbind_tenant_fair_share", tenant=f"{stem}-{name}") for name in fair}
    assert seen == pytest.approx(fair, rel=1e-6)
    return True


def is_settled(running: Operator) -> bool:
    """Whether everybody has waiting pods and all of them have had their turn in vain."""
    metrics = running.metrics()
    waiting = {sample.labels["tenant"] for sample in metrics.select("fairbind_tenant_pending_pods") if sample.value}
    reasons = {sample.labels["reason"] for sample in metrics.select("fairbind_tenant_pending_pods") if sample.value}
    return len(waiting) == len(PODS) and reasons == {"insufficient"}


def make_task(pod: Json) -> Task:
    meta = pod["metadata"]
    created = dt.datetime.fromisoformat(meta["creationTimestamp"]).timestamp()
    return Task(meta["uid"], meta["name"], 0, created)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.policy)
def test_a_policy_comes_to_its_exact_mechanism(stage: Stage, case: Case) -> None:
    exact = case.solve()
    by_default = case.scene.solve("drfh")
    assert case.policy in LIKE_DEFAULT or np.abs(exact.totals_i / by_default.totals_i - 1).max() > 5 * CLOSE

    placed = stage.play(case, exact)

    for name, total in zip(exact.problem.tenant_names, exact.totals_i.tolist(), strict=True):
        assert placed[name] == pytest.approx(total, rel=CLOSE), name


def test_dynamic_drf_keeps_fair_shares_for_whom_it_expects_and_no_room(stage: Stage) -> None:
    exact = RESERVED.solve()
    assert exact.dominant_shares_i.sum() < 0.8 * replace(RESERVED, options={}).solve().dominant_shares_i.sum()

    placed = stage.play(RESERVED, exact, factor=1.37)

    ratios = [placed[n] / total for n, total in zip(exact.problem.tenant_names, exact.totals_i.tolist(), strict=True)]
    assert min(ratios) > 1.3  # the part of the fourth is used meanwhile
    assert max(ratios) == pytest.approx(min(ratios), rel=CLOSE)
