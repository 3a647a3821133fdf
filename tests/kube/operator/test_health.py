from __future__ import annotations

from fairbind.kube.operator.health import DEAD_AFTER_SECONDS, UNREADY_AFTER_SECONDS, Health


def test_it_is_not_ready_before_it_started() -> None:
    assert Health().find_unready() == "operator: starting"


def test_every_problem_is_named_in_a_fixed_order() -> None:
    health = Health()
    health.set_problem("pods", "not listed yet")
    health.set_problem("api", "refused")
    health.clear_problem("operator")
    assert health.find_unready() == "api: refused; pods: not listed yet"
    health.clear_problem("api")
    health.clear_problem("pods")
    assert health.find_unready() is None


def test_only_news_is_news() -> None:
    health = Health()
    assert health.set_problem("pods", "one")
    assert not health.set_problem("pods", "one")
    assert health.set_problem("pods", "two")
    assert health.clear_problem("pods")
    assert not health.clear_problem("pods")


def test_a_loop_that_does_not_turn_is_dead() -> None:
    now = 0.0
    health = Health(clock=lambda: now)
    assert health.find_dead() is None
    now = DEAD_AFTER_SECONDS + 1
    found = health.find_dead()
    assert found is not None
    assert "61 s" in found
    health.beat()
    assert health.find_dead() is None


def test_an_event_loop_that_does_not_turn_is_not_ready_long_before_it_is_dead() -> None:
    now = 0.0
    health = Health(clock=lambda: now)
    health.clear_problem("operator")
    now = UNREADY_AFTER_SECONDS
    assert health.find_unready() is None
    now = UNREADY_AFTER_SECONDS + 1
    assert health.stalled_seconds == now
    assert health.find_unready() == "event loop: has not turned for 5 s"
    assert health.find_dead() is None
    health.note_event_loop()
    assert health.find_unready() is None
