"""Every state of the model of lease and fence is safe, and each rule that is broken leads to one that is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model_checking.lease_model import DELETE, NEWLY_STARTED, Rules, State, Timing, make_led
from model_checking.search import count_ticks_to_lead, describe, search

TWO_SECONDS = Timing(open=3, wait=5, binding=2)
ONE_SECOND = Timing(open=6, wait=10, binding=4)
"""The operator's lease of 10 s, margin of 4 s and bindings of at most 3.5 s, way included, in ticks of 2 s and 1 s."""
COARSE = Rules((TWO_SECONDS, TWO_SECONDS), slow_reads=False)
FINE = Rules((ONE_SECOND, ONE_SECOND), slow_reads=False)


def check(rules: Rules, start: State, least: int) -> None:
    found = search(rules, start)
    assert found.danger is None, f"{found.danger}\n{describe(found.trace)}"
    assert found.states >= least, "something cannot happen any more, so nothing much was checked"


def test_never_two_bind() -> None:
    check(FINE, make_led(FINE), 20_000)


def test_never_two_bind_however_late_a_read_is_answered() -> None:
    rules = replace(COARSE, slow_reads=True, restarts=False)
    check(rules, make_led(rules), 20_000)


@pytest.mark.slow
def test_never_two_bind_when_nobody_has_seen_a_lease_yet() -> None:
    check(COARSE, NEWLY_STARTED, 50_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "timings",
    [
        pytest.param((Timing(7, 10, 3), Timing(6, 10, 3)), id="the leader's is slow"),
        pytest.param((Timing(6, 10, 3), Timing(6, 9, 3)), id="the other's is fast"),
    ],
)
def test_never_two_bind_with_clocks_that_run_at_different_rates(timings: tuple[Timing, Timing]) -> None:
    """A tick is 1 s: in the time of a lease, one clock loses or gains one, so they differ by up to 10 %."""
    rules = replace(FINE, timings=timings)
    check(rules, make_led(rules), 20_000)


def test_never_two_bind_when_the_lease_is_deleted_once() -> None:
    rules = replace(COARSE, restarts=False)
    check(rules, make_led(rules)._replace(deletions=1), 5_000)


def test_somebody_leads_again_soon_after_all_trouble() -> None:
    rules = replace(COARSE, restarts=True)
    reached = search(rules, make_led(rules)).reached
    assert count_ticks_to_lead(reached, rules) == TWO_SECONDS.wait


@pytest.mark.slow
def test_somebody_leads_again_soon_after_a_deletion() -> None:
    rules = replace(COARSE, restarts=False)
    reached = search(rules, make_led(rules)._replace(deletions=1)).reached
    assert count_ticks_to_lead(reached, rules) == TWO_SECONDS.wait


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"counts_from_answer": True}, id="holds_until counts from the answer"),
        pytest.param({"counts_from_zero": True}, id="a foreign lease counts as seen long ago"),
        pytest.param({"has_precondition": False}, id="a write needs no version"),
        pytest.param({"drains": False}, id="the lease is given back before the last binding has ended"),
        pytest.param({"timings": (Timing(5, 5, 2),) * 2}, id="no margin"),
        pytest.param({"timings": (Timing(4, 5, 2),) * 2}, id="a margin that is too small"),
        pytest.param({"timings": (Timing(3, 5, 3),) * 2}, id="a freeze between the fence and the bytes"),
        pytest.param({"timings": (Timing(4, 5, 2), Timing(3, 4, 2))}, id="clocks that differ by far"),
    ],
)
def test_a_rule_that_is_broken_lets_two_bind(broken: dict[str, object]) -> None:
    rules = replace(COARSE, **broken)  # type: ignore[arg-type]
    found = search(rules, make_led(rules))
    assert found.danger is not None
    assert found.trace


def test_who_held_a_lease_that_is_missing_must_doubt_that_it_is_the_last_holder() -> None:
    rules = replace(COARSE, restarts=False, slow_reads=False, doubts_missing=False)
    found = search(rules, make_led(rules)._replace(deletions=1))
    assert found.danger == "both may bind"
    assert DELETE in [step.action for step in found.trace]


@pytest.mark.parametrize(("restarts", "deletions"), [(True, 1), (False, 2)])
def test_a_deleted_lease_protects_nobody_from_one_that_has_just_started_nor_when_it_is_deleted_again(
    *, restarts: bool, deletions: int
) -> None:
    """What docs/reliability/model.md names as the bounds of the protection is really where it ends."""
    rules = replace(COARSE, restarts=restarts)
    found = search(rules, make_led(rules)._replace(deletions=deletions))
    assert found.danger is not None
    assert [step.action for step in found.trace].count(DELETE) == deletions
