"""The recorded cases: worlds that are seen once or twice, and worlds that go on for a while.

A case is its text, cycle by cycle. What happens in a sequence depends on its dice and on what the cycles decide: a
decision that differs shows in all that follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduling.recorded.build import CycleReport, Decider, find_bindings
from scheduling.recorded.dice import Dice
from scheduling.recorded.draws import (
    FOLLOWING,
    KEYS,
    POLICY_IDS,
    SEEDS,
    SERVERS,
    WEIGHTS,
    draw_group,
    draw_jobs,
    draw_member,
    draw_rule,
    draw_server,
    draw_targets,
    draw_world,
)
from scheduling.recorded.render import render_report
from scheduling.recorded.world import Running, World

SNAPSHOTS = 6_000
SEQUENCES = 300
CYCLES = 50
SEQUENCE_SERVERS = (1, 2, 3, 3, 4, 5, 6, 8, 10, 14, 20, 30, 45, 80)
MANY_WAITING = 150


def draw_limit(dice: Dice) -> int | None:
    """Mostly none."""
    return None if dice.chance(0.65) else dice.pick((0, 1, 1, 2, 3, 5, 8, 13, 40, 1_000))


def draw_case(number: int) -> tuple[Dice, str, World]:
    """The world of a snapshot's case, whose policy decides, and the dice for the rest."""
    dice, policy = Dice(1, number), POLICY_IDS[number % len(POLICY_IDS)]
    return dice, policy, draw_world(dice, dice.pick(SERVERS), policy)


def play_snapshot(number: int) -> Iterator[str]:
    """One snapshot, decided once, or up to three times with one memory."""
    dice, policy, world = draw_case(number)
    snapshot = world.build()
    has_memory = dice.chance(0.35)
    decider, seed = Decider(has_memory=has_memory), dice.pick(SEEDS)
    for now in range(dice.pick((1, 2, 2, 3)) if has_memory else 1):
        if dice.chance(0.1):
            decider.forget()
        yield render_report(decider.decide(snapshot, policy, seed, float(now), draw_limit(dice)))
    yield f"recalled {decider.recalled}"


def play_sequence(number: int) -> Iterator[str]:
    """A world that goes on; half of them with a memory that is kept."""
    dice, policy = Dice(2, number), POLICY_IDS[number // 2 % len(POLICY_IDS)]
    world = draw_world(dice, dice.pick(SEQUENCE_SERVERS), policy)
    world.is_lax = dice.chance(0.3)
    decider, seed, is_changeable = Decider(has_memory=number % 2 == 0), dice.pick(SEEDS), dice.chance(0.15)
    for cycle in range(CYCLES):
        if is_changeable and dice.chance(0.1):
            policy = dice.pick(POLICY_IDS)
        limit = draw_limit(dice) if dice.chance(0.4) else None
        report = decider.decide(world.build(), policy, seed, float(cycle), limit)
        yield render_report(report)
        carry_out(dice, world, report)
        change(dice, world, policy)
        if dice.chance(0.02):
            decider.forget()
    yield f"recalled {decider.recalled}"


def carry_out(dice: Dice, world: World, report: CycleReport) -> None:
    """Let what was placed run, as a rule; now and then some bindings fail, or all."""
    part = dice.pick((1.0, 1.0, 1.0, 1.0, 1.0, 0.7, 0.0))
    group_of = {job.uid: group for group in world.groups for job in group.jobs}
    started: set[str] = set()
    for uid, server in find_bindings(report):
        if dice.chance(part):
            group = group_of[uid]
            world.start(Running(group.tenant, server, group.demand, group.share, group.rule))
            started.add(uid)
    for group in world.groups:
        if any(job.uid in started for job in group.jobs):
            group.set_jobs([job for job in group.jobs if job.uid not in started])
    world.groups = [group for group in world.groups if group.jobs]


def change(dice: Dice, world: World, policy: str) -> None:
    """What happens between two cycles. Often little, so that most of what waits is the same as before."""
    part = dice.pick((0.0, 0.05, 0.1, 0.2, 0.4))
    for running in dice.sift(world.running, part):
        world.finish(running)
    if dice.chance(0.5):
        change_waiting(dice, world)
    if dice.chance(0.2):
        member = dice.pick(world.members)
        member.weight = dice.pick(WEIGHTS)
    for _ in range(dice.pick((0, 0, 0, 1, 2, 4))):
        change_use(dice, world)
    if dice.chance(0.12):
        change_servers(dice, world)
    if dice.chance(0.06):
        change_members(dice, world)
    if policy in FOLLOWING and dice.chance(0.15):
        world.targets = draw_targets(dice, world, policy) if dice.chance(0.9) else None


def change_waiting(dice: Dice, world: World) -> None:
    """Tasks come and go, in groups that are there and in new ones."""
    waiting = sum(len(group.jobs) for group in world.groups)
    if world.groups and dice.chance(0.3):
        group = dice.pick(world.groups)
        group.set_jobs(dice.sift(group.jobs, 0.5))
    if world.groups and dice.chance(0.5):
        group = dice.pick(world.groups)
        group.set_jobs([*group.jobs, *draw_jobs(dice, world, dice.between(1, 3))])
    for _ in range(dice.pick((0, 1, 1, 2, 4)) if waiting < MANY_WAITING else 0):
        if dice.chance(0.1):
            draw_rule(dice, world)
        draw_group(dice, world, dice.pick((1, 1, 2, 4)))
    world.groups = [group for group in world.groups if group.jobs]


def change_use(dice: Dice, world: World) -> None:
    """What others use on a server, or which ports they took there."""
    server = dice.pick(world.servers)
    if dice.chance(0.3):
        server.ports = frozenset(dice.sift(KEYS, 0.4))
        return
    r = dice.below(len(world.units))
    server.foreign[r] = max(0, server.foreign[r] + dice.between(-5, 2) * world.units[r])


def change_servers(dice: Dice, world: World) -> None:
    """A server is cordoned or comes back, gets smaller, joins or leaves."""
    server, what = dice.pick(world.servers), dice.pick(("usable", "usable", "usable", "capacity", "join", "leave"))
    if what == "usable":
        server.usable = not server.usable
        if not world.is_lax:
            world.note_servers()
    elif what == "capacity":
        r = dice.below(len(world.units))
        server.capacity[r] = max(0, server.capacity[r] - world.units[r])
        world.note_capacities()
    elif what == "join":
        world.serial += 1
        kind = [amount // unit for amount, unit in zip(server.capacity, world.units, strict=True)]
        name = f"s{world.serial:05}" if dice.chance(0.5) else f"r{world.serial:05}"
        world.servers.append(draw_server(dice, world, name, kind, "empty"))
        world.servers.sort(key=lambda each: each.name)
        world.note_servers()
    elif len(world.servers) > 1:
        for running in [each for each in world.running if each.server == server.name]:
            world.finish(running)
        world.servers.remove(server)
        world.note_servers()


def change_members(dice: Dice, world: World) -> None:
    """A tenant comes, or one goes with all that it has."""
    if dice.chance(0.6) or len(world.members) == 1:
        world.serial += 1
        name = f"{dice.pick(('team', 'ns/x'))}-{world.serial:05}"
        world.members.append(draw_member(dice, world, name))
        return
    member = dice.pick(world.members)
    for running in [each for each in world.running if each.tenant == member.name]:
        world.finish(running)
    world.groups = [group for group in world.groups if group.tenant != member.name]
    world.members.remove(member)
