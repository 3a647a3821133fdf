from __future__ import annotations

from typing import Any

import pytest

from fairbind.cluster.tenancy.policies import parse_policy
from fairbind.model import InvalidProblemError, PolicySettings, Unclaimed


def make(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "default"}, "spec": spec}


def test_an_empty_policy_says_what_the_defaults_say() -> None:
    assert parse_policy(make()) == PolicySettings()
    assert parse_policy({"metadata": {"name": "default"}}) == PolicySettings()


def test_every_field_is_read() -> None:
    settings = parse_policy(
        make(
            policy="ps-dsf",
            fairnessResources=["memory", "cpu", "cpu"],
            serverClassTolerance=0,
            nodeSelector={"pool": "b", "arch": "amd64"},
            alpha=3,
            expectedTenants=7,
            seed=-5,
            unclaimedNamespaces="together",
        )
    )
    selector = (("arch", "amd64"), ("pool", "b"))
    assert settings == PolicySettings("ps-dsf", ("cpu", "memory"), 0.0, selector, 3.0, 7, -5, Unclaimed.TOGETHER)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"policy": "nicest-first"}, "spec.policy"),
        ({"fairnessResources": "cpu"}, "spec.fairnessResources"),
        ({"fairnessResources": [1]}, "spec.fairnessResources"),
        ({"serverClassTolerance": 0.6}, "spec.serverClassTolerance"),
        ({"serverClassTolerance": "0.1"}, "spec.serverClassTolerance"),
        ({"serverClassTolerance": True}, "spec.serverClassTolerance"),
        ({"alpha": 0}, "spec.alpha"),
        ({"alpha": 0.009}, "spec.alpha must be a number from 0.01 to 100"),
        ({"alpha": 101}, "spec.alpha"),
        ({"alpha": "2"}, "spec.alpha"),
        ({"alpha": None}, "spec.alpha"),
        ({"expectedTenants": 0}, "spec.expectedTenants"),
        ({"expectedTenants": 2.5}, "spec.expectedTenants"),
        ({"expectedTenants": None}, "spec.expectedTenants"),
        ({"seed": 2**63}, "spec.seed"),
        ({"seed": 0.5}, "spec.seed"),
        ({"unclaimedNamespaces": "nobody"}, "spec.unclaimedNamespaces must be one of tenant, together, refuse"),
        ({"unclaimedNamespaces": ["refuse"]}, "spec.unclaimedNamespaces"),
        ({"unclaimedNamespaces": None}, "spec.unclaimedNamespaces"),
        ({"nodeSelector": ["pool"]}, "spec.nodeSelector"),
        ({"nodeSelector": {"pool": 1}}, "spec.nodeSelector"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidProblemError, match=field):
        parse_policy(make(**spec))


def test_a_spec_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="spec must be an object"):
        parse_policy({"spec": ["policy"]})
