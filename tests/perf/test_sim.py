from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.workload import draw_workload
from perf.sim import main, run_case
from perf.sim_cases import WORKLOADS
from perf.sim_report import PAGE, RESULTS, find_goals, render_page, render_tables
from perf.sim_scan import DirectScan
from simulator.scenarios import Json, make_entry, make_scenario

PARTS = {"read": 1.0, "draw": 0.5, "simulate": 98.5, "write": 10.0}
CROWDED = make_scenario(
    make_entry("small", tasks=30, arrival={"poisson": 2}, duration={"exponential": 9}),
    make_entry("large", tasks=12, cpu=3, arrival={"poisson": 1}, duration={"exponential": 9}),
    make_entry("small", tenant="b", tasks=30, arrival={"poisson": 2}, duration={"exponential": 9}),
    make_entry("never", tenant="b", cpu=9, arrival={"at": 5}),
    make_entry("picky", tenant="c", tasks=9, pod={"requests": {"cpu": 1, "memory": "3Gi"}, "nodeSelector": {"d": "x"}}),
    count=3,
    tenants="abc",
)


def add_shape(document: Json) -> Json:
    other = {"shape": "m", "count": 2, "capacity": {"cpu": 6, "memory": "8Gi"}, "labels": {"d": "x"}}
    tenants = [{**tenant, "weight": 1 + n} for n, tenant in enumerate(document["tenants"])]
    return {**document, "tenants": tenants, "cluster": [*document["cluster"], other]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [add_shape(CROWDED), {**add_shape(CROWDED), "horizon": 12}, WORKLOADS["million tasks"].make(Path(), 0.002)],
    ids=["crowded", "horizon", "million"],
)
def test_the_scan_decides_the_same(document: Json) -> None:
    """Otherwise it would be another simulation that is measured beside ours."""
    document = {**document, "workload": [{**entry, "tasks": min(entry["tasks"], 30)} for entry in document["workload"]]}
    # The scan is the greedy rule alone.
    scenario = parse_scenario(document | {"reservations": {"mode": "Off"}, "guided": False})
    workload = draw_workload(scenario)
    scan = DirectScan(scenario, workload)
    scan.live()

    rows = simulate(scenario, workload, "best-fit-drfh").tasks

    wanted = {number: (row.start, row.server) for number, row in enumerate(rows) if row.start is not None}
    assert {start.number: (start.time, start.server) for start in scan.starts} == wanted
    assert any(row.start != row.arrival for row in rows if row.start is not None)


@pytest.mark.parametrize("kind", ["fairbind", "scan"])
def test_a_case_runs_by_itself(kind: str) -> None:
    outcome = run_case("million tasks", kind, 0.001, None)

    assert (outcome["status"], outcome["tasks"], outcome["servers"], outcome["decisions"]) == ("done", 1000, 1, 1000)
    assert outcome["seconds"] >= outcome["parts"]["simulate"] > 0
    assert outcome["memory_mib"] > 0


def test_workloads_whose_traces_are_missing_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "sim.json"

    main(["--small", "--only", "google day", "--output", str(output)])

    cases = json.loads(output.read_text(encoding="utf-8"))["cases"]
    assert [case["status"] for case in cases] == ["left out: no traces"] * 2
    assert "left out: no traces" in capsys.readouterr().out


@pytest.fixture
def results() -> dict[str, Any]:
    figures = {"status": "done", "tasks": 22_000, "servers": 12_583, "tenants": 900, "load": 0.5, "memory_mib": 3000}
    cases = [
        {"workload": name, "kind": kind, "part": 1.0, **figures, "parts": PARTS, "seconds": 110.0}
        for name in WORKLOADS
        for kind in ("fairbind", "scan")
    ]
    cases[1]["parts"] = {**PARTS, "simulate": 500.0}
    cases.append({**cases[0], "part": 0.5, "seconds": 1e9})
    return {
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"cpu": "Abacus", "cores": 2, "memory_gib": 24.0, "system": "Linux 6"},
        "versions": {"fairbind": "0.1.0", "Python": "3.11", "numpy": "2"},
        "cases": cases,
    }


def test_goals_are_judged_by_the_figures_of_the_full_size(results: dict[str, Any]) -> None:
    results["cases"] = [case for case in results["cases"] if case["workload"] != "openb month"]
    reached = {wanted: (figure, is_met) for wanted, figure, is_met in find_goals(results)}

    assert reached["google day: below 300 s"] == ("110 s", "yes")
    assert reached["google day: 5 x as fast as the scan"] == ("5.08 x", "yes")
    assert reached["crowded day: 5 x as fast as the scan"] == ("1 x", "no")
    assert reached["million tasks: below 2 GiB"] == ("2.93 GiB", "no")
    assert reached["openb month: below 120 s"] == ("not measured", "not measured")


def test_the_page_says_all_that_was_measured(results: dict[str, Any]) -> None:
    results["cases"][-1] = {**results["cases"][-1], "status": "failed: MemoryError", "kind": "scan"}
    page = render_page(results, "2026-01-02.json")

    assert "@" not in page
    assert render_tables(results) in page
    for part in ("Abacus, 2 cores", "2026-01-02", "results/simulator/2026-01-02.json", "failed: MemoryError", "12,583"):
        assert part in page


def test_the_page_is_that_of_the_last_results() -> None:
    source = max(RESULTS.glob("*.json"), default=None)
    if source is None:
        assert not PAGE.exists()
        return

    assert PAGE.read_text(encoding="utf-8") == render_page(json.loads(source.read_text(encoding="utf-8")), source.name)
