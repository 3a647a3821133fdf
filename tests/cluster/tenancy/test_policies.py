from __future__ import annotations

import re
from typing import Any

import pytest

from fairbind.cluster.tenancy.policies import parse_policy
from fairbind.model import Fit, InvalidProblemError, PolicySettings, Unclaimed


def make(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "default"}, "spec": spec}


def with_alpha(alpha: object) -> dict[str, Any]:
    return {"policy": "alpha-pf-vds", "alphaPfVds": {"alpha": alpha}}


def with_expected(tenants: object) -> dict[str, Any]:
    return {"policy": "dynamic-drf", "dynamicDrf": {"expectedTenants": tenants}}


def with_seed(seed: object) -> dict[str, Any]:
    return {"policy": "two-choices-drfh", "twoChoicesDrfh": {"seed": seed}}


def test_an_empty_policy_says_what_the_defaults_say() -> None:
    assert parse_policy(make()) == PolicySettings()
    assert parse_policy({"metadata": {"name": "default"}}) == PolicySettings()


def test_every_field_is_read() -> None:
    settings = parse_policy(
        make(
            policy="alpha-pf-vds",
            fairnessResources=["memory", "cpu", "cpu"],
            serverClassTolerance=0,
            nodeSelector={"pool": "b", "arch": "amd64"},
            alphaPfVds={"alpha": "2500m"},
            unclaimedNamespaces="together",
            fit="first-resource",
        )
    )
    selector = (("arch", "amd64"), ("pool", "b"))
    assert settings == PolicySettings(
        "alpha-pf-vds", ("cpu", "memory"), 0.0, selector, 2.5, unclaimed=Unclaimed.TOGETHER, fit=Fit.FIRST_RESOURCE
    )
    assert parse_policy(make(policy="dynamic-drf", dynamicDrf={"expectedTenants": 7})).expected_tenants == 7
    assert parse_policy(make(policy="two-choices-drfh", twoChoicesDrfh={"seed": -5})).seed == -5


@pytest.mark.parametrize("tolerance", ["0.02", "20m", "0.020"])
def test_a_tolerance_is_a_quantity(tolerance: str) -> None:
    assert parse_policy(make(serverClassTolerance=tolerance)) == PolicySettings(server_class_tolerance=0.02)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"policy": "nicest-first"}, "spec.policy"),
        ({"fairnessResources": "cpu"}, "spec.fairnessResources"),
        ({"fairnessResources": [1]}, "spec.fairnessResources"),
        (
            {"serverClassTolerance": 0.6},
            "must be a number or a quantity from 0 to 0.5, such as 0.5 or 500m, not 0.6",
        ),
        ({"serverClassTolerance": "0.6"}, "spec.serverClassTolerance"),
        ({"serverClassTolerance": 1}, "spec.serverClassTolerance"),
        ({"serverClassTolerance": "2%"}, "spec.serverClassTolerance"),
        ({"serverClassTolerance": True}, "spec.serverClassTolerance"),
        (with_alpha(0), "spec.alphaPfVds.alpha"),
        (with_alpha("9m"), "spec.alphaPfVds.alpha must be a number or a quantity from 0.01 to 100"),
        (with_alpha(101), "spec.alphaPfVds.alpha"),
        (with_alpha(100.5), "spec.alphaPfVds.alpha"),
        (with_alpha(None), "spec.alphaPfVds.alpha"),
        ({"policy": "alpha-pf-vds", "alphaPfVds": 2}, "spec.alphaPfVds must be an object, not 2"),
        ({"alphaPfVds": {}}, "spec.alphaPfVds is read by spec.policy alpha-pf-vds only, not by best-fit-drfh"),
        (with_expected(0), "spec.dynamicDrf.expectedTenants must be a whole number from 1 to 100000, not 0"),
        (with_expected(2.5), "spec.dynamicDrf.expectedTenants"),
        (with_expected(None), "spec.dynamicDrf.expectedTenants"),
        ({"policy": "drf", "dynamicDrf": {"expectedTenants": 2}}, "spec.dynamicDrf is read by spec.policy dynamic-drf"),
        (with_seed(2**63), "spec.twoChoicesDrfh.seed"),
        (with_seed(0.5), "spec.twoChoicesDrfh.seed"),
        ({"twoChoicesDrfh": {"seed": 1}}, "spec.twoChoicesDrfh is read by spec.policy two-choices-drfh only"),
        ({"unclaimedNamespaces": "nobody"}, "spec.unclaimedNamespaces must be one of tenant, together, refuse"),
        ({"unclaimedNamespaces": ["refuse"]}, "spec.unclaimedNamespaces"),
        ({"unclaimedNamespaces": None}, "spec.unclaimedNamespaces"),
        ({"fit": "best"}, "spec.fit must be one of dominant-resource, first-resource, cosine, not 'best'"),
        ({"fit": ["cosine"]}, "spec.fit"),
        ({"nodeSelector": ["pool"]}, "spec.nodeSelector"),
        ({"nodeSelector": {"pool": 1}}, "spec.nodeSelector"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidProblemError, match=re.escape(field)):
        parse_policy(make(**spec))


def test_any_other_name_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"^metadata\.name must be default, not other$"):
        parse_policy({"metadata": {"name": "other"}, "spec": {}})


def test_a_spec_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="spec must be an object"):
        parse_policy({"spec": ["policy"]})
