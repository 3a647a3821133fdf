"""Random worlds: mostly small ones with small amounts, so that ties, full servers and conflicts are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from scheduling.recorded import build
from scheduling.recorded.dice import Dice
from scheduling.recorded.world import Amounts, Group, Job, Member, Rule, Running, Server, World

RESOURCES = ("cpu", "memory", "pods", "gpu", "net")
# What the recording was made with; a policy that comes later is no part of it.
POLICY_IDS = (
    "best-fit-drfh",
    "first-fit-drfh",
    "two-choices-drfh",
    "ps-dsf",
    "rps-dsf",
    "tsf",
    "asset-fairness",
    "alpha-pf-vds",
    "drfh",
    "per-server-drf",
    "drf",
    "ceei",
    "drbf",
    "dynamic-drf",
    "fifo",
)
BY_CLASS = ("alpha-pf-vds", "drfh", "per-server-drf")
FOLLOWING = (*BY_CLASS, "drf", "ceei", "drbf", "dynamic-drf")
SEEDS = (0, 0, 1, 7, -5, 2**63 - 1)
SERVERS = (1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 28, 35, 45, 60, 80, 110, 150, 210, 300)
UNITS = (1, 1, 1, 1_000, 2**30 + 1, build.MAX_AMOUNT // 16)
JITTERED = 1_000
CAPACITIES = (6, 8, 9, 12, 12, 16, 4, 1, 0)
DEMANDS = (1, 1, 2, 0, 0, 3, 5)
MEMBERS = (1, 2, 2, 3, 3, 3, 4, 5, 6, 8, 12)
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 20)
JOBS = (1, 1, 2, 3, 4, 6, 9, 14)
WEIGHTS = tuple(
    Fraction(*parts)
    for parts in ((1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 3), (7, 3), (1, 1000), (1000, 1), (999, 1000), (13, 170))
)
KEYS = ("80/any", "80/*", "80/10.0.0.1", "443/any")
CLAIMS = (
    (("80/any", "80/*"), ("80/any",)),
    (("80/any", "80/*"), ("80/any",)),
    (("80/any", "80/10.0.0.1"), ("80/10.0.0.1", "80/*")),
    (("443/any",), ("443/any",)),
    (("80/any", "80/*", "443/any"), ("80/any", "443/any")),
    (("80/any",), ()),
    ((), ("80/any",)),
)
REASONS = (
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) had untolerated taint {gpu: true}",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)
BLOCKED = ("required pod affinity", "unreadable fields")
TARGET_SHARES = (0.25, 0.25, 0.5, 0.1, 1e-6, 0.0, 0.3333333)


def draw_world(dice: Dice, servers: int, policy: str) -> World:
    """A world of so many servers. policy: whose targets it may have."""
    resources = tuple(dice.shuffle(RESOURCES)[: dice.pick((1, 2, 2, 3, 3, 4, 5))])
    units = tuple(dice.pick(UNITS) for _ in resources)
    world = World(
        resources=resources,
        units=units,
        counts=tuple(dice.chance(0.75) for _ in resources),
        tolerance=dice.pick((0.0, 0.02, 0.02, 0.5, None)),
        labels=dice.pick((1, 2, 3, 5, min(servers, 60))),
        is_detailed=dice.chance(0.8),
        is_lax=False,
        servers=[],
        members=[],
    )
    world.members = [draw_member(dice, world, name) for name in draw_names(dice)]
    world.servers = draw_servers(dice, world, servers)
    is_crowded = dice.chance(0.06)
    for _ in range(dice.pick((1, 2) if is_crowded else (1, 1, 2, 3, 4, 6))):
        draw_rule(dice, world)
    many = 1 + servers // 25
    for _ in range(dice.between(40, 110) if is_crowded else dice.pick(GROUPS)):
        draw_group(dice, world, dice.pick(JOBS) * dice.between(1, many), is_varied=is_crowded)
    for _ in range(dice.pick((0, 0, 3, 3 * len(world.servers))) if dice.chance(0.7) else 0):
        start_somewhere(dice, world)
    if policy in FOLLOWING and dice.chance(0.75):
        world.targets = draw_targets(dice, world, policy)
    return world


def draw_names(dice: Dice) -> list[str]:
    count = dice.pick(MEMBERS) if dice.chance(0.97) else dice.between(30, 60)
    return [f"{dice.pick(('team', 'ns/x'))}-{number:02}" for number in range(count)]


def draw_servers(dice: Dice, world: World, count: int) -> list[Server]:
    kinds = [[dice.pick(CAPACITIES) for _ in world.resources] for _ in range(dice.between(1, 4))]
    fullness = dice.pick(("empty", "empty", "mixed", "mixed", "full"))
    return [draw_server(dice, world, f"s{number:04}", dice.pick(kinds), fullness) for number in range(count)]


def draw_server(dice: Dice, world: World, name: str, kind: Sequence[int], fullness: str) -> Server:
    capacity, foreign = [], []
    for amount, unit in zip(kind, world.units, strict=True):
        jitter = dice.below(amount * unit // 60 + 1) if unit == JITTERED and dice.chance(0.5) else 0
        capacity.append(amount * unit - jitter)
        used = {"empty": 0, "mixed": dice.below(amount + 1), "full": max(amount - dice.below(3), 0)}[fullness]
        foreign.append((used + (dice.below(4) if dice.chance(0.04) else 0)) * unit)
    return Server(
        name,
        capacity,
        foreign,
        [0] * len(capacity),
        usable=dice.chance(0.9),
        signature=dice.below(2),
        label=dice.below(world.labels),
        ports=frozenset(dice.sift(KEYS, 0.4)) if dice.chance(0.12) else frozenset(),
    )


def draw_member(dice: Dice, world: World, name: str) -> Member:
    weights = {r: dice.pick(WEIGHTS) for r in (*world.resources, "absent") if dice.chance(0.1)}
    has_extra = dice.chance(0.25)
    return Member(
        name=name,
        weight=dice.pick(WEIGHTS),
        resource_weights=weights,
        since=float(dice.below(3)),
        allocated=[0] * len(world.resources),
        extra=[dice.pick((0, 0, 1, 2, 5)) * unit if has_extra else 0 for unit in world.units],
        gone=[dice.below(3) * unit for unit in world.units] if dice.chance(0.1) else None,
        is_new=not has_extra and dice.chance(0.3),
    )


def draw_rule(dice: Dice, world: World) -> Rule:
    refused: dict[str, str] = {}
    part = dice.pick((0.0, 0.0, 0.2, 0.6, 0.9, 1.0)) if dice.chance(0.6) else 0.0
    for server in world.servers:
        if dice.chance(part):
            refused[server.name] = dice.pick(REASONS)
    preference = None
    if dice.chance(0.3):
        preference = {server.name: dice.between(-1, 2) for server in world.servers}
    taken, conflicting = dice.pick(CLAIMS) if dice.chance(0.25) else ((), ())
    rule = Rule(len(world.rules), refused, preference, frozenset(taken), frozenset(conflicting))
    world.rules.append(rule)
    return rule


def draw_demand(dice: Dice, world: World, *, is_varied: bool) -> tuple[Amounts, Amounts]:
    """What a task asks for, and what it counts in shares."""
    if dice.chance(0.04):
        parts = [0 for _ in world.units]
    else:
        parts = [dice.below(12) if is_varied else dice.pick(DEMANDS) for _ in world.units]
    is_odd = dice.chance(0.2)
    demand = tuple(
        min(part * unit + (unit // 3 if is_odd and part and unit > 1 else 0), build.MAX_AMOUNT)
        for part, unit in zip(parts, world.units, strict=True)
    )
    share = tuple(a or (dice.pick((0, 1)) if is_odd else 0) for a in demand)
    return demand, share


def draw_jobs(dice: Dice, world: World, count: int) -> list[Job]:
    jobs = []
    for _ in range(count):
        world.serial += 1
        jobs.append(Job(world.serial, dice.pick((0, 0, 0, 0, 5, -1)), dice.pick((0.0, 0.0, 1.0, 1.5, 1.7e9))))
    return jobs


def draw_group(dice: Dice, world: World, jobs: int, *, is_varied: bool = False) -> None:
    """Some groups repeat the demand of another one, so that shapes are shared."""
    if world.groups and dice.chance(0.3) and not is_varied:
        other = dice.pick(world.groups)
        demand, share = other.demand, other.share
    else:
        demand, share = draw_demand(dice, world, is_varied=is_varied)
    blocked = dice.pick(BLOCKED) if dice.chance(0.06) else None
    tenant, rule = dice.pick(world.members).name, dice.pick(world.rules)
    group = Group(tenant, demand, share, rule, [], blocked)
    group.set_jobs(draw_jobs(dice, world, jobs))
    world.groups.insert(dice.below(len(world.groups) + 1), group)


def start_somewhere(dice: Dice, world: World) -> None:
    """Let a task run that somebody else placed, often where it fits."""
    demand, share = draw_demand(dice, world, is_varied=False)
    server = dice.pick(world.servers)
    fits = all(a <= max(free, 0) for a, free in zip(demand, server.find_free(), strict=True))
    if fits or dice.chance(0.05):
        world.start(Running(dice.pick(world.members).name, server.name, demand, share, dice.pick(world.rules)))


def draw_targets(dice: Dice, world: World, mechanism: str) -> build.Targets:
    """Some tenants have none, some get nothing, some servers are new; what the classes say need not add up."""
    resources = dice.sift((*world.resources, "absent"), 0.8)
    names = [name for name in (*(member.name for member in world.members), "gone") if dice.chance(0.8)]
    shares = {name: tuple(dice.pick(TARGET_SHARES) for _ in resources) for name in names}
    for name in names:
        if dice.chance(0.1):
            shares[name] = (0.0,) * len(resources)
    if mechanism not in BY_CLASS or dice.chance(0.1):
        return build.build_targets(mechanism, resources, shares, (), {}, {})
    count = dice.pick((1, 2, 2, 3, 5, 40))
    class_of = {server.name: dice.below(count) for server in world.servers if dice.chance(0.9)}
    by_class = {n: tuple(dice.pick(TARGET_SHARES) for _ in range(count)) for n in names if dice.chance(0.9)}
    return build.build_targets(mechanism, resources, shares, [f"k{n:02}" for n in range(count)], class_of, by_class)
