"""Reservations: a tenant with larger tasks gets its share, nothing is overcommitted, and what is free is used."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from fairbind.model import PolicySettings, RunningTask, Tenant
from fairbind.model.hierarchy import Hierarchy, InnerTenant, Place
from fairbind.model.reservations import NO_RESERVATIONS, ReservationSettings, Reserved
from fairbind.scheduling import run_cycle
from fairbind.scheduling.cycle.reservations.reservations import Reservations
from fairbind.scheduling.cycle.reservations.review import MAX_SERVERS_OF_TENANT
from fairbind.scheduling.cycle.reservations.run_times import RunTimes
from scheduling.ending_worlds import EndingWorld as World
from scheduling.worlds import build_placement, build_servers

SHARED = ("best-fit-drfh", "first-fit-drfh", "ps-dsf", "tsf", "asset-fairness", "drfh")


def fill(world: World, *, large: int = 4) -> None:
    """Let `small` fill the cluster with tasks of 1, and have `large` wait."""
    world.submit("small", 1, 200)
    world.decide()
    world.submit("large", large, 20)
    world.decide()


def test_what_comes_free_is_kept_until_the_larger_task_fits() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)
    [(tenant, server, _)] = world.list_reserved()
    assert tenant == "large"

    for freed in range(1, 4):
        world.end(world.list_tasks("small", server)[:1])
        assert world.decide().bindings == (), f"{freed} of 4 are free, and kept"
    world.end(world.list_tasks("small", server)[:1])
    report = world.decide()

    assert [(bind.tenant, bind.server) for bind in report.bindings] == [("large", server)]


def test_without_reservations_the_smaller_tasks_take_it() -> None:
    world = World({"a": 8, "b": 8}, settings=PolicySettings(reservations=NO_RESERVATIONS))
    fill(world)
    world.end(world.list_tasks("small")[:1])

    assert [bind.tenant for bind in world.decide().bindings] == ["small"]
    assert world.list_reserved() == []


def test_what_comes_free_elsewhere_goes_on_as_ever() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)
    [(_, server, _)] = world.list_reserved()
    other = "b" if server == "a" else "a"
    world.end(world.list_tasks("small", other)[:1])

    assert [(bind.tenant, bind.server) for bind in world.decide().bindings] == [("small", other)]


@pytest.mark.parametrize("policy", SHARED)
def test_it_ends_at_its_fair_share_and_reserves_nothing_then(policy: str) -> None:
    draw = Random(7)
    world = World({f"n{n}": 8 for n in range(10)}, settings=PolicySettings(policy))
    fill(world)
    for _ in range(400):
        world.end(draw.sample(sorted(world.running), 2))
        world.submit("small", 1, 8)
        world.submit("large", 4, 2)
        world.decide()

    assert world.count_held("large") >= 36, "40 of 80 are its fair share, and one task more or less"
    assert world.count_held("small") + world.count_held("large") >= 76
    assert world.list_reserved() == [] or world.count_held("large") < 40


def test_tenants_of_equal_tasks_reserve_nothing() -> None:
    draw = Random(3)
    world = World({"a": 8, "b": 8})
    world.submit("one", 2, 50)
    world.submit("two", 2, 50)
    for _ in range(50):
        world.decide()
        world.end(draw.sample(sorted(world.running), 1))
        assert world.list_reserved() == []


def build_departments(large: Place, small: Place) -> Hierarchy:
    """Two departments, of which one has `large` and `other` below it."""
    inner = {"one": InnerTenant(Tenant("one"), large), "two": InnerTenant(Tenant("two"), small)}
    leaves = {"large": Place("one"), "other": Place("one"), "small": Place("two")}
    return Hierarchy(leaves, inner)


def fill_departments(large: Place, small: Place) -> World:
    """`small` holds a half, the siblings of `large` hold the rest and are ahead of it."""
    world = World({"a": 8, "b": 8}, hierarchy=build_departments(large, small))
    world.submit("small", 1, 8)
    world.submit("other", 1, 8)
    world.decide()
    world.submit("small", 1, 200)
    world.submit("large", 4, 20)
    world.decide()
    return world


def test_in_a_tree_capacity_is_kept_for_who_is_behind_where_the_paths_part() -> None:
    """The departments hold a half each, so only what its own sibling holds can be kept for `large`."""
    world = fill_departments(Place(), Place())
    reserved = world.list_reserved()

    assert [tenant for tenant, _, _ in reserved] == ["large"]
    # As a tenant of its own it would be behind `small`, too.
    assert sum(count for *_, count in reserved) == 1
    assert all(each.behind == frozenset() for each in world.reservations.list_all())


def test_in_a_full_cluster_nothing_is_kept_from_others_for_a_department_that_is_ahead() -> None:
    """Nothing is free of what all wait for; whose the next will be, that resource says all the same."""
    inner = {"top": InnerTenant(Tenant("top"), Place())}
    places = {"first": Place("top"), "second": Place("top"), "solo": Place()}
    world = World({"a": 8}, hierarchy=Hierarchy(places, inner))
    world.submit("solo", 1, 2)
    world.decide()
    world.submit("first", 1, 6)
    world.decide()
    world.submit("solo", 1, 3)
    world.submit("second", 2, 3)
    world.decide()

    world.end(world.list_tasks("first")[:1])
    world.decide()

    assert world.count_held("solo") == 3


@pytest.mark.parametrize(("priority", "kept"), [(0, False), (1, True), (-1, False)])
def test_a_department_of_higher_priority_has_capacity_kept_beyond_its_share(priority: int, *, kept: bool) -> None:
    world = World({"a": 8, "b": 8}, hierarchy=build_departments(Place(priority=priority), Place()))
    world.submit("large", 4, 2)
    world.submit("small", 1, 8)
    world.decide()
    world.submit("large", 4, 20)
    world.decide()

    assert [tenant for tenant, _, _ in world.list_reserved()] == ["large"] * kept


def test_for_a_tenant_of_lower_priority_nothing_of_others_is_kept() -> None:
    world = World({"a": 8}, hierarchy=Hierarchy({"large": Place(priority=-1), "small": Place()}, {}))
    fill(world)

    assert world.list_reserved() == []


def test_a_tenant_further_behind_may_use_what_is_reserved() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)
    [(_, server, _)] = world.list_reserved()
    world.end(world.list_tasks("small", server)[:4])
    world.decide()  # the larger task is placed
    world.decide()
    [(_, server, _)] = world.list_reserved()
    world.end(world.list_tasks("small", server)[:1])
    world.submit("new", 1, 3)

    assert [bind.tenant for bind in world.decide().bindings] == ["new"]


@pytest.mark.parametrize("seconds", [0.0, 0.5], ids=["the same moment", "before the next review"])
def test_a_tenant_takes_what_is_reserved_only_while_it_is_further_behind(seconds: float) -> None:
    """Of two tenants that hold nothing `a` is the first by name; with one task it is ahead."""
    world = World({"a": 8, "b": 8})
    fill(world)
    [(_, server, _)] = world.list_reserved()
    world.end(world.list_tasks("small", server)[:3])
    world.submit("a", 1, 3)

    report = world.decide()
    assert [bind.tenant for bind in report.bindings] == ["a"]
    assert not report.complete, "the others of its tasks, and those of others, have their turn in the next cycle"
    later = world.decide(seconds)
    assert not later.bindings
    assert later.complete
    assert [wait.waiting for wait in later.waits if wait.task_class.tenant == "a"] == [2]


def test_a_server_that_is_gone_or_closed_is_reserved_no_more() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)
    [(_, server, _)] = world.list_reserved()
    world.closed.append(server)
    world.placement = build_placement(
        build_servers({name: (size,) for name, size in world.sizes.items()}, unusable=world.closed)
    )
    world.decide()

    assert [name for _, name, _ in world.list_reserved()] in ([], ["b" if server == "a" else "a"])


def test_a_server_on_which_nothing_comes_free_gives_way_to_another() -> None:
    settings = PolicySettings(reservations=ReservationSettings(max_seconds=100.0))
    world = World({"a": 8, "b": 8}, settings=settings)
    fill(world)
    [(_, first, _)] = world.list_reserved()
    seen = {first}
    for _ in range(30):
        world.decide(10.0)
        seen.update(server for _, server, _ in world.list_reserved())

    assert seen == {"a", "b"}


def test_a_tenant_that_wants_nothing_any_more_keeps_nothing() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)
    world.waiting["large", 4].clear()
    world.decide()

    assert world.list_reserved() == []


def test_fifo_and_a_policy_that_is_told_to_reserve_nothing_end_what_is_reserved() -> None:
    for settings in (PolicySettings("fifo"), PolicySettings(reservations=NO_RESERVATIONS)):
        world = World({"a": 8, "b": 8})
        fill(world)
        assert world.list_reserved()
        world.settings = settings
        world.decide()
        assert world.list_reserved() == []


def test_as_much_is_reserved_as_is_lacking_up_to_the_most() -> None:
    for most, servers in ((Fraction(1, 10), 2), (Fraction(1, 2), 4)):
        settings = PolicySettings(reservations=ReservationSettings(most=most))
        world = World({f"n{n}": 8 for n in range(8)}, settings=settings)
        fill(world)  # it lacks half of 64: 8 tasks of 4
        reserved = sum(number for _, _, number in world.list_reserved())
        assert reserved == {2: 1, 4: 8}[servers]


def test_tenants_that_lack_the_same_have_equal_parts_of_what_may_be_reserved() -> None:
    settings = PolicySettings(reservations=ReservationSettings(most=Fraction(1, 2)))
    world = World({f"n{n}": 8 for n in range(8)}, settings=settings)
    world.submit("small", 1, 200)
    world.decide()
    world.submit("greedy", 4, 100)
    world.submit("late", 4, 1)
    world.decide()

    assert sum(number for tenant, _, number in world.list_reserved() if tenant == "greedy") == 4
    assert [number for tenant, _, number in world.list_reserved() if tenant == "late"] == [1]


def test_it_keeps_its_reservations_where_other_servers_hold_no_task_of_a_tenant_ahead() -> None:
    """In a large cluster each review looks at some of the servers only."""
    world = World({f"n{n:03}": 8 for n in range(200)})
    world.submit("small", 1, 1600)
    world.decide()
    for server in sorted(world.sizes)[:190]:  # another tenant that is behind has nearly all of the cluster's servers
        for uid in world.list_tasks("small", server):
            task = world.running.pop(uid)
            world.running[uid] = replace(task, tenant=f"t{server}")
    world.submit("large", 4, 50)
    for _ in range(20):
        world.decide()
    reserved = world.list_reserved()
    assert reserved
    for _ in range(20):
        world.decide()
    assert {server for _, server, _ in reserved} <= {server for _, server, _ in world.list_reserved()}


def test_one_tenant_reserves_on_no_more_servers_than_it_may() -> None:
    settings = PolicySettings(reservations=ReservationSettings(most=Fraction(1)))
    world = World({f"n{n:03}": 2 for n in range(200)}, settings=settings)
    world.submit("small", 1, 800)
    world.decide()
    world.submit("large", 2, 200)
    for _ in range(20):
        world.decide()

    assert len(world.list_reserved()) == MAX_SERVERS_OF_TENANT


@pytest.mark.parametrize("recalls", [False, True])
@pytest.mark.parametrize("policy", SHARED)
def test_whatever_happens_all_that_is_free_is_used_or_reserved(policy: str, *, recalls: bool) -> None:
    """And with what cycles recall the decisions are the same as without."""
    draw = Random(11)
    sizes = {f"n{n}": draw.choice([4, 8, 16]) for n in range(6)}
    world, plain = (World(sizes, settings=PolicySettings(policy), recalls=each) for each in (recalls, False))
    seen = 0
    for _ in range(150):
        if draw.random() < 0.5:
            wanted = draw.choice("abc"), draw.choice([1, 2, 3, 8]), draw.randrange(1, 12)
            world.submit(*wanted)
            plain.submit(*wanted)
        ended = [uid for uid in sorted(world.running) if draw.random() < 0.1]
        world.end(ended)
        plain.end(ended)
        reserved = {(each.tenant, each.server): each for each in world.reservations.list_all()}
        report = world.decide(draw.choice([0.25, 1.0, 30.0]))
        assert plain.decide(world.now - plain.now).bindings == report.bindings
        if report.reopens:
            continue
        used = Counter((bind.tenant, bind.server) for bind in report.bindings)
        kept: Counter[str] = Counter()
        for key, each in reserved.items():
            kept[each.server] += each.demand_r[0] * max(each.count - used[key], 0)
        seen += bool(reserved)
        for (tenant, demand), tasks in world.waiting.items():
            for server, free in world.list_free().items():
                assert not tasks or free - kept[server] < demand, (
                    f"{tenant} waits for {demand} although {server} has it"
                )
    assert seen > 5


def test_a_replay_that_is_told_what_was_reserved_decides_the_same() -> None:
    draw = Random(5)
    world = World({"a": 8, "b": 8, "c": 4})
    fill(world)
    told = 0
    for _ in range(60):
        world.end([uid for uid in sorted(world.running) if draw.random() < 0.15])
        snapshot = world.look()
        report = world.decide()
        again = Reservations()
        again.restore(report.reserved, snapshot)
        replayed = run_cycle(snapshot, world.settings, world.now, reservations=again)
        assert replayed.bindings == report.bindings
        told += bool(report.reserved)
    assert told > 3


# --- tasks that say how long they run ---


@pytest.mark.parametrize(("seconds", "is_placed"), [(50.0, True), (100.0, True), (300.0, False)])
def test_a_task_that_surely_ends_before_may_use_what_is_reserved(seconds: float, *, is_placed: bool) -> None:
    """Each of the small tasks has run for 100 s, so a place for a large one is expected in some 160 s."""
    world = World({"a": 8, "b": 8}, most_seconds={("small", 2): seconds})
    world.submit("small", 1, 200)
    world.decide()
    world.now += 100
    world.submit("large", 4, 20)
    world.decide()
    [reservation] = world.reservations.list_all()
    assert 120 < reservation.expected - world.now < 200
    world.submit("small", 2, 1)
    world.end(world.list_tasks("small", reservation.server)[:2])

    placed = [(bind.task.uid, bind.server) for bind in world.decide().bindings]

    assert placed == ([("00220", reservation.server)] if is_placed else [])
    assert world.list_reserved() == [("large", reservation.server, 1)], "and it is reserved as before"
    closed = world.reservations.list_closed("small", (2,), seconds)
    assert closed == ([] if is_placed else [reservation.server])


def test_it_may_not_any_more_when_the_time_has_come() -> None:
    world = World({"a": 8, "b": 8}, most_seconds={("small", 2): 100.0})
    world.submit("small", 1, 200)
    world.decide()
    world.now += 100
    world.submit("large", 4, 20)
    world.decide()
    [reservation] = world.reservations.list_all()
    world.now = reservation.expected - 90
    world.submit("small", 2, 1)
    world.end(world.list_tasks("small", reservation.server)[:2])

    assert world.decide().bindings == ()


def test_a_place_is_reserved_where_tasks_say_that_they_end() -> None:
    """On both servers small tasks run, and those on b say that they end in 20 s."""
    world = World({"a": 8, "b": 8}, most_seconds={("brief", 1): 120.0})
    world.submit("small", 1, 8)
    world.decide()
    world.submit("brief", 1, 8)
    world.decide()
    assert len(world.list_tasks("brief", "b")) == 8
    world.now += 100
    world.submit("large", 4, 1)
    world.decide()

    [reservation] = world.reservations.list_all()
    assert reservation.server == "b"
    assert reservation.expected - world.now < 40


# --- run times ---


def make_task(uid: str, start: float, tenant: str = "t") -> RunningTask:
    return RunningTask(uid, tenant, "n", 0, start, None, (1,), (1,))


def test_what_is_expected_of_a_task_follows_from_those_of_its_kind_that_ran_longer() -> None:
    times = RunTimes()
    lengths = (10.0, 20.0, 60.0)
    times.observe({"n": tuple(make_task(f"u{n}", 100.0 - each) for n, each in enumerate(lengths))}, ["n"], 100.0)
    times.observe({}, [], 100.0)

    assert times.compute_remaining(make_task("x", 100.0), 100.0) == pytest.approx(30.0)
    assert times.compute_remaining(make_task("x", 85.0), 100.0) == pytest.approx(25.0)
    assert times.compute_remaining(make_task("x", 50.0), 100.0) == pytest.approx(10.0)
    assert times.compute_remaining(make_task("x", 0.0), 100.0) == pytest.approx(100.0), "longer than all: as long again"
    assert times.compute_remaining(make_task("x", 60.0, "other"), 100.0) == pytest.approx(40.0), "nothing is known"


def test_a_kind_keeps_its_last_run_times() -> None:
    times = RunTimes()
    for n in range(500):
        times.observe({"n": (make_task(f"u{n}", 0.0),)}, ["n"], float(n))
        times.observe({}, [], float(n))
    assert times.compute_remaining(make_task("x", 499.0), 499.0) == pytest.approx(np.mean(range(436, 500)))


def test_waits_say_what_is_reserved_for_whom_and_when_it_is_expected() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)
    [reservation] = world.reservations.list_all()

    waits = {wait.task_class.tenant: wait for wait in world.decide().waits}
    assert (waits["large"].reserved_on, waits["large"].expected) == (1, reservation.expected)
    assert waits["large"].fairness is None
    assert waits["small"].reserved_on == 0
    assert waits["small"].fairness is not None
    assert (waits["small"].fairness.next_tenant, waits["small"].fairness.reserved_on) == ("large", 1)
    world.now = reservation.expected
    late = {wait.task_class.tenant: wait for wait in world.decide(0.5).waits}
    assert (late["large"].reserved_on, late["large"].expected) == (1, None)


def test_a_cycle_too_early_for_a_look_says_when_there_must_be_one() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)

    assert world.decide(1.0).again_in is None
    assert world.decide(0.25).again_in == 0.75
    world.waiting.clear()
    assert world.decide(1.0).again_in is None
    assert world.decide(0.25).again_in is None


def test_what_is_reserved_is_summed_by_tenant_and_resource() -> None:
    world = World({"a": 8, "b": 8})
    fill(world)

    [server] = {server for _, server, _ in world.list_reserved()}
    assert world.reservations.sum_by_tenant() == {"large": Reserved({server}, Counter(cpu=4))}
    world.reservations.end_all()
    assert world.reservations.sum_by_tenant() == {}
