from __future__ import annotations

import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fairbind.simulator.baselines.registry import KNOWN_POLICIES
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.results import FindingRow
from fairbind.simulator.traces.openb import GPU_MODEL
from fairness_table.main import main
from fairness_table.measure import POLICIES, YARDSTICKS, count_findings, join_seeds, measure
from fairness_table.page import COLUMNS, FILLED, PAGE, RESULTS, draw_errors, find_best, find_mean, render_page, show
from fairness_table.workloads import MADE, Cut, count_tasks, make_mixed, make_pools, read_traces
from simulator.scenarios import Json, make_entry, make_scenario

GPU = "nvidia.com/gpu"


ROOT = Path(__file__).resolve().parents[2]


def find_row(document: Json, policy: str) -> dict[str, Any]:
    (row,) = measure(document, [policy])
    return row


def test_all_are_held_to_the_same_yardsticks() -> None:
    """Weights of 3 and 1 on 8 cpus: without weights a has 1/2 in place of 3/4, two thirds of it."""
    entries = [make_entry("aw", tasks=20), make_entry("bw", tenant="b", tasks=20)]
    document = make_scenario(*entries, cpu=8, tenants="ab", horizon=5)
    document["tenants"] = [{"name": "a", "weight": 3}, {"name": "b"}]
    for yardstick in YARDSTICKS:
        assert find_row(document, "yunikorn-rule")[f"worst_part_{yardstick}"] == pytest.approx(2 / 3)
        assert find_row(document, "best-fit-drfh")[f"worst_part_{yardstick}"] == pytest.approx(1)


def test_the_yardsticks_are_two_mechanisms() -> None:
    """A GPU node (4 cpus, 4 GPUs) and 12 cpus elsewhere; g's tasks take a cpu and a GPU, c's a cpu; 2 of g's run.

    By DRFH both have 4/5, of all GPUs and of all cpus. By PS-DSF g has the GPU node, as c has 12 cpus without it.
    """
    with_gpu: Json = {"pod": {"requests": {"cpu": 1, GPU: 1}}, "tenant": "g", "duration": 10}
    first, rest = (make_entry(name, tasks=2, **with_gpu, arrival={"at": at}) for name, at in (("gw", 0), ("gx", 1)))
    document = make_scenario(first, make_entry("cw", tenant="c", tasks=20), rest, tenants="cg", cpu=12, horizon=5)
    document["cluster"].append({"shape": "gpu", "capacity": {"cpu": 4, "memory": "16Gi", "pods": 110, GPU: 4}})
    document["measureEvery"] = 5
    row = find_row(document, "fifo")

    assert row["worst_part_drfh"] == pytest.approx((2 / 4) / (4 / 5))
    assert row["worst_part_ps-dsf"] == pytest.approx((2 / 4) / (4 / 4))


def test_the_worst_part_is_that_of_the_worst_time() -> None:
    """A waits from 1 on and has nothing until b's tasks end at 4; then it has all, and still waits."""
    late = make_entry("aw", tasks=9, arrival={"at": 1}, duration=99)
    document = make_scenario(make_entry("bw", tenant="b", tasks=2, duration=4), late, tenants="ab", cpu=2, horizon=6)
    row = find_row({**document, "measureEvery": 2}, "fifo")

    assert [row[f"worst_part_{yardstick}"] for yardstick in YARDSTICKS] == [0, 0]


def test_slowdowns_are_over_tasks_that_ended_and_idle_gpus_over_time() -> None:
    """Two of three tasks of 10 s fit; the third waits for them. One GPU of two is held until 10 s, none after that."""
    document = make_scenario(make_entry("w", tasks=3, cpu=2), horizon=30, measureEvery=10)
    document["cluster"][0]["capacity"][GPU] = 2
    document["workload"].append(make_entry("g", pod={"requests": {"cpu": 0, GPU: 1}}, duration=9))
    row = find_row(document, "fifo")

    assert row["slowdown_mean"] == pytest.approx((1 + 1 + 2 + 1) / 4)
    assert row["slowdown_p95"] == pytest.approx(1.85)
    assert row["gpus_unallocated"] == pytest.approx((1 + 2 + 2 + 2) / 4)
    assert (row["completed"], row["unfinished"]) == (4, 0)


def test_a_task_that_lost_its_node_counts_once() -> None:
    document = make_scenario(make_entry("w", tasks=2), count=2, cpu=1, horizon=30)
    document["events"] = [{"at": 5, "removeNodes": ["n-0"]}]
    row = find_row(document, "fifo")

    assert row["completed"] == 2
    assert row["slowdown_mean"] == pytest.approx((2 + 1) / 2)


@pytest.mark.slow
def test_a_small_form_says_something_of_each_column(tmp_path: Path) -> None:
    rows = measure(make_mixed(horizon=3000), ["kai-rule"])

    assert [row["policy"] for row in rows] == ["kai-rule"]
    for row in rows:
        assert all(row[key] is not None for _, key, _ in COLUMNS)
        assert row["share_error_drfh"] != row["share_error_ps-dsf"]
        assert all(0 <= part <= 1 + 1e-9 for part in row["utilisation"].values())
    assert read_traces(tmp_path) == {}


def test_envy_counts_beyond_one_task_and_of_tenants_that_want_more() -> None:
    findings = [
        FindingRow("a", "b", "history", 3, 0.1, 0.2),
        FindingRow("a", "b", "missing_demand", 5, 0.1, 0.2),
        FindingRow("a", "b", "indivisible_tasks", 7, 0.1, 0.2),
        FindingRow("a", None, "mechanism", 2, 0.1, 0.2),
    ]
    assert (count_findings(findings, is_envy=True), count_findings(findings, is_envy=False)) == (3, 2)


def test_the_workload_wants_each_policy_that_there_is() -> None:
    assert set(POLICIES) <= set(KNOWN_POLICIES)
    assert [parse_scenario(make(3)).name for make in MADE.values()] == ["mixed", "pools", "sizes"]


def make_rows(**jains: list[float]) -> list[Json]:
    same: Json = {key: [1.0] * 3 for _, key, _ in COLUMNS} | {"envies": [None] * 3, "utilisation": {"cpu": [0.5] * 3}}
    return [{**same, "policy": name, "jain": values} for name, values in jains.items()]


def test_the_best_are_bold_and_so_are_those_that_cannot_be_told_from_them() -> None:
    """B is better than a in each seed, though seeds differ by more; c is now better, now worse."""
    rows = make_rows(a=[0.1, 0.5, 0.8], b=[0.2, 0.6, 0.9], c=[0.1, 0.7, 0.89])
    workload = {"composite": "this and that", "notes": ["assumed"], "seconds": 90, "seeds": 3, "rows": rows}
    page = render_page({"date": "2026-01-01T00:00:00", "workloads": {"w": workload}}, "2026-01-01.json")
    cells = [line.split(" | ") for line in page.splitlines() if line.startswith(("| `a` ", "| `b` ", "| `c` "))]

    assert "A composite: this and that." in page
    assert "took 2 minutes in all" in page
    assert "its files were not there" in page
    assert [row[8] for row in cells] == ["0.467", "**0.567**", "**0.563**"]
    assert {row[1] for row in cells} == {"**1.000 (1.000 to 1.000)**"}
    assert {row[6] for row in cells} == {"-"}
    assert (show(None), show(1234.5), show(123.45)) == ("-", "1,234", "123.5")


def test_what_is_known_of_few_seeds_is_compared_in_these() -> None:
    assert find_best({"a": [None, 1.0, 2.0], "b": [0.0, 1.0, 2.0]}, "most") == {"a", "b"}
    assert find_best({"a": [None], "b": [None]}, "most") == ()
    assert find_best({"a": [1.0], "b": [2.0], "c": [1.0]}, "least") == {"a", "c"}
    assert find_mean([None]) is None


def test_rows_of_seeds_become_one_for_each_policy() -> None:
    def row(policy: str, jain: float | None) -> Json:
        return {"policy": policy, "jain": jain, "utilisation": {"cpu": 1 / 3}}

    rows = join_seeds([[row("a", 1), row("b", 0.5)], [row("a", None), row("b", 0.25)]])

    assert [(each["policy"], each["jain"]) for each in rows] == [("a", [1, None]), ("b", [0.5, 0.25])]
    assert rows[0]["utilisation"] == {"cpu": [0.333333, 0.333333]}


def test_the_picture_has_a_mark_for_each_policy_that_is_compared(tmp_path: Path) -> None:
    rows = make_rows(**{"ps-dsf": [1.0] * 3, "kai-rule": [1.0] * 3, "fifo": [1.0] * 3})
    draw_errors({"workloads": {"pools": {"rows": rows}}}, tmp_path / "picture.svg")
    picture = (tmp_path / "picture.svg").read_text(encoding="utf-8")

    assert all(f">{word}<" in picture for word in ("pools", "ps-dsf", "kai-rule"))
    assert "fifo" not in picture


def test_what_fills_openb_stands_beside_what_is_published() -> None:
    row = {"rule": "ours", "gpus": "whole", "seeds": 3, "allocated": [0.98765, 1.0]}
    filled = {"seconds": 1, "rows": [row]}
    page = render_page({"date": "2026-01-01T00:00:00", "workloads": {}, FILLED: filled}, "2026-01-01.json")

    assert "| ours | whole | 3 | 98.8% | 100.0% |" in page
    assert "| FGD, as published | parts | 10 | 95.2% | 95.4% |" in page


def make_trace() -> Json:
    entries = [
        {
            "tenant": name,
            "name": name,
            "arrival": {"times": [0, 60, 90]},
            "duration": {"each": [1, 2, "forever"]},
            "pod": {"requests": {"cpu": 1, GPU: 1} if name == "c" else {"cpu": 1}},
        }
        for name in "cab"
    ]
    gpus = {"shape": "m", "count": 1, "capacity": {"cpu": 1, GPU: 2}, "labels": {GPU_MODEL: "T4"}}
    shapes = [{"shape": "n", "count": 10, "capacity": {"cpu": 1}}, gpus]
    tenants = [{"name": name} for name in "cab"]
    return {"notes": ["old"], "horizon": 120, "cluster": shapes, "tenants": tenants, "workload": entries}


def test_traces_are_cut_down_by_seed_and_that_is_said() -> None:
    cut = Cut(nodes=0.3, faster=6, tenants=2, tasks=4)
    found = cut.apply(make_trace(), 1)
    times = dict(zip((0, 10, 15), (1, 2, "forever"), strict=True))

    assert [shape["count"] for shape in found["cluster"]] == [3, 1]
    assert len(found["tenants"]) == 2
    assert {entry["tenant"] for entry in found["workload"]} <= {tenant["name"] for tenant in found["tenants"]}
    assert sum(len(entry["arrival"]["times"]) for entry in found["workload"]) == 4
    for entry in found["workload"]:
        assert [times[time] for time in entry["arrival"]["times"]] == entry["duration"]["each"]
    assert found["horizon"] == 20
    assert (found["notes"][0], len(found["notes"])) == ("old", 5)
    assert cut.apply(make_trace(), 1) == found
    assert len({str(cut.apply(make_trace(), seed)["workload"]) for seed in range(5)}) > 1


def test_a_part_of_the_tasks_with_gpus_accepts_one_model_only() -> None:
    found = [Cut(models=0.5).apply(make_trace(), seed)["workload"] for seed in range(20)]
    chosen = [entry for workload in found for entry in workload if "nodeSelector" in entry["pod"]]

    assert all(sum(map(count_tasks, workload)) == 9 for workload in found)
    assert {entry["tenant"] for entry in chosen} == {"c"}
    assert all(entry["pod"]["nodeSelector"] == {GPU_MODEL: "T4"} for entry in chosen)
    assert 15 < sum(map(count_tasks, chosen)) < 45


def test_the_page_is_that_of_the_last_result(tmp_path: Path) -> None:
    last = max(RESULTS.iterdir())

    assert PAGE.read_text(encoding="utf-8") == render_page(json.loads(last.read_text(encoding="utf-8")), last.name)
    (tmp_path / "empty").mkdir()
    words = ["--only", "none", "--traces", str(tmp_path / "empty"), "--output", str(tmp_path / "raw.json")]
    assert main(words) == 0
    assert json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))["workloads"] == {}


def test_the_promise_of_the_readme_is_a_number_of_the_table() -> None:
    workload = json.loads(max(RESULTS.iterdir()).read_text(encoding="utf-8"))["workloads"]["sizes"]
    percent = {row["policy"]: 100 * statistics.fmean(row["share_error_drfh"]) for row in workload["rows"]}
    rules = [value for policy, value in percent.items() if policy.endswith("-rule") and policy != "kube-scheduler-rule"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    assert len(rules) == 5
    assert workload["seeds"] == 20
    assert (
        f"the worst-off tenant is {percent['best-fit-drfh']:.0f} % below its exact fair share in the mean. Under the "
        f"rules of five other schedulers, as we read them, it is {min(rules):.0f} % to {max(rules):.0f} % below it"
        in readme
    )


def test_a_small_run_has_the_numbers_of_each_seed(tmp_path: Path) -> None:
    words = ["--only", "pools", "--policy", "fifo", "--seeds", "2", "--output", str(tmp_path / "raw.json")]
    with patch.dict(MADE, pools=partial(make_pools, horizon=600)):
        assert main(words) == 0
    (workload,) = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))["workloads"].values()

    assert workload["seeds"] == 2
    assert [(row["policy"], len(row["share_error_drfh"])) for row in workload["rows"]] == [("fifo", 2)]
