"""Reservations of groups: a set of servers is kept for the one that is next, and others fill in what ends before."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from fairbind.model import Domains, GroupTopology, PolicySettings, TaskGroup
from fairbind.model.reservations import NO_RESERVATIONS, ReservationSettings
from fairbind.scheduling import run_cycle
from fairbind.scheduling.cycle.reservations.reservations import Reservations
from scheduling.ending_worlds import EndingWorld
from seeds import draw_seeds

WHOLE = {f"n{n}": 8 for n in range(8)}


def play(world: EndingWorld, draw: Random, steps: int, *, tenant: str = "small") -> int | None:
    """Let tasks of 1 end and come, and return after how many steps the group has started; None: it never did."""
    for step in range(steps):
        world.end(draw.sample(world.list_tasks(tenant), 3))
        world.submit(tenant, 1, 6)
        if any(len(plan.binds) > 1 for plan in world.decide().plans):
            return step
    return None


@pytest.mark.parametrize("tenant", ["small", "large"], ids=["another tenant's", "its own tenant's"])
@pytest.mark.parametrize("policy", ["best-fit-drfh", "first-fit-drfh", "tsf", "ps-dsf"])
def test_a_group_of_whole_nodes_starts_among_a_stream_of_small_tasks(policy: str, tenant: str) -> None:
    """Six of eight nodes: without reservations each node's small tasks are replaced as they end."""
    steps = {}
    for settings in (PolicySettings(policy), PolicySettings(policy, reservations=NO_RESERVATIONS)):
        world = EndingWorld(WHOLE, settings=settings)
        world.submit(tenant, 1, 100)
        world.decide()
        world.submit("large", 8, 6, group="g")
        steps[settings.reservations.is_on] = play(world, Random(5), 150, tenant=tenant)

    assert steps[False] is None
    assert steps[True] is not None


def test_a_group_of_tasks_of_several_sizes_starts_among_a_stream_of_small_tasks() -> None:
    """Some of its tasks share a node, so they are not reserved one after the other and not placed one by one."""
    assert all(start_sizes(Random(seed)) for seed in draw_seeds(30, nightly=500))


def test_what_is_reserved_for_a_group_is_in_one_domain_where_it_must_be() -> None:
    """Two racks, and of sixteen that are looked at in turn; sometimes a server of the set goes to another rack."""
    assert all(start_in_a_rack(Random(seed)) for seed in draw_seeds(20, nightly=300))


def start_in_a_rack(draw: Random) -> bool:
    """Return whether a group starts that just fits into a rack."""
    racks = draw.choice([2, 16])
    names = [f"n{n:02}" for n in range(4 * racks)]
    rack_of = [n % racks for n in range(len(names))]
    world = EndingWorld(dict.fromkeys(names, 8))
    world.topology = GroupTopology(Domains(np.array(rack_of), racks), is_required=True)
    world.submit("small", 1, 8 * len(names))
    world.decide()
    for demand in draw.choice([(8, 8, 8), (8, 8, 5, 3), (4, 4, 8, 6)]):
        world.submit("large", demand, 1, group="g")
    world.decide()
    for step in range(200):
        if step in {5, 10}:
            draw.shuffle(rack_of)
            world.topology = GroupTopology(Domains(np.array(rack_of), racks), is_required=True)
        running = world.list_tasks("small")
        world.end(draw.sample(running, min(2 * racks, len(running))))
        world.submit("small", 1, 4 * racks)
        world.decide()
        if world.count_held("large"):
            used = {rack_of[names.index(each.server)] for each in world.running.values() if each.tenant == "large"}
            return len(used) == 1
    return False


@pytest.mark.parametrize("least", [24, 60])
def test_what_a_group_needs_free_beside_its_minimum_is_reserved_too(least: int) -> None:
    """As a driver waits until its executors would fit, too; three or nearly all of eight nodes."""
    world, draw = EndingWorld(WHOLE, least_free=least), Random(5)
    world.submit("small", 1, 100)
    world.decide()
    world.submit("large", 1, 1, group="g")
    world.decide()
    while world.count_held("large") == 0:
        assert world.now < 200
        free = sum(world.list_free().values())
        running = world.list_tasks("small")
        world.end(draw.sample(running, min(3, len(running))))
        world.submit("small", 1, 6)
        world.decide()

    assert free + 3 >= least


def start_sizes(draw: Random) -> bool:
    """Return whether a group starts that just fits on some of the nodes."""
    world = EndingWorld({f"n{n}": 8 for n in range(draw.choice([1, 2, 3, 8]))}, recalls=draw.random() < 0.5)
    world.settings = PolicySettings(draw.choice(["best-fit-drfh", "first-fit-drfh", "tsf", "ps-dsf"]))
    world.submit("small", 1, 100)
    world.decide()
    parts = [draw.choice([(8,), (5, 3), (4, 4), (6, 2), (4, 3)]) for _ in range(draw.randint(1, len(world.sizes)))]
    demands = [demand for part in parts for demand in part]
    draw.shuffle(demands)
    for demand in demands:
        world.submit("large", demand, 1, group="g")
    world.decide()
    for _ in range(200):
        running = world.list_tasks("small")
        world.end(draw.sample(running, min(2, len(running))))
        world.submit("small", 1, 6)
        world.decide()
        if world.count_held("large"):
            return world.count_held("large") == sum(demands)
    return False


def test_what_is_reserved_for_a_group_is_for_no_other_task_of_its_tenant() -> None:
    world, draw = EndingWorld(WHOLE), Random(5)
    world.submit("large", 1, 64)
    world.decide()
    world.submit("large", 8, 6, group="g")
    world.decide()
    world.submit("large", 8, 3)

    report = world.decide()
    while not any(len(plan.binds) == 6 for plan in report.plans):
        reserved = {server for _, server, _ in world.list_reserved()}
        assert len(reserved) == 6
        world.end(draw.sample(world.list_tasks("large"), 1))
        report = world.decide()
        assert len(report.plans) == 0 or len(report.plans[0].binds) == 6 or report.bindings[0].server not in reserved


def test_what_is_kept_for_a_lost_member_is_not_part_of_what_is_reserved_for_others() -> None:
    """`large` waits for 2 of `small`'s 8; one of `small`'s tasks was lost, and its place is kept for the next."""
    world = EndingWorld({"a": 8})
    world.submit("small", 2, 4)
    world.decide()
    world.submit("large", 2, 1)
    world.decide()
    assert world.list_reserved() == [("large", "a", 1)]
    world.end(world.list_tasks("small")[:1])
    world.submit("small", 2, 1)
    snapshot = world.look()
    servers = replace(snapshot.servers, free_kr=snapshot.servers.free_kr - 2)
    classes = [
        replace(each, placement=replace(each.placement, reserved={0: (2,)})) if each.tenant == "small" else each
        for each in snapshot.task_classes
    ]

    kept = replace(snapshot, servers=servers, task_classes=tuple(classes))
    report = run_cycle(kept, PolicySettings(), world.now + 1, reservations=world.reservations)

    assert [bind.tenant for bind in report.bindings] == ["small"]


def test_a_group_that_has_begun_may_use_what_is_reserved_for_others() -> None:
    """Below its minimum it holds capacity that is of no use. The third task is no part of it."""
    world = EndingWorld({"a": 8})
    world.submit("small", 1, 8)
    world.decide()
    world.submit("large", 4, 1)
    world.decide()
    assert world.list_reserved() == [("large", "a", 1)]
    world.end(world.list_tasks("small")[:3])
    world.submit("small", 1, 3, group="g")
    snapshot = world.look()
    begun = TaskGroup("g", lacking=2, is_begun=True)
    classes = [replace(each, group=begun) if each.group else each for each in snapshot.task_classes]
    snapshot = replace(snapshot, task_classes=tuple(classes))

    report = run_cycle(snapshot, PolicySettings(), world.now + 1, reservations=world.reservations)

    assert [len(plan.binds) for plan in report.plans] == [2]
    assert not report.complete


@pytest.mark.parametrize("takes", [True, False])
def test_a_group_is_promised_another_time_where_a_tenant_further_behind_took_some(*, takes: bool) -> None:
    world = EndingWorld({"n0": 8, "n1": 8})
    ends = {"a": 500.0}
    world.reservations = Reservations(find_end=lambda task: ends.get(task.tenant, 100.0))
    world.submit("small", 1, 16)
    world.decide()
    world.submit("large", 8, 2, group="g")
    world.decide()
    [promised] = {each.expected for each in world.reservations.list_all()}
    world.end(world.list_tasks("small", "n0")[:1])
    world.submit("a", 1, takes)
    world.decide()
    world.decide()
    world.decide()

    assert {each.server for each in world.reservations.list_all()} == {"n0", "n1"}
    [renewed] = {each.expected for each in world.reservations.list_all()}
    assert world.count_held("a") == takes
    assert renewed > promised + 300 if takes else renewed == promised


def test_what_is_promised_to_several_fits_together() -> None:
    """Tenants further behind and further ahead, single tasks and groups; sometimes a server has less than before."""
    assert sum(promise(Random(seed)) for seed in draw_seeds(12, nightly=200)) > 0, "no server was promised to several"


def promise(draw: Random) -> int:
    """Let tasks and groups of several tenants come, and return how often a server was promised to several."""
    world, shared = EndingWorld(dict(WHOLE), recalls=draw.random() < 0.5), 0
    policy, reservations = draw.choice(["best-fit-drfh", "tsf", "ps-dsf"]), ReservationSettings(most=Fraction(1, 2))
    world.settings = PolicySettings(policy, reservations=reservations)
    world.submit("small", 1, 100)
    world.decide()
    for step in range(60):
        world.end([uid for uid in sorted(world.running) if draw.random() < 0.1])
        world.submit("small", draw.choice([1, 2]), draw.choice([0, 4, 8]))
        world.submit(draw.choice("abc"), draw.choice([3, 5]), draw.choice([0, 1, 2]))
        if step % 10 == 0:
            tenant = draw.choice("def")
            for demand in draw.choice([(8,), (3, 4), (5, 8)]):
                world.submit(tenant, demand, 2, group=f"{tenant}{step}")
        if step % 20 == 19:
            name = draw.choice(sorted(WHOLE))
            world.end([uid for uid, task in world.running.items() if task.server == name])
            world.sizes[name] = draw.choice([6, 7, 8])
        while not world.decide().complete:
            pass  # a tenant took what it may, and then it may no more
        promised = Counter[str]()
        for each in world.reservations.list_all():
            promised[each.server] += each.count * each.demand_r[0]
        assert promised <= Counter(world.sizes)
        holders = Counter(server for _, server, _ in world.list_reserved())
        shared += max(holders.values(), default=0) > 1
    return shared


@pytest.mark.parametrize(("demand", "group"), [(4, ""), (8, "g")], ids=["single tasks", "a group"])
def test_the_time_that_is_told_is_never_in_the_past(demand: int, group: str) -> None:
    """The small tasks end later than they were expected to; until then it is told that this is not known."""
    world = EndingWorld(WHOLE)
    world.reservations = Reservations(find_end=lambda _task: 100.0)
    world.submit("small", 1, 64)
    world.decide()
    world.submit("large", demand, 3, group=group)

    def tell(seconds: float) -> float | None:
        [wait] = [each for each in world.decide(seconds).waits if each.task_class.tenant == "large"]
        assert wait.reserved_on > 0
        return wait.expected

    expected = tell(1.0)
    assert expected is not None
    assert tell(expected - world.now - 1.0) == expected > world.now
    assert tell(2.0) is None


def test_nothing_is_reserved_for_a_group_that_can_never_fit() -> None:
    world = EndingWorld(WHOLE)
    world.submit("small", 1, 64)
    world.decide()
    world.submit("large", 8, 9, group="g")
    world.decide()

    assert world.list_reserved() == []


def test_no_group_starts_later_than_it_was_promised_for_what_was_filled_in() -> None:
    """Run times are known, and others than the group's tenant may use what is reserved if they end before (EASY)."""
    assert sum(fill_in(Random(seed)) for seed in range(30)) > 0, "nothing was filled in"


def fill_in(draw: Random) -> int:
    """Let a group come to a busy cluster, and return how many tasks used what was reserved before it started."""
    ends: dict[str, float] = {}
    world, demands = EndingWorld(WHOLE), (1, 2, 3)
    world.reservations = Reservations(find_end=lambda task: ends[task.uid])
    lasts = {("small", demand): float(draw.randint(5, 60)) for demand in demands}
    world.most_seconds.update(lasts)
    filled_in, promised = 0, None
    for step in range(400):
        world.end([uid for uid in world.running if ends[uid] <= world.now + 1])
        for demand in demands:
            world.submit("small", demand, draw.randint(0, 3))
        if step == 20:
            world.submit("large", 8, 6, group="g")
        reserved = {each.server: each.expected for each in world.reservations.list_all() if each.group}
        promised = max(reserved.values(), default=None) if promised is None else promised
        report = world.decide()
        for bind in report.bindings:
            demand = world.running[bind.task.uid].demand_r[0]
            ends[bind.task.uid] = world.now + lasts.get((bind.tenant, demand), 0.0)
            filled_in += bind.server in reserved and bind.tenant == "small"
        if any(len(plan.binds) == 6 for plan in report.plans):
            assert promised is None or world.now <= promised + 1
            return filled_in
    pytest.fail("the group never started")
