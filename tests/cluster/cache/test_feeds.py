"""A long list is taken in parts, and is in the end what it is at once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fairbind.cluster.cache.feeds import PART, Feed


@dataclass(frozen=True)
class Thing:
    name: str
    version: str


class Store:
    """What a feed hands on."""

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self.feed = Feed[Thing](
            key=lambda thing: thing.name, put=self._put, remove=self._remove, known=lambda: self.things
        )

    def _put(self, thing: Thing) -> None:
        self.things[thing.name] = thing

    def _remove(self, name: str) -> None:
        del self.things[name]


def make_things(*numbers: int) -> list[Thing]:
    return [Thing(f"t{n}", str(100 + n)) for n in numbers]


@pytest.mark.parametrize(("count", "pauses"), [(0, 0), (PART - 1, 0), (PART, 1), (2 * PART + 1, 2)])
def test_others_may_work_after_each_part(count: int, pauses: int) -> None:
    store = Store()

    assert len(list(store.feed.replace_in_parts(make_things(*range(count))))) == pauses
    assert len(store.things) == count
    assert len(list(store.feed.replace_in_parts([]))) == pauses
    assert store.things == {}


def test_only_the_end_of_a_list_takes_away_what_is_not_in_it_and_counts_its_version() -> None:
    store = Store()
    store.feed.replace(make_things(1), "500")
    parts = store.feed.replace_in_parts(make_things(*range(2, PART + 3)), "1000")

    next(parts)
    assert "t1" in store.things
    list(parts)
    assert store.things.keys() == {f"t{n}" for n in range(2, PART + 3)}
    store.feed.apply(Thing("t2", "999"))
    assert store.things["t2"].version == "102"
    store.feed.apply(Thing("t2", "1001"))
    assert store.things["t2"].version == "1001"
