from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perf.measure import compute_percentile
from perf.report import (
    PAGE,
    RESULTS,
    compute_rate,
    find_goals,
    render_backlogs,
    render_page,
    render_table,
    render_tables,
)

CPU = {"seconds": 10.0, "by_process": {"kube-apiserver": 15.0, "etcd": 3.0, "benchmark": 1.0}, "busy": 0.98}
DISTURBED_CPU = {**CPU, "by_process": {"kube-apiserver": 10.0, "etcd": 4.0, "benchmark": 1.0}}


@pytest.fixture
def results() -> dict[str, Any]:
    def backlog(contender: str, rate: float) -> dict[str, Any]:
        return {
            "contender": contender,
            "nodes": 1000,
            "rate": rate,
            "pods": 500,
            "bound": 500,
            "cpu": CPU,
            "ready_seconds": 1.0,
            "memory_mib": 100.0,
        }

    def single(contender: str, p99: float) -> dict[str, Any]:
        seconds = {"p50_seconds": 0.01, "p99_seconds": p99, "max_seconds": p99}
        return {"contender": contender, "nodes": 1000, "pods": 200, "bound": 200, "cpu": CPU, **seconds}

    return {
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"cpu": "Abacus", "cores": 2, "memory_gib": 24.0, "system": "Linux 6"},
        "versions": {"fairbind": "0.1.0"},
        "plan": {"nodes": [1000], "pods": 500, "rounds": 1, "in_flight": 128},
        "cycle": {
            "figures": [
                {"policy": "best-fit-drfh", "shapes": "shared", "servers": 100, "decisions_per_second": 60_000.0},
                {"policy": "best-fit-drfh", "shapes": "shared", "servers": 5000, "decisions_per_second": 25_000.0},
            ],
            "google": {
                "backlogs": [
                    {"policy": "ps-dsf", "servers": 1000, "decisions_per_second": 36_000.0},
                    {"policy": "ps-dsf", "servers": 12_583, "decisions_per_second": 14_000.0},
                    {"policy": "ps-dsf", "servers": 100_000, "decisions_per_second": 20_000.0},
                ],
                "arrivals": [{"policy": "ps-dsf", "servers": 12_583, "tenants": 900, "total_ms": 3.25}],
            },
        },
        "backlogs": [
            backlog("fairbind", 500.0),
            backlog("kube-scheduler", 260.0),
            backlog("gate", 190.0),
            backlog("bare binds", 600.0),
        ],
        "singles": [single("gate", 0.31), single("kube-scheduler", 0.02)],
        "arrivals": [
            {
                "contender": "fairbind",
                "nodes": 1000,
                "reached_rate": 250.0,
                "pods": 500,
                "bound": 499,
                "p50_seconds": 0.05,
                "p99_seconds": 1.5,
                "max_seconds": 2.0,
                "cpu": CPU,
            }
        ],
        "arrival_limits": [
            {
                "contender": "bare binds",
                "nodes": 1000,
                "reached_rate": 249.0,
                "pods": 500,
                "bound": 500,
                "p50_seconds": 0.02,
                "p99_seconds": 0.9,
                "max_seconds": 1.0,
                "cpu": CPU,
            }
        ],
        "idles": [
            {
                "contender": "fairbind",
                "nodes": 1000,
                "pods": 500,
                "cores": 0.01,
                "memory_mib": 120.0,
                "restart_ready_seconds": 3.0,
            }
        ],
        "seconds": 120,
    }


def test_goals_are_judged_by_the_figures(results: dict[str, Any]) -> None:
    reached = {goal: (figure, is_reached) for goal, figure, is_reached in find_goals(results)}

    assert reached["2.0 x kube-scheduler at 1,000 nodes"] == ("1.92 x", False)
    assert reached["80 % of the bare binds at 1,000 nodes"] == ("83%", True)
    assert reached["arriving, p99 below 1 s at 1,000 nodes"] == ("1.500 s (bare binds: 0.900 s)", False)
    assert reached["gate mode: 100 pods/s at 1,000 nodes"] == ("190/s", True)
    assert reached["gate mode: 0.8 x kube-scheduler at 1,000 nodes"] == ("0.73 x", False)
    assert reached["gate mode: one pod, p99 below 0.3 s at 1,000 nodes"] == ("0.310 s (kube-scheduler: 0.020 s)", False)
    assert reached["cycle: 20,000 decisions/s at 5,000 servers, shared"] == ("25,000/s", True)
    assert reached["cycle: at most twice the cost of 100 at 5,000 servers, shared"] == ("2.40 x", False)
    assert reached["ps-dsf: 15,000 decisions/s at 12,583 servers, 900 tenants"] == ("14,000/s", False)
    assert reached["ps-dsf: at most twice the cost of 1,000 at 100,000 servers"] == ("1.80 x", True)
    assert reached["ps-dsf: one pod within 3 ms at 12,583 servers, 900 tenants"] == ("3.25 ms", False)
    assert reached["idle below 3 % of a core with 1,000 nodes and 500 pods"] == ("1.0%", True)


def test_a_disturbed_round_is_marked_and_counts_only_without_another(results: dict[str, Any]) -> None:
    disturbed = {**results["backlogs"][0], "rate": 100.0, "cpu": DISTURBED_CPU}
    alone = {**results, "backlogs": [disturbed, *results["backlogs"][1:]]}
    assert compute_rate(alone, 1000, "fairbind") == 100.0
    assert ("80 % of the bare binds at 1,000 nodes", r"17%\*", False) in find_goals(alone)

    results["backlogs"].append(disturbed)

    assert compute_rate(results, 1000, "fairbind") == 500.0
    assert ("80 % of the bare binds at 1,000 nodes", "83% (50% over all rounds)", True) in find_goals(results)
    assert "| unknown |" in render_tables(alone)
    assert "500, 100\\*" in render_tables(results)


def test_gate_mode_is_judged_beside_the_bare_openings(results: dict[str, Any]) -> None:
    goal = "gate mode: 0.8 x kube-scheduler at 1,000 nodes"
    assert find_share_of_limit(results, "gate") == "32%", "without bare openings the bare binds are the limit of all"
    openings = {**results["backlogs"][2], "contender": "bare openings", "rate": 200.0}
    results["backlogs"].append(openings)

    assert (goal, "0.73 x (bare openings: 0.77 x)", False) in find_goals(results)
    assert [find_share_of_limit(results, name) for name in ("gate", "bare openings", "kube-scheduler")] == [
        "95%",
        "100%",
        "43%",
    ]

    openings["cpu"] = DISTURBED_CPU

    assert (goal, r"0.73 x (bare openings: 0.77 x\*)", False) in find_goals(results)
    assert "| unknown |" not in render_tables(results)


def find_share_of_limit(results: dict[str, Any], contender: str) -> str:
    """Return what the table of backlogs says that a contender reaches of its limit."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in render_backlogs(results).splitlines()]
    column = rows[0].index("of the limit")
    (share,) = [row[column] for row in rows if row[1] == contender]
    return share


def test_a_pod_that_never_came_reaches_no_goal(results: dict[str, Any]) -> None:
    results["singles"][0] |= {"bound": 199, "p99_seconds": 0.1}

    assert ("gate mode: one pod, p99 below 0.3 s at 1,000 nodes", "0.100 s (kube-scheduler: 0.020 s)", False) in (
        find_goals(results)
    )


def test_page_says_all_that_was_measured(results: dict[str, Any]) -> None:
    page = render_page(results, "2026-01-02.json")

    assert "@" not in page
    assert render_tables(results) in page
    for part in ("Abacus, 2 cores", "2026-01-02", "499 of 500", "results/2026-01-02.json", "25,000", "14,000", "3.25"):
        assert part in page


@pytest.mark.parametrize("published", sorted(RESULTS.glob("[0-9]*.json"))[-1:], ids=lambda path: path.stem)
def test_published_page_is_made_from_the_published_results(published: Path) -> None:
    results = json.loads(published.read_text(encoding="utf-8"))

    assert PAGE.read_text(encoding="utf-8") == render_page(results, published.name)


def test_numbers_are_aligned_to_the_right() -> None:
    table = render_table(["who", "rate"], [["fairbind", "9"], ["x", "1,000"]])

    assert table.splitlines() == [
        "| who      |  rate |",
        "| -------- | ----: |",
        "| fairbind |     9 |",
        "| x        | 1,000 |",
    ]


@pytest.mark.parametrize(("part", "value"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)])
def test_percentile_is_the_nearest_rank(part: float, value: float) -> None:
    assert compute_percentile([float(number) for number in range(100, 0, -1)], part) == value
