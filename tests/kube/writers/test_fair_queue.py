"""Lines take turns, and what is too much takes the place of the oldest of the longest line."""

from __future__ import annotations

from fairbind.kube.writers.fair_queue import FairQueue


def make_queue(lines: str) -> FairQueue[str, str]:
    """A queue of at most three items a line; each item is a letter of the line of that letter and its number."""
    queue = FairQueue[str, str](3)
    for n, line in enumerate(lines):
        queue.add(line, f"{line}{n}")
    return queue


def take_all(queue: FairQueue[str, str]) -> list[str]:
    taken = []
    while (item := queue.take()) is not None:
        taken.append(item)
    return taken


def test_lines_take_turns() -> None:
    queue = make_queue("aaabc")

    assert len(queue) == 5
    assert take_all(queue) == ["a0", "b3", "c4", "a1", "a2"]
    assert len(queue) == 0


def test_a_line_that_may_not_be_taken_from_keeps_its_place() -> None:
    queue = make_queue("ab")

    assert queue.take(lambda line: line != "a") == "b1"
    assert queue.take(lambda line: line != "a") is None
    assert take_all(queue) == ["a0"]


def test_a_full_line_loses_its_oldest_item() -> None:
    queue = make_queue("aaaa")

    assert not queue.has_room("a")
    assert queue.has_room("b")
    assert len(queue) == 3
    assert take_all(queue) == ["a1", "a2", "a3"]


def test_what_is_dropped_is_the_oldest_of_the_longest_line_and_an_empty_line_goes() -> None:
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
