"""Both kinds that are compared place as many tasks, the tree is one, and the page is made from the results."""

from __future__ import annotations

import json

import pytest

from perf.tree_cost import PAGE, RESULTS, build_tree, build_world, measure_backlog, measure_changes, render_page


@pytest.mark.parametrize("promises", [False, True])
def test_with_and_without_a_tree_all_is_placed(*, promises: bool) -> None:
    change = measure_changes("ps-dsf", servers=4, tenants=30, repeats=2, promises=promises)
    backlog = measure_backlog("best-fit-drfh", servers=4, tenants=30, tasks=4, repeats=1, promises=promises)

    assert (change.placed, backlog.placed) == (1, 120)


def test_the_tree_has_four_levels() -> None:
    world = build_world(servers=4, tenants=900, tasks=0)
    tree = build_tree(world)

    assert {len(list(tree.list_above(tenant.name))) for tenant in world.tenants} == {3}
    assert len(tree.inner) == 6 + 30 + 180


def test_the_page_says_what_was_measured() -> None:
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]

    assert PAGE.read_text(encoding="utf-8") == render_page(lines)
