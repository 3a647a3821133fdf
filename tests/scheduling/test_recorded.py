"""Single snapshots are decided and explained as on the day of the recording."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from scheduling.recorded import build
from scheduling.recorded.cases import draw_case, play_snapshot
from scheduling.recorded.draws import POLICY_IDS, SEEDS, SERVERS
from scheduling.recorded.recording import ABOUT, check_block, compute_digest, read_recorded
from scheduling.recorded.render import render_report
from scheduling.recorded.series import SINGLE
from scheduling.recorded.world import World

# Other tests say what is covered; to trace these would cost minutes.
pytestmark = [pytest.mark.no_cover, pytest.mark.slow]
MANY_SERVERS = 50
SAMPLE = range(0, SINGLE.count, 11)


@pytest.mark.parametrize(
    "start",
    [pytest.param(start, marks=pytest.mark.slow if index % 8 else []) for index, start in enumerate(SINGLE.blocks)],
)
def test_snapshots_are_decided_as_recorded(start: int) -> None:
    check_block(SINGLE, start)


def test_the_recorded_policies_are_still_there() -> None:
    assert set(POLICY_IDS) <= set(build.find_policies())


def find_traits(number: int) -> Iterator[str]:
    """What a case has in it, and what comes of it."""
    _, policy, world = draw_case(number)
    traits = {**describe_servers(world), **describe_tenants(world), **describe_waiting(world)}
    yield from (trait for trait, is_there in traits.items() if is_there)
    yield f"policy: {policy}"
    for part in play_snapshot(number):
        yield from (trait for trait, is_there in describe_text(part).items() if is_there)


def describe_servers(world: World) -> dict[str, bool]:
    servers = world.servers
    amounts_r = zip(*(server.capacity for server in servers), strict=True)
    return {
        "overcommitted": any(min(server.find_free()) < 0 for server in servers),
        "ports taken": any(server.ports for server in servers),
        "unusable": not all(server.usable for server in servers),
        "a resource of which there is nothing": not all(map(any, amounts_r)),
        "counting: all": all(world.counts),
        "counting: some": any(world.counts) and not all(world.counts),
        "counting: none": not any(world.counts),
        "servers: one": len(servers) == 1,
        "servers: few": 1 < len(servers) < MANY_SERVERS,
        "servers: many": len(servers) >= MANY_SERVERS,
        "classes: drawn": world.tolerance is None,
        "classes: computed": world.tolerance is not None,
        "more than 32 classes": len(world.compute_classes()[1]) > 32,
    }


def describe_tenants(world: World) -> dict[str, bool]:
    members = world.members
    weights = [member.weight for member in members]
    return {
        "holdings": world.is_detailed and any(member.kinds for member in members),
        "held on a server that went": any(member.gone for member in members),
        "weights of resources": any(member.resource_weights for member in members),
        "weights far apart": max(weights) / min(weights) >= 1_000,
        "a tenant without tasks": bool({member.name for member in members} - {each.tenant for each in world.groups}),
        "targets": world.targets is not None,
        "targets by class": world.targets is not None and build.has_classes(world.targets),
    }


def describe_waiting(world: World) -> dict[str, bool]:
    groups = world.groups
    rules = {id(group.rule): group.rule for group in groups}.values()
    return {
        "preferences": any(rule.preference is not None for rule in rules),
        "asks for ports": any(rule.taken for rule in rules),
        "nothing eligible": any(len(rule.refused) == len(world.servers) for rule in rules),
        "mixed constraints": len(rules) > 1,
        "shared constraints": len(groups) > len(rules),
        "zero demand": not all(any(group.demand) for group in groups),
        "counts otherwise in shares": any(group.demand != group.share for group in groups),
        "many groups": len(groups) >= 40,
        "blocked": any(group.blocked for group in groups),
    }


def describe_text(text: str) -> dict[str, bool]:
    """What a cycle says."""
    first, *lines = text.splitlines()
    binds = sum(line.startswith("bind ") for line in lines)
    return {
        "a binding": binds > 0,
        "more than 100 bindings": binds > 100,
        "incomplete": "complete=False" in first,
        "fairness": any(line.startswith("wait ") and not line.endswith(" -") for line in lines),
        "ports in conflict": "conflicting claims" in text,
        "no room": "Insufficient" in text,
        "recalled": first.startswith("recalled ") and first != "recalled 0",
    }


# Each is the least number of cases in the sample of 546.
PROMISED = {
    "a binding": 300,
    "a resource of which there is nothing": 30,
    "a tenant without tasks": 150,
    "asks for ports": 150,
    "blocked": 100,
    "classes: computed": 300,
    "classes: drawn": 50,
    "counting: all": 100,
    "counting: none": 15,
    "counting: some": 100,
    "counts otherwise in shares": 150,
    "fairness": 100,
    "held on a server that went": 80,
    "holdings": 100,
    "incomplete": 60,
    "many groups": 15,
    "mixed constraints": 200,
    "more than 100 bindings": 10,
    "more than 32 classes": 8,
    "no room": 250,
    "nothing eligible": 60,
    "overcommitted": 80,
    "ports in conflict": 50,
    "ports taken": 150,
    "preferences": 150,
    "recalled": 60,
    "servers: few": 300,
    "servers: many": 60,
    "servers: one": 20,
    "shared constraints": 300,
    "targets": 120,
    "targets by class": 50,
    "unusable": 200,
    "weights far apart": 200,
    "weights of resources": 200,
    "zero demand": 60,
}


@pytest.mark.slow
def test_the_cases_have_in_them_what_they_promise() -> None:
    found: Counter[str] = Counter()
    for number in SAMPLE:
        found.update(set(find_traits(number)))

    assert {trait: found[trait] for trait, least in PROMISED.items() if found[trait] < least} == {}
    assert min(found[f"policy: {policy}"] for policy in POLICY_IDS) >= 35
    assert {1, 300} <= set(SERVERS)


def test_one_binding_that_goes_elsewhere_is_noticed() -> None:
    _, policy, world = draw_case(0)
    report = build.Decider(has_memory=False).decide(world.build(), policy, SEEDS[0], 0.0, None)
    texts = render_report(report), render_report(build.move_first_binding(report))

    assert len(set(map(len, texts))) == 2
    assert compute_digest(texts[:1]) == compute_digest(texts[:1])
    assert compute_digest(texts[:1]) != compute_digest(texts[1:])


def test_hardly_any_two_cases_are_decided_alike() -> None:
    assert len(set(read_recorded(SINGLE))) == SINGLE.count


def test_what_the_recording_says_of_itself_is_what_is_written() -> None:
    assert json.loads(SINGLE.path.read_text(encoding="utf-8"))["about"] == ABOUT
