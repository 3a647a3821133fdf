"""The store of waits says what a plain list would, however its parts come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fairbind.model import DomainRules, LimitRule, Pin, Placement, ServerTable, SpreadRule, Task, TaskClass, Wait
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.waits import deferred as deferred_module
from fairbind.scheduling.cycle.waits import store as module
from fairbind.scheduling.cycle.waits.deferred import DeferredClasses
from fairbind.scheduling.cycle.waits.reaches import identify_reach
from fairbind.scheduling.cycle.waits.store import Fitting, Remembered
from scheduling.rules import FULL, SPREAD, build_counter, build_domains
from scheduling.worlds import build_class, build_placement, build_servers
from seeds import draw_seeds

NAMES = ["w", "x", "y", "z"]
HOSTS = build_domains([0, 1, 2, 3])
COUNTER = build_counter("red", HOSTS, [0, 0, 0, 0])
LIMITS = DomainRules((LimitRule(COUNTER, 1, np.array([9, 9, 9, 9]), FULL),))
SPREADS = DomainRules((SpreadRule(COUNTER, 1, 0, False, SPREAD),))
Draw = np.random.Generator


class World:
    """Servers, and placements that classes share."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.servers: ServerTable = build_servers(dict.fromkeys(NAMES, (9, 9)))
        self.placements: list[Placement] = [
            build_placement(self.servers),
            build_placement(self.servers, only=["x", "y"]),
            replace(build_placement(self.servers, only=["z"]), reserved={3: (1, 1)}),
            build_placement(self.servers, only=[]),
        ]
        self._made = 0

    def make_wait(self) -> Wait:
        self._made += 1
        draw = self.draw
        task = Task(f"u{self._made}", f"ns/{self._made}", int(draw.integers(2)), float(draw.integers(3)))
        made = build_class(
            "abcd"[draw.integers(4)],
            draw.integers(0, 9, 2).tolist(),
            self.placements[draw.choice([0, 0, 0, 0, 1, 2, 3])],
            [task],
        )
        if draw.random() < 0.2:
            server = int(draw.integers(4))
            made = replace(made, pin=Pin(NAMES[server], server if made.placement.eligible_k[server] else None))
        if draw.random() < 0.3:
            made = replace(made, rules=LIMITS if draw.random() < 0.5 else SPREADS)
        return Wait(made, task, 1, ())

    def make_room(self) -> FreeCapacity:
        return FreeCapacity(replace(self.servers, free_kr=self.draw.integers(-1, 10, (4, 2))))


def may_fit(task_class: TaskClass, grown: Sequence[int], free: FreeCapacity) -> bool:
    """Whether one of these servers has enough, or any may have it reserved."""
    placement, pin = task_class.placement, task_class.pin
    allowed = [k for k in grown if placement.eligible_k[k] and (pin is None or pin.server == k)]
    most_r = [max((free.left_rk[r, k] for k in allowed), default=-1.0) for r in range(2)]
    return bool(placement.reserved) or all(np.array(task_class.demand_r) <= most_r)


@pytest.mark.parametrize("seed", draw_seeds(40))
def test_what_is_remembered_is_in_its_order_and_found_where_it_may_fit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SINGLES_PART", [1, 16][seed % 2])
    monkeypatch.setattr(module, "SINGLE_CLASSES", [1, 6][seed % 4 // 2])
    monkeypatch.setattr(module, "MANY_SERVERS", [1, 8][seed % 3 // 2])
    draw = np.random.default_rng(seed)
    world, remembered, expected = World(draw), Remembered(compute_sort_key), list[Wait]()
    for _ in range(30):
        removed = [wait for wait in expected if draw.random() < draw.choice([0.02, 0.3])]
        added = [world.make_wait() for _ in range(draw.choice([0, 1, 2, 20]))]
        remembered.change(added, [wait.task_class for wait in removed])
        expected = [wait for wait in expected if wait not in removed] + added
        expected.sort(key=lambda wait: (wait.task_class.tenant, compute_sort_key(wait.first)))

        assert remembered.waits == tuple(expected)
        assert remembered.waits is remembered.waits
        others_too = [world.make_wait() for _ in range(draw.choice([0, 1, 9]))]
        both = sorted([*expected, *others_too], key=remembered.compute_key)
        assert remembered.list_with(others_too) == tuple(both)
        assert len(remembered) == len(expected)
        assert all(remembered[wait.task_class] is wait for wait in expected)
        assert not any(wait.task_class in remembered for wait in removed)
        kinds = {(wait.task_class.tenant, *identify_reach(wait.task_class)) for wait in expected}
        found_kinds = [(each.tenant, *identify_reach(each)) for each, _ in remembered.list_reaches()]
        assert (len(found_kinds), set(found_kinds)) == (len(kinds), kinds)
        asked = {(*key_of(wait.task_class), wait.task_class.demand_r) for wait in expected}
        assert {(*key_of(each), demand_r) for each, some in remembered.list_reaches() for demand_r in some} == asked
        free, grown = world.make_room(), np.flatnonzero(draw.random(4) < 0.5)
        parts = list(remembered.find_fitting(grown, free, np.zeros_like(free.left_rk)))
        found = [each for part in parts for each in part.classes]
        assert {id(each) for each in found} == {
            id(wait.task_class) for wait in expected if may_fit(wait.task_class, grown.tolist(), free)
        }
        assert len(found) == len(set(map(id, found)))
        for part in parts:
            check_part(part)
    remembered.clear()
    assert (len(remembered), remembered.waits, remembered.list_reaches()) == (0, (), [])


def key_of(task_class: TaskClass) -> tuple[str, Placement, str | None]:
    return (task_class.tenant, *identify_reach(task_class))


def check_part(part: Fitting) -> None:
    """What is said of the classes is true of each."""
    for each in part.classes:
        is_plain = each.pin is None and not each.placement.reserved and each.rules is not SPREADS
        assert is_plain is part.is_plain
    if part.demand_rn is not None:
        assert part.demand_rn.T.tolist() == [list(each.demand_r) for each in part.classes]


@pytest.mark.parametrize("few", [1, 99])
def test_what_is_held_is_told_once_and_as_long_as_there_is_room(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By arrays, and one by one."""
    monkeypatch.setattr(deferred_module, "SINGLE_CLASSES", few)
    servers = build_servers({"x": (9, 9), "y": (9, 9)}, free={"x": (4, 4), "y": (2, 6)})
    everywhere, free = build_placement(servers), FreeCapacity(servers)
    sizes = {"a": (4, 1), "b": (2, 5), "c": (1, 1), "d": (3, 5), "e": (1, 2)}
    classes = {name: build_class(name, size, everywhere) for name, size in sizes.items()}
    smaller = build_class("b", (0, 1), everywhere)
    demand_rn = np.array([*sizes.values()], dtype=np.float64).T
    parts = [Fitting([*classes.values()], is_plain=True, demand_rn=demand_rn), Fitting([smaller], is_plain=True)]
    held = DeferredClasses(parts, [0, 1], free)

    assert held.list_tenants() == ["a", "b", "c", "d", "e"]
    assert held.let_go("d") == [], "no single server has both"
    assert held.let_go("a") == [classes["a"]]
    assert held.let_go("a") == []
    assert held.list_tenants() == ["b", "c", "e"]
    for server, demand_r in ((0, (4, 1)), (1, (1, 2))):
        free.take(server, demand_r, everywhere.exclusive_keys)
    assert held.let_go("b") == [smaller], "the others took the room of the larger one"
    assert held.let_go("c") == [classes["c"]]
