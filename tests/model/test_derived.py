"""A derived value is what is computed from nothing after any history, and is computed only when it must be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derived import find_kept, find_wrong
from fairbind.derived import Derived, Given, Memo, Rotation, Table


class Shop:
    """Prices by kind and a rate, and what follows from them. calls: how often each was computed."""

    def __init__(self) -> None:
        self.prices: dict[str, int] = {}
        self.rate = 1
        self.calls: Counter[str] = Counter()
        self.rates, self.kinds = Given(), Given()
        self.is_dear = Derived(self._is_dear, of=(self.rates,))
        self.cost = Table(self._find_cost, lambda: self.prices, of=(self.is_dear,))
        self.total = Derived(self._sum, of=(self.cost,))
        self.most = Memo(self._find_most, of=(self.cost,), most=3)

    def _is_dear(self) -> bool:
        self.calls["is_dear"] += 1
        return self.rate > 3

    def _find_cost(self, kind: str) -> int | None:
        self.calls["cost"] += 1
        price = self.prices.get(kind)
        return None if price is None else price * (2 if self.is_dear.get() else 1)

    def _sum(self) -> int:
        self.calls["total"] += 1
        return sum(self.cost.values.values())

    def _find_most(self, limit: int) -> int:
        self.calls["most"] += 1
        return max((cost for cost in self.cost.values.values() if cost <= limit), default=0)

    def put(self, kind: str, price: int | None) -> None:
        self.prices.pop(kind, None)
        if price is not None:
            self.prices[kind] = price
        self.cost.note_change(kind)

    def set_rate(self, rate: int) -> None:
        self.rate = rate
        self.rates.note_change()


happenings = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 4))),
    st.tuples(st.just("rate"), st.integers(0, 6)),
    st.tuples(st.just("ask"), st.integers(0, 8)),
)


@given(st.lists(happenings, max_size=30))
def test_what_is_kept_is_what_is_computed_from_nothing(history: list[tuple[object, ...]]) -> None:
    shop = Shop()
    for happening in history:
        match happening:
            case ("put", str(kind), int() | None as price):
                shop.put(kind, price)
            case ("rate", int(rate)):
                shop.set_rate(rate)
            case ("ask", int(limit)):
                factor = 2 if shop.rate > 3 else 1
                costs = [price * factor for price in shop.prices.values()]
                assert shop.most(limit) == max((cost for cost in costs if cost <= limit), default=0)
                assert shop.total.get() == sum(costs)
    assert len(find_kept(shop.__dict__)) == 4
    assert find_wrong(shop.__dict__) == []


def test_an_equal_input_has_nothing_computed_above_it() -> None:
    shop = Shop()
    shop.put("a", 1)
    assert (shop.total.get(), shop.most(5), shop.most(5)) == (1, 1, 1)
    before = shop.calls.copy()
    shop.set_rate(2)
    assert (shop.total.get(), shop.most(5)) == (1, 1)
    assert shop.calls - before == Counter(is_dear=1)
    shop.put("a", 1)
    assert (shop.total.get(), shop.most(5)) == (1, 1)
    assert shop.calls - before == Counter(is_dear=1, cost=1)


def test_a_table_computes_only_what_was_noted_and_says_what_changed() -> None:
    shop = Shop()
    for kind in "abc":
        shop.put(kind, 2)
    assert shop.cost.take_changes() == {"a": (None, 2), "b": (None, 2), "c": (None, 2)}
    before = shop.calls["cost"]
    shop.put("a", 3)
    shop.put("b", None)
    assert shop.cost.take_changes() == {"a": (2, 3), "b": (2, None)}
    assert shop.calls["cost"] == before + 2
    shop.set_rate(9)
    assert shop.cost.take_changes() == {"a": (3, 6), "c": (2, 4)}


def test_a_memo_remembers_no_more_than_it_may() -> None:
    shop = Shop()
    for limit in range(10):
        shop.most(limit)
        assert len(shop.most) <= 3
    assert shop.calls["most"] == 10


def test_a_wrong_value_is_found() -> None:
    shop = Shop()
    shop.put("a", 1)
    assert (shop.most(5), shop.total.get()) == (1, 1)
    shop.prices["a"] = 2  # nobody notes it

    assert len(find_wrong(shop.__dict__)) == 1
    shop.rate = 7
    assert len(find_wrong(shop.__dict__)) == 2


def test_a_rotation_keeps_the_order_of_coming() -> None:
    rotation = Rotation[str]()
    rotation.add("bca")
    rotation.add("ad")
    rotation.discard("c")
    assert [*rotation] == ["b", "a", "d"]
    assert (len(rotation), "c" in rotation, "d" in rotation) == (3, False, True)
    assert [*rotation.take(2)] == ["b", "a"]
    assert rotation.take_all() == ["d"]
    rotation.add("db")
    for key in rotation.take(9):
        assert key == "d"
        break
    assert [*rotation] == ["b"]


@pytest.mark.parametrize("times", [1, 2])
def test_the_same_object_stays_while_it_says_the_same(times: int) -> None:
    given_ = Given()
    made = Derived(lambda: [1], of=(given_,))
    before = made.get()
    for _ in range(times):
        given_.note_change()
    assert made.get() is before
