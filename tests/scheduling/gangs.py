"""Groups in random worlds, and a slow judge of cycles that place them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from fairbind.model import (
    NO_EXCLUSIVE_KEYS,
    CycleReport,
    GroupTopology,
    Plan,
    Snapshot,
    TaskClass,
    TaskGroup,
    Wait,
)
from scheduling.reference import World, check_capacity, check_shares
from scheduling.reference_trees import KeepingWorld, TreeWorld
from scheduling.rules import build_domains
from scheduling.strategies import snapshots


@dataclass
class GangWorld(World):
    """A walk along plans. standing: the groups whose minimum is placed. closed: those that did not fit."""

    standing: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)

    def open_classes(self) -> Iterator[tuple[int, TaskClass]]:
        for n, task_class in super().open_classes():
            if task_class.group is None or task_class.group.name not in self.closed:
                yield n, task_class

    def list_of(self, name: str) -> list[tuple[int, TaskClass]]:
        """The classes of a group."""
        return [(n, each) for n, each in super().open_classes() if each.group is not None and each.group.name == name]

    def list_begun(self) -> list[TaskGroup]:
        """The groups that come first, in their order."""
        firsts: dict[str, tuple[tuple[float | str, ...], TaskGroup]] = {}
        for n, each in super().open_classes():
            if each.group is not None and each.group.is_begun:
                found = self.turn_of(self.waiting[n][0]), each.group
                firsts[each.group.name] = min(found, firsts.get(each.group.name, found), key=lambda pair: pair[0])
        return [group for _, group in sorted(firsts.values(), key=lambda pair: (pair[0], pair[1].name))]

    def walk(self, report: CycleReport) -> None:
        """Fail at the first plan that the policy does not allow."""
        plans = list(reversed(report.plans))
        for group in self.list_begun():
            self.meet(group, plans)
        while (following := self.find_next()) is not None:
            next_group = self.snapshot.task_classes[following[0]].group
            if next_group is not None and next_group.name not in self.standing:
                self.meet(next_group, plans)
            else:
                assert plans, "work conservation: a waiting task fits"
                plan = plans.pop()
                assert plan.is_single, "tasks that are not of one minimum are placed one by one"
                self.check_step(plan.binds[0])
        assert not plans, "somebody else is next"

    def meet(self, group: TaskGroup, plans: list[Plan]) -> None:
        """Take the next plan if it is the group's; if not, the group must not fit for sure."""
        members = {task.uid: n for n, _ in self.list_of(group.name) for task in self.waiting[n]}
        if plans and all(bind.task.uid in members for bind in plans[-1].binds) and group.name not in self.standing:
            self.put_plan(group, plans.pop())
        else:
            self.closed.add(group.name)
            assert not self.surely_fits(group), f"{group} fits, and is not placed"

    def put_plan(self, group: TaskGroup, plan: Plan) -> None:
        """Check and place the minimum of a group."""
        assert len(plan.binds) == group.lacking, "more or less than the minimum"
        roles, servers = dict(group.lacking_of_role), self.snapshot.servers.names
        domains = None if group.topology is None else group.topology.domains.domain_k
        used = set[int]()
        assert not self.lacks_free(group)
        for bind in plan.binds:
            n = next(n for n, _ in self.list_of(group.name) if self.waiting[n][:1] == [bind.task])
            task_class, server = self.snapshot.task_classes[n], servers.index(bind.server)
            assert bind.tenant == task_class.tenant
            assert server in self.fitting(task_class, None)
            roles[task_class.role] = roles.get(task_class.role, 0) - 1
            used.add(-1 if domains is None else int(domains[server]))
            self.put(n, server)
        assert all(count <= 0 for count in roles.values()), "a role is short"
        if group.topology is not None and group.topology.is_required:
            assert len(used) == 1
            assert used != {-1}, "more than one domain, or none"
        self.standing.add(group.name)

    def lacks_free(self, group: TaskGroup) -> bool:
        """Whether not so much is free as the group needs."""
        allowed = {k for _, each in self.list_of(group.name) for k in range(len(self.free))
                   if each.placement.eligible_k[k] and self.snapshot.servers.accepting_k[k]}  # fmt: skip
        free_r = [sum(max(self.free[k][r], 0) for k in allowed) for r in range(len(group.least_free_r))]
        return any(free < least for free, least in zip(free_r, group.least_free_r, strict=True))

    def is_odd(self, classes: list[TaskClass]) -> bool:
        """Whether more than free capacity decides where tasks may go: rules, keys, and what is kept for others."""
        places = [*self.snapshot.hierarchy.leaves.values()]
        places += [inner.place for inner in self.snapshot.hierarchy.inner.values()]
        return any(place.guarantees for place in places) or any(
            each.rules is not None or each.placement.exclusive_keys != NO_EXCLUSIVE_KEYS for each in classes
        )

    def surely_fits(self, group: TaskGroup) -> bool:
        """Whether so many tasks fit that are as large as the largest of the group, on servers that all may use."""
        classes = [each for _, each in self.list_of(group.name)]
        counts = {each.role: 0 for each in classes}
        for n, each in self.list_of(group.name):
            counts[each.role] += len(self.waiting[n])
        enough = sum(counts.values()) >= group.lacking
        enough &= all(counts.get(role, 0) >= count for role, count in group.lacking_of_role)
        if group.topology is not None or self.lacks_free(group) or not enough or self.is_odd(classes):
            return False
        demand_r = [max(demands) for demands in zip(*(each.demand_r for each in classes), strict=True)]
        return count_slots(self, classes, demand_r, group.lacking) >= group.lacking


@dataclass
class GangTreeWorld(GangWorld, TreeWorld):
    """The same in a tree. What a group asks for that did not fit counts as asked for, as what waits does."""

    def find_used_up(self, pool: int | None) -> set[int]:
        closed, self.closed = self.closed, set()
        used_up = super().find_used_up(pool)
        self.closed = closed
        return used_up


@dataclass
class GangKeepingWorld(GangWorld, KeepingWorld):
    """The same where tenants are in a tree and the order is that of all tasks."""


def count_slots(world: World, classes: list[TaskClass], demand_r: list[int], most: int) -> int:
    """How many tasks fit that ask for so much, on servers that all classes may use, and at most so many on each."""
    servers = set[int].intersection(*(set(world.eligible(each)) for each in classes))
    total = 0
    for k in servers:
        free_r = [max(free, 0) for free in world.free[k]]
        total += min((free // demand for free, demand in zip(free_r, demand_r, strict=True) if demand), default=most)
    return total


def check_gangs(snapshot: Snapshot, report: CycleReport) -> None:
    """Fail at the first plan that the policy does not allow, and at anything untrue in the rest of the report."""
    assert report.complete
    in_tree = GangKeepingWorld if report.policy == "fifo" else GangTreeWorld
    world = (GangWorld if snapshot.hierarchy.is_flat else in_tree)(snapshot, report.policy)
    world.walk(report)
    check_capacity(world)
    check_shares(world, report)
    waits = {id(wait.task_class.tasks): wait for wait in report.waits}
    for n, task_class in enumerate(snapshot.task_classes):
        wait = waits.pop(id(task_class.tasks), None)
        assert (wait is None) == (not world.waiting[n])
        if wait is not None:
            assert wait.waiting == len(world.waiting[n])
            assert wait.first == world.waiting[n][0]
            check_wait(world, wait)
    assert not waits


def check_wait(world: GangWorld, wait: Wait) -> None:
    """Check what a wait says of its group."""
    group, told = wait.task_class.group, wait.group
    if group is None or group.name in world.standing or wait.blocked is not None:
        assert told is None
        return
    assert told is not None
    assert (told.name, told.lacking) == (group.name, group.lacking)
    assert told.fitting < told.lacking
    assert bool(told.lacking_r) or sum(count for _, count in told.short) == told.lacking - told.fitting
    classes = [each for _, each in world.list_of(group.name)]
    if len(classes) == 1 and not world.is_odd(classes) and group.topology is None and not told.lacking_r:
        slots = count_slots(world, classes, list(classes[0].demand_r), group.lacking)
        assert told.fitting == min(slots, wait.waiting)


@st.composite
def gang_snapshots(
    draw: st.DrawFn, *, more: Sequence[Callable[[Snapshot], st.SearchStrategy[Snapshot]]] = ()
) -> Snapshot:
    """Snapshots in which some classes of a tenant are of one group. more: what else is added, in this order."""
    snapshot = draw(snapshots())
    for add in more:
        snapshot = draw(add(snapshot))
    classes, axes = list(snapshot.task_classes), len(snapshot.resources)
    for number in range(draw(st.integers(1, 3))):
        tenant = draw(st.sampled_from([each.tenant for each in classes]))
        places = [n for n, each in enumerate(classes) if each.tenant == tenant and each.group is None]
        chosen = draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True)) if places else []
        if chosen:
            roles = {n: draw(st.sampled_from(["", "", "lead", "worker"])) for n in chosen}
            group = draw(groups(f"g{number}", [(roles[n], len(classes[n].tasks)) for n in chosen], axes, snapshot))
            for n in chosen:
                classes[n] = replace(classes[n], group=group, role=roles[n])
    return replace(snapshot, task_classes=tuple(classes))


@st.composite
def groups(draw: st.DrawFn, name: str, counts: list[tuple[str, int]], axes: int, snapshot: Snapshot) -> TaskGroup:
    """A group whose minimum is not above its tasks. counts: (role, tasks) of each class."""
    total = sum(count for _, count in counts)
    lacking = draw(st.integers(1, total))
    role, count = draw(st.sampled_from(counts))
    of_role = ((role, min(count, lacking)),) if role and draw(st.booleans()) else ()
    least = draw(st.sampled_from([(), (), tuple(draw(st.sampled_from([0, 3, 20])) for _ in range(axes))]))
    domain_k = [draw(st.integers(-1, 1)) for _ in snapshot.servers.names]
    is_required, home = draw(st.sampled_from([(True, None), (False, None), (False, 0), (False, 1)]))
    topology = GroupTopology(build_domains(domain_k, 2), is_required, home)
    return TaskGroup(
        name,
        lacking,
        of_role,
        tuple(np.array(least, dtype=np.int64).tolist()),
        draw(st.sampled_from([False, False, True])),
        draw(st.sampled_from([None, None, topology])),
    )
