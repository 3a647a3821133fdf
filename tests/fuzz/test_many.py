"""Many objects of one tenant, each within its budget, cost another tenant's events no more than fewer do."""

from __future__ import annotations

import random
from itertools import product

import pytest

from fairbind.cluster.filters import term_index
from fuzz.many import KINDS, MODES, OPERATORS, WITH_TERMS, Multiple, draw_multiple, find_growth

SMALL = [
    Multiple("bind", "apart", "Exists", is_placed=True),
    Multiple("bind", "pushes", "NotIn", is_placed=True),
    Multiple("gate", "apart", "Pair", is_placed=True),
    Multiple("gate", "volumes", "", is_placed=True),
    Multiple("extender", "apart", "DoesNotExist", is_placed=True),
    Multiple("extender", "together", "In", is_placed=False),
    Multiple("bind", "ports", "", is_placed=False),
]
ALL = [
    Multiple(mode, kind, operator, is_placed=is_placed)
    for mode, kind, is_placed in product(MODES, KINDS, (True, False))
    for operator in (OPERATORS if kind in WITH_TERMS else ("",))
]


@pytest.mark.parametrize("recipe", SMALL, ids=Multiple.describe)
def test_what_another_tenants_pod_costs_does_not_grow_with_a_tenants_objects(recipe: Multiple) -> None:
    assert find_growth(recipe) == []


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", ALL, ids=Multiple.describe)
def test_none_of_all_recipes_grows(recipe: Multiple) -> None:
    assert find_growth(recipe) == []


def test_terms_without_a_budget_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_index, "MAX_TERMS", 10**9)
    monkeypatch.setattr(term_index, "MAX_PARTS", 10**9)
    monkeypatch.setattr(term_index, "ASKED_ONE_BY_ONE", 10**9)
    assert find_growth(Multiple("bind", "apart", "DoesNotExist", is_placed=True), 5, 20) != []


def test_the_same_seed_draws_the_same() -> None:
    assert draw_multiple(random.Random(3)) == draw_multiple(random.Random(3))
