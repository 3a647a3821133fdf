"""What is compared places as many tasks, and the page is made from the results."""

from __future__ import annotations

import json

from perf.gang_cost import PAGE, RESULTS, measure_backlog, measure_changes, measure_one, render_page


def test_all_is_placed_with_and_without_groups_and_nothing_while_all_waits() -> None:
    assert measure_one("ps-dsf", servers=4, tasks=30, repeats=1) > 0
    assert measure_backlog("best-fit-drfh", servers=60, groups=4, repeats=1).ratio > 0
    assert measure_changes("tsf", servers=200, waiting=5, repeats=2).ratio > 0


def test_the_page_says_what_was_measured() -> None:
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]

    assert PAGE.read_text(encoding="utf-8") == render_page(lines)
