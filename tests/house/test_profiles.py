"""What hypothesis is told: the same examples in CI, others each night, and an end to making a failure smaller."""

from __future__ import annotations

import time

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine


def test_a_failure_is_made_smaller_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every smaller example takes a fiftieth of a second here, and there are tens of thousands of them."""
    assert engine.MAX_SHRINKING_SECONDS < 60
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", 1)
    tries = 0

    @settings(phases=[Phase.generate, Phase.shrink], database=None, max_examples=1_000, deadline=None)
    @given(st.lists(st.integers(0, 1 << 60), min_size=40, unique=True))
    def property_that_fails(numbers: list[int]) -> None:
        nonlocal tries
        if sum(number % 7 for number in numbers) > 100:
            time.sleep(0.02)
            tries += 1
            pytest.fail("too much")

    with pytest.raises(pytest.fail.Exception):
        property_that_fails()

    assert 1 < tries < 1_000


@pytest.mark.parametrize(
    ("name", "is_same_each_time"), [("ci", True), ("quick", True), ("nightly", False), ("deep", False)]
)
def test_a_profile_draws_the_same_or_others(name: str, *, is_same_each_time: bool) -> None:
    """Where CI is set, hypothesis itself would draw the same with every profile that does not say otherwise."""
    profile = settings.get_profile(name)

    assert profile.derandomize == is_same_each_time
    assert profile.print_blob or is_same_each_time


def test_at_night_more_is_tried_than_in_ci() -> None:
    examples = [settings.get_profile(name).max_examples for name in ("quick", "ci", "nightly", "deep")]

    assert examples == sorted(set(examples))
