"""Reservations beside capacity that a tenant does not lend: neither takes what the other keeps, and none starves."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from fairbind.model import Snapshot, Tenant
from fairbind.model.hierarchy import Guarantee, Hierarchy, InnerTenant, Place
from scheduling.ending_worlds import EndingWorld as World
from scheduling.rules import build_domains
from scheduling.test_reservations import SHARED
from seeds import draw_seeds


class KeepingWorld(World):
    """A world in which what `keep` holds counts towards its guarantee."""

    def look(self) -> Snapshot:
        return replace(super().look(), held={"keep": self.count_held("keep")})


def build_world(kept: int, *sizes: int, below: str | None = None, **fields: object) -> KeepingWorld:
    """`keep` does not lend; `large` and `small` are its siblings, or below one."""
    promise = Guarantee("keep", "cpu", kept, build_domains([0] * len(sizes), 1))
    leaves = {"keep": Place(guarantees=(promise,), lends=False), "large": Place(below), "small": Place(below)}
    inner = {} if below is None else {below: InnerTenant(Tenant(below), Place())}
    names = {f"n{n}": size for n, size in enumerate(sizes)}
    world = KeepingWorld(names, hierarchy=Hierarchy(leaves, inner), **fields)  # type: ignore[arg-type]
    world.waiting["keep", 1] = []
    return world


def fill(world: World, large: int) -> None:
    world.submit("small", 1, 60)
    world.decide()
    world.submit("large", large, 10)
    world.decide()


@pytest.mark.parametrize("below", [None, "top"])
@pytest.mark.parametrize("recalls", [False, True])
def test_a_large_task_gets_its_turn_beside_what_is_kept(below: str | None, *, recalls: bool) -> None:
    world = build_world(4, 20, below=below, recalls=recalls)
    fill(world, 6)
    assert world.list_reserved() == [("large", "n0", 1)]

    for _ in range(6):
        assert world.count_held("large") == 0
        world.end(world.list_tasks("small")[:1])
        world.decide()

    assert (world.count_held("large"), world.count_held("small")) == (6, 10)


def test_nothing_is_reserved_where_too_much_is_kept_for_good() -> None:
    world = build_world(15, 20)
    fill(world, 6)

    assert world.count_held("small") == 5
    assert world.list_reserved() == []


def test_what_is_kept_is_not_reserved_from_whom_it_is_kept_for() -> None:
    """Of 20 cpu 4 are kept, and these are all that is free. Its shares are above those of the large task's tenant."""
    world = build_world(12, 20)
    world.submit("keep", 1, 8)
    fill(world, 5)
    assert (world.count_held("keep"), world.count_held("small")) == (8, 8)
    assert [tenant for tenant, *_ in world.list_reserved()] == ["large"]
    world.decide()

    world.submit("keep", 1, 4)
    world.decide()

    assert world.count_held("keep") == 12


@pytest.mark.parametrize("seed", draw_seeds(6))
def test_what_is_kept_stays_free_and_is_had_at_once(seed: int) -> None:
    draw = Random(seed)
    kept = draw.choice([2, 4, 7])
    world = build_world(
        kept,
        *draw.choice([(20,), (10, 10), (16, 8, 8)]),
        below=draw.choice([None, "top"]),
        recalls=draw.random() < 0.5,
    )
    world.settings = replace(world.settings, policy=draw.choice(SHARED))
    fill(world, draw.choice([3, 4, 5]))
    for _ in range(150):
        ending = draw.sample(sorted(world.running), min(len(world.running), draw.choice([0, 1, 2])))
        world.end(ending)
        world.submit(draw.choice(["keep", "small"]), 1, draw.choice([0, 1, 2]))
        before = sum(world.list_free().values())
        report = world.decide(draw.choice([1.0, 30.0]))
        free, unused = world.list_free(), max(kept - world.count_held("keep"), 0)
        others = [bind for bind in report.bindings if bind.tenant != "keep"]
        assert sum(free.values()) >= min(unused, before) or not others
        waits_for_one = bool(world.waiting["keep", 1])
        assert not (waits_for_one and unused and any(free.values())), "its own, and free"
