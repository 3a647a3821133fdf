from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.instance import reduce_problem
from fairbind.fairness.solve import compute_allocation
from perf.exact import make_plan, run_case
from perf.exact_problems import TEXTBOOK, Case, change_problem, make_case_problem
from perf.exact_report import (
    GOALS,
    PAGE,
    PICTURE,
    RESULTS,
    compute_seconds,
    draw_growth,
    find_goals,
    render_page,
    render_tables,
)
from perf.exact_textbook import NoProgramError, solve_textbook
from perf.google_servers import GOOGLE_SERVERS

TEXTBOOK_CASES = (
    Case("", "drf", 12),
    Case("", "asset-fairness", 12, resources=3),
    Case("", "dynamic-drf", 12, resources=3),
    Case("", "drfh", 6, "google", of_google=50),
    Case("", "tsf", 6, "google singly", of_google=50),
)


@pytest.fixture
def results() -> dict[str, Any]:
    cases = make_plan(small=False)
    outcomes = []
    for case in cases:
        seconds = case.tenants / 1e5 if case.solver == "fairbind" else 7.0
        outcome = {"status": "optimal", "seconds": [9.0, seconds, seconds + 1], "memory_mib": 50.0}
        if case.change:
            outcome["again_seconds"] = [seconds / 6]
        if case.solver == TEXTBOOK and case.servers == "google":
            outcome = {"status": "out of time"}
        outcomes.append({**asdict(case), **outcome})
    return {
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"cpu": "Abacus", "cores": 2, "memory_gib": 24.0, "system": "Linux 6"},
        "versions": {"fairbind": "0.1.0"},
        "limits": {"seconds": 300.0, "memory_gib": 8.0},
        "start": [{"command": "fairbind mechanisms", "seconds": [0.7, 0.9], "cpu_seconds": [0.5, 0.5]}],
        "cases": outcomes,
        "seconds": 600,
    }


@pytest.mark.parametrize("case", TEXTBOOK_CASES, ids=lambda case: f"{case.mechanism} {case.servers}")
def test_the_textbook_has_the_same_answer(case: Case) -> None:
    problem = make_case_problem(case)
    totals_i = compute_allocation(problem, case.mechanism).totals_i
    np.testing.assert_allclose(solve_textbook(problem, case.mechanism), totals_i, rtol=1e-6)
    np.testing.assert_allclose(solve_textbook(problem, case.mechanism, is_by_class=True), totals_i, rtol=1e-6)


def test_what_is_no_linear_program_has_no_textbook() -> None:
    with pytest.raises(NoProgramError, match="ceei"):
        solve_textbook(make_case_problem(Case("", "ceei", 3)), "ceei")


def test_table_1_has_all_its_servers_together_or_singly() -> None:
    together, singly = (make_case_problem(Case("", "drfh", 2, servers)) for servers in ("google", "google singly"))
    assert (len(together.server_names), len(singly.server_names)) == (10, GOOGLE_SERVERS)
    assert GOOGLE_SERVERS == 12_583
    np.testing.assert_allclose(together.total_r, singly.total_r)
    mixed = make_case_problem(Case("", "drfh", 50, "google singly", is_mixed=True))
    assert reduce_problem(mixed).capacity_kr.shape[0] == 10, "equal servers are for the same tenants"


@pytest.mark.parametrize("case", {(c.mechanism, c.servers): c for c in make_plan(small=True) if c.is_mixed}.values())
def test_mixed_problems_use_only_what_the_mechanism_takes(case: Case) -> None:
    if case.mechanism in MECHANISMS:
        compute_allocation(make_case_problem(case), case.mechanism)


def test_every_goal_is_in_the_plan() -> None:
    plan = make_plan(small=False)
    for mechanisms, tenants, servers, classes, resources, _ in GOALS:
        for mechanism in mechanisms:
            assert Case("goals", mechanism, tenants, servers, classes, resources) in plan
            assert Case("goals", mechanism, tenants, servers, classes, resources, is_mixed=True) in plan


def test_a_case_runs_by_itself() -> None:
    outcome = run_case(Case("goals", "drf", 50), limit=60)
    assert outcome["status"] == "optimal"
    assert outcome["certificate"]["method"] == "bottlenecks"
    assert 0 < outcome["memory_before_mib"] <= outcome["memory_mib"]


@pytest.mark.parametrize("change", ["weight", "demand", "count"])
def test_a_changed_problem_differs_in_one_thing(change: str) -> None:
    problem = make_case_problem(Case("changes", "drfh", 20, "google", of_google=200, is_mixed=True))
    changed = change_problem(problem, change)
    arrays = {"weight": "weight_i", "demand": "demand_ir", "count": "count_k"}
    for name, array in arrays.items():
        rows = (getattr(problem, array) != getattr(changed, array)).reshape(getattr(problem, array).shape[0], -1)
        assert rows.any(axis=1).sum() == (name == change)


def test_a_change_is_solved_from_scratch_and_again() -> None:
    outcome = run_case(Case("changes", "drfh", 20, "google", of_google=200, is_mixed=True, change="count"), limit=60)
    assert outcome["status"] == "optimal"
    assert len(outcome["again_seconds"]) >= 2
    assert outcome["difference"] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "limit", "status"),
    [
        (Case("", "drfh", 100, "google singly", solver=TEXTBOOK), 1.0, "out of time"),
        (Case("", "no such one", 3), 60.0, "failed: "),
        (Case("", "drfh", 300, "google singly", solver=TEXTBOOK), 60.0, "out of memory"),
    ],
)
def test_a_case_that_does_not_end_well_says_why(case: Case, limit: float, status: str) -> None:
    assert run_case(case, limit, limit_gib=1.0)["status"].startswith(status)


def test_goals_are_judged_by_the_figures(results: dict[str, Any]) -> None:
    reached = {goal: (figure, is_met) for goal, figure, is_met in find_goals(results)}
    assert reached["drf, 100,000 x one pool, 2 resources, plain: below 1 s"] == ("1 s", False)
    assert reached["tsf, 1,000 x 12,583 servers in 10 shapes, mixed: below 1 s"] == ("0.01 s", True)
    assert reached["ps-dsf, 1,000 x 50 classes, 4 resources, count changed: 5 x faster"] == ("6.0 x", True)
    assert reached["`fairbind mechanisms`: below 0.6 s"] == ("0.70 s", False)


def test_page_says_all_that_was_measured(results: dict[str, Any]) -> None:
    page = render_page(results, "2026-01-02.json")
    assert "@" not in page
    assert render_tables(results) in page
    for part in (
        "Abacus, 2 cores",
        "2026-01-02",
        "out of time",
        "results/exact/2026-01-02.json",
        "drf by the textbook",
        "| by class |",
    ):
        assert part in page


def test_page_says_what_failed_and_why(results: dict[str, Any]) -> None:
    results["cases"][0] |= {"status": "failed: SolverError: not proved", "seconds": []}
    page = render_page(results, "2026-01-02.json")
    assert "| SolverError: not proved |" in page
    assert re.search(r"\| +failed +\|", page)


@pytest.mark.slow
def test_picture_is_the_same_from_the_same_figures(results: dict[str, Any], tmp_path: Any) -> None:
    pictures = []
    for name in ("one.svg", "two.svg"):
        draw_growth(results, tmp_path / name)
        pictures.append((tmp_path / name).read_text(encoding="utf-8"))
    assert pictures[0] == pictures[1]
    assert "by the textbook" in pictures[0]


@pytest.mark.parametrize("published", sorted(RESULTS.glob("*.json"))[-1:], ids=lambda path: path.stem)
def test_published_page_is_made_from_the_published_results(published: Any) -> None:
    results = json.loads(published.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == render_page(results, published.name)
    assert PICTURE.exists()


def test_short_runs_count_by_the_clock_and_long_ones_by_processor_time() -> None:
    assert compute_seconds({"seconds": [0.0, 0.0, 0.004], "wall_seconds": [0.1, 0.003, 0.002]}) == 0.002
    assert compute_seconds({"seconds": [1.0, 1.5], "wall_seconds": [0.5, 9.0]}) == 1.5
