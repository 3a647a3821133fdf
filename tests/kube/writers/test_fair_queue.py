"""Queues take turns, and what is too much takes the place of the oldest of the longest queue."""

from __future__ import annotations

from fairbind.kube.writers.fair_queue import FairQueue


def make_queue(keys: str) -> FairQueue[str, str]:
    """At most three items a queue; each is the key of its queue, a letter, and its number."""
    queue = FairQueue[str, str](3)
    for n, key in enumerate(keys):
        queue.add(key, f"{key}{n}")
    return queue


def take_all(queue: FairQueue[str, str]) -> list[str]:
    taken = []
    while (item := queue.take()) is not None:
        taken.append(item)
    return taken


def test_queues_take_turns() -> None:
    queue = make_queue("aaabc")

    assert len(queue) == 5
    assert take_all(queue) == ["a0", "b3", "c4", "a1", "a2"]
    assert len(queue) == 0


def test_a_queue_that_may_not_be_taken_from_keeps_its_place() -> None:
    queue = make_queue("ab")

    assert queue.take(lambda key: key != "a") == "b1"
    assert queue.take(lambda key: key != "a") is None
    assert take_all(queue) == ["a0"]


def test_a_full_queue_loses_its_oldest_item() -> None:
    queue = make_queue("aaaa")

    assert not queue.has_place("a")
    assert queue.has_place("b")
    assert len(queue) == 3
    assert queue.add("a", "a4") == "a1"
    assert queue.add("b", "b0") is None
    assert (len(queue), queue.queues) == (4, 2)
    assert take_all(queue) == ["a2", "b0", "a3", "a4"]


def test_what_is_dropped_is_the_oldest_of_the_longest_queue_and_an_empty_queue_goes() -> None:
    queue = make_queue("abb")

    queue.drop()
    queue.drop()
    queue.drop()
    assert len(queue) == 0
    queue.drop()
    assert take_all(queue) == []
    assert len(queue) == 0


def test_all_can_be_dropped() -> None:
    queue = make_queue("ab")

    queue.clear()
    assert len(queue) == 0
    assert queue.take() is None
