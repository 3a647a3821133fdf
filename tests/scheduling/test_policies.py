"""The registry: stable ids, and a clear word about an unknown one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.model import InvalidProblemError
from fairbind.model.policy import DEFAULT_POLICY
from fairbind.scheduling import POLICIES
from scheduling.worlds import build_servers, build_snapshot, decide


def test_the_ids_are_those_that_users_write() -> None:
    fillings = {"best-fit-drfh", "first-fit-drfh", "two-choices-drfh", "ps-dsf", "rps-dsf", "tsf", "asset-fairness"}
    followers = {"alpha-pf-vds", "ceei", "drbf", "drf", "drfh", "dynamic-drf", "per-server-drf"}

    assert set(POLICIES) == fillings | followers | {"fifo"}
    assert {policy.id for policy in POLICIES.values() if policy.follows_targets} == followers
    assert DEFAULT_POLICY in POLICIES


def test_policies_that_follow_targets_differ_in_nothing_but_the_mechanism() -> None:
    followers = [policy for policy in POLICIES.values() if policy.follows_targets]

    assert (
        len(
            {
                (policy.build_measure, policy.build_fit, policy.is_fair, policy.has_random_choices)
                for policy in followers
            }
        )
        == 1
    )
    assert all(policy.mechanism == policy.id for policy in followers)


def test_a_follower_places_by_server_class_where_its_mechanism_tells_servers_apart() -> None:
    for policy in POLICIES.values():
        if policy.follows_targets and policy.mechanism is not None:
            assert ("server class" in policy.server) == (Option.SERVERS in MECHANISMS[policy.mechanism].options)


def test_the_crd_and_the_chart_take_exactly_these_ids() -> None:
    root = Path(__file__).parents[2]
    crd = yaml.safe_load((root / "crds" / "schedulingpolicies.yaml").read_text(encoding="utf-8"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    values = json.loads((root / "charts" / "fairbind" / "values.schema.json").read_text(encoding="utf-8"))

    assert sorted(spec["policy"]["enum"]) == sorted(POLICIES)
    assert sorted(values["properties"]["policy"]["properties"]["name"]["enum"]) == sorted(POLICIES)
    assert all(f"{policy}" in spec["policy"]["description"] for policy in POLICIES)


@pytest.mark.parametrize("policy_id", sorted(POLICIES))
def test_every_policy_says_what_it_does_and_where_it_comes_from(policy_id: str) -> None:
    policy = POLICIES[policy_id]

    assert policy.id == policy_id
    assert all((policy.name, policy.paper, policy.order, policy.server))


@pytest.mark.parametrize(
    ("wrong", "near"), [("best-fit", "best-fit-drfh"), ("psdsf", "ps-dsf"), ("FIFO!", "'FIFO!'"), ("", "rps-dsf")]
)
def test_an_unknown_policy_is_named_with_the_nearest_known(wrong: str, near: str) -> None:
    snapshot = build_snapshot(build_servers({"a": (1, 1)}), [])

    with pytest.raises(InvalidProblemError, match=f"policy is {wrong!r}.*did you mean") as caught:
        decide(snapshot, wrong)
    assert near in str(caught.value)
