from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from fairbind.cluster.tenancy.administration import Administration
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.model import PolicySettings


class FakeWorld:
    def __init__(self) -> None:
        self.tenants: list[TenantSpec] = []
        self.applied: list[PolicySettings | None] = [None]
        self.changes = 0
        self.administration = Administration(self, self._note, AdministrationLog())

    def _note(self) -> None:
        self.changes += 1

    def replace_tenants(self, specs: list[TenantSpec]) -> None:
        self.tenants = specs

    def set_policy(self, settings: PolicySettings | None) -> None:
        self.applied.append(settings)

    @property
    def weights(self) -> dict[str, Fraction]:
        return {spec.name: spec.weight for spec in self.tenants}


def make(name: str, version: int, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": f"{name}-uid", "resourceVersion": str(version), "generation": version}
    return {"metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


def test_every_change_of_tenants_reaches_the_mirror(world: FakeWorld) -> None:
    tenants = world.administration.tenants
    tenants.replace([make("a", 1, weight=2)], "2")
    tenants.apply(make("b", 3, weight="500m"))
    assert world.weights == {"a": 2, "b": Fraction(1, 2)}
    tenants.delete(make("a", 4))
    assert world.weights == {"b": Fraction(1, 2)}
    assert world.changes == 3


def test_a_tenant_that_cannot_be_meant_is_left_out_and_named(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    tenants = world.administration.tenants
    tenants.replace([make("good", 1), make("bad", 2, weight="plenty")], "3")
    assert world.weights == {"good": 1}
    assert "spec.weight" in world.administration.invalid_tenants["bad"]
    assert "Tenant bad is left out" in caplog.text
    tenants.apply(make("bad", 4, weight=3))
    assert world.weights == {"good": 1, "bad": 3}
    assert world.administration.invalid_tenants == {}


def test_the_same_problem_is_logged_once(world: FakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    tenants = world.administration.tenants
    tenants.apply(make("bad", 1, weight=0))
    tenants.apply(make("other", 2))
    assert caplog.text.count("Tenant bad is left out") == 1


def test_only_the_default_policy_applies_and_without_it_the_defaults(world: FakeWorld) -> None:
    policies = world.administration.policies
    policies.apply(make("other", 1, policy="fifo"))
    policies.apply(make("default", 2, policy="ps-dsf"))
    policies.apply(make("default", 3, policy="fifo", serverClassTolerance="0.1"))
    policies.delete(make("default", 4))
    assert world.applied == [
        None,
        None,
        PolicySettings("ps-dsf"),
        PolicySettings("fifo", server_class_tolerance=0.1),
        None,
    ]
    assert world.administration.invalid_policies == {"other": "metadata.name must be default, not other"}


def test_a_policy_that_cannot_be_meant_gives_way_to_the_defaults(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    policies = world.administration.policies
    policies.apply(make("default", 1, policy="fifo"))
    policies.apply(make("default", 2, policy="nicest-first"))
    assert world.applied[-1] is None
    assert "nicest-first" in world.administration.invalid_policies["default"]
    assert "SchedulingPolicy default is left out" in caplog.text


def test_the_log_tells_what_applies(world: FakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    spec = {"policy": "fifo", "fairnessResources": ["cpu"], "nodeSelector": {"pool": "shared"}}
    world.administration.policies.apply(make("default", 1, **spec))
    assert "policy: fifo; server class tolerance 0.02; shares count cpu; nodes with pool=shared" in caplog.text
    world.administration.policies.apply(make("default", 2, unclaimedNamespaces="refuse"))
    assert "server class tolerance 0.02; unclaimed namespaces: refuse" in caplog.text
    world.administration.policies.delete(make("default", 3))
    assert "policy: best-fit-drfh" in caplog.text
    assert "there is no valid SchedulingPolicy 'default'" in caplog.text
