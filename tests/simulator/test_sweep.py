from __future__ import annotations

import copy
import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from fairbind.cli.mechanisms.schema import compute_schema
from fairbind.model import InvalidProblemError
from fairbind.simulator.sweep import cells, grid
from fairbind.simulator.sweep.cells import CellFolder, compute_cell
from fairbind.simulator.sweep.confidence import Interval, compute_interval
from fairbind.simulator.sweep.grid import Cell, parse_sweep
from fairbind.simulator.sweep.results import compute_intervals, list_values, write_sweep
from simulator.scenarios import Json, make_entry, make_scenario, run

NAN = float("nan")
SCENARIO = make_scenario(
    make_entry(tasks=12, arrival={"poisson": 1}, duration={"exponential": 8}),
    make_entry("v", tenant="b", tasks=12, arrival={"poisson": 1}, duration={"exponential": 8}),
    count=2,
    tenants="ab",
    policies=["tsf", "fifo"],
    events=[{"at": 5, "cordon": ["n-1"]}],
)
GOOD: Json = {
    "name": "weights",
    "scenario": SCENARIO,
    "policies": ["best-fit-drfh", "fifo"],
    "seeds": [3, 4],
    "weights": [{}, {"a": 2, "b": "500m"}],
    "sizes": [{"n": 2}, {"n": 4}],
    "confidence": 0.9,
}


def change(path: str, value: Any) -> Json:
    document = copy.deepcopy(GOOD)
    *before, last = path.split(".")
    place: Any = document
    for part in before:
        place = place[int(part) if part.isdigit() else part]
    place[int(last) if last.isdigit() else last] = value
    return document


def compute(cell: Cell) -> Mapping[str, Any]:
    summary: Mapping[str, Any] = json.loads(compute_cell(cell.variant.text, cell.policy, cell.seed))["summary"]
    return summary


def test_a_grid_has_every_combination_once_and_seeds_last() -> None:
    listed = list(parse_sweep(GOOD).list_cells())

    assert [cell.describe() for cell in listed[:5]] == [
        "best-fit-drfh, seed 3, sizes n=2",
        "best-fit-drfh, seed 4, sizes n=2",
        "best-fit-drfh, seed 3, sizes n=4",
        "best-fit-drfh, seed 4, sizes n=4",
        "best-fit-drfh, seed 3, weights a=2 b=500m, sizes n=2",
    ]
    assert len({cell.key for cell in listed}) == len(listed) == 16


def test_what_is_left_out_is_as_in_the_scenario() -> None:
    sweep = parse_sweep({"scenario": {**SCENARIO, "seed": 9, "name": "base"}})

    assert [(cell.policy, cell.seed) for cell in sweep.list_cells()] == [("tsf", 9), ("fifo", 9)]
    assert (sweep.name, sweep.confidence, sweep.variants[0].weights, sweep.variants[0].sizes) == ("base", 0.95, "", "")


def test_seeds_may_be_counted() -> None:
    assert parse_sweep(change("seeds", {"count": 3})).seeds == (0, 1, 2)
    assert parse_sweep(change("seeds", {"from": 7, "count": 2})).seeds == (7, 8)


def test_a_cell_is_the_run_of_a_scenario_that_says_the_same() -> None:
    cell = list(parse_sweep(GOOD).list_cells())[7]
    assert cell.describe() == "best-fit-drfh, seed 4, weights a=2 b=500m, sizes n=4"
    own = copy.deepcopy(SCENARIO)
    own["seed"], own["cluster"][0]["count"] = 4, 4
    own["tenants"] = [{"name": "a", "weight": 2}, {"name": "b", "weight": "500m"}]

    assert compute(cell) == json.loads(json.dumps(run(own).summary))
    assert compute(cell) != json.loads(json.dumps(run({**own, "seed": 3}).summary))


def test_a_key_says_all_that_decides_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_keys(document: Json) -> set[str]:
        return {cell.key for cell in parse_sweep(document).list_cells()}

    keys = find_keys(GOOD)
    for path, value in (("name", "x"), ("scenario.name", "x"), ("scenario.notes", ["x"]), ("confidence", 0.8)):
        assert find_keys(change(path, value)) == keys, path
    for path, value in (
        ("scenario.workload.0.tasks", 13),
        ("scenario.tenants.0.name", "a"),
        ("scenario.measureEvery", 3),
        ("scenario.cluster.0.capacity.cpu", 5),
    ):
        assert bool(find_keys(change(path, value)) & keys) is (path == "scenario.tenants.0.name"), path
    monkeypatch.setattr(grid, "__version__", "0.0.0")
    assert not find_keys(GOOD) & keys


BAD: tuple[tuple[str, Any, str], ...] = (
    ("sweep", 5, "sweep: must be an object with scenario, not 5"),
    ("sizs", [], "sizs: is no field here; did you mean sizes?"),
    ("scenario", 5, "scenario: must be a scenario, or the path of its file, not 5"),
    ("scenario.workload.0.duration", -1, "scenario.workload[0].duration: must be a number from 1e-09"),
    ("scenario.workload.0.pod.requests.cpu", NAN, "scenario.workload[0].pod.requests.cpu: must be a quantity"),
    ("scenario.horizn", 5, "scenario.horizn: is no field here; did you mean horizon?"),
    ("policies", [], "policies: must have at least one entry, not []"),
    ("policies.0", "ps-dfs", 'policies[0]: "ps-dfs" is no policy; did you mean ps-dsf?'),
    ("policies.0", "fifo", 'policies[1]: must differ from all others, but "fifo" is there already'),
    ("seeds", 5, "seeds: must be a list of whole numbers, or an object with from and count, not 5"),
    ("seeds", {"from": 1}, "seeds.count: is missing; count must be there"),
    ("seeds", {"count": 0}, "seeds.count: must be a whole number from 1"),
    ("seeds", {"count": 2, "form": 1}, "seeds.form: is no field here; did you mean from?"),
    ("seeds.1", -1, "seeds[1]: must be a whole number from 0"),
    ("seeds.1", 1.5, "seeds[1]: must be a whole number from 0"),
    ("seeds.1", NAN, "seeds[1]: must be a whole number from 0"),
    ("seeds.1", 3, "seeds[1]: must differ from all others, but is seeds[0] already"),
    ("weights", {"a": 1}, "weights: must be a list of objects with a weight by tenant"),
    ("weights.1", 2, "weights[1]: must be an object with a weight by tenant, not 2"),
    ("weights.1", {"aa": 2}, 'weights[1].aa: "aa" is no tenant of the scenario; did you mean a?'),
    ("weights.1.a", 0, "weights[1].a: must be a number or a quantity from 0.001 to 1000"),
    ("weights.1.a", NAN, "weights[1].a: must be a number or a quantity from 0.001 to 1000"),
    ("weights.1", {}, "weights[1]: must differ from all others, but is weights[0] already"),
    ("sizes.0", {"m": 2}, 'sizes[0].m: "m" is no shape of the scenario; known are n'),
    ("sizes.0.n", 2.5, "sizes[0].n: must be a whole number from 0"),
    ("sizes.0.n", -1, "sizes[0].n: must be a whole number from 0"),
    ("sizes.0.n", 1, 'sizes[0]: with it the scenario is refused: events[0].cordon[0]: "n-1" is no node then'),
    ("sizes.1.n", 2, "sizes[1]: must differ from all others, but is sizes[0] already"),
    ("confidence", 1, "confidence: must be a number from 0.5 to 0.999, not 1"),
    ("confidence", NAN, "confidence: must be a number from 0.5 to 0.999"),
    ("name", "", "name: must be text of printable characters"),
    ("seeds", {"count": 500_000}, "sweep: must have at most 1,000,000 cells, not 4,000,000"),
)  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), BAD, ids=[message[:50] for *_, message in BAD])
def test_a_bad_sweep_is_refused_with_the_path_of_its_field(path: str, value: Any, message: str) -> None:
    document = value if path == "sweep" else change(path, value)

    with pytest.raises(InvalidProblemError) as refused:
        parse_sweep(document)

    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_the_schema_takes_what_is_read_and_refuses_what_a_schema_can() -> None:
    schema = json.loads(compute_schema("sweep"))
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)

    for document in (GOOD, {"scenario": "base.yaml"}, change("seeds", {"count": 3})):
        assert check.is_valid(document)
    beyond_schemas = ("is no tenant", "is no shape", "with it the scenario", "at most", "must differ", "quantity")
    judged = [(path, value, message) for path, value, message in BAD if value is not NAN]
    for path, value, message in judged:
        if not any(words in message for words in beyond_schemas):
            assert not check.is_valid(value if path == "sweep" else change(path, value)), message


# --- finished cells ---


def test_a_finished_cell_is_kept_as_it_was_computed(tmp_path: Path) -> None:
    cell = next(parse_sweep(GOOD).list_cells())
    kept = CellFolder(tmp_path)
    kept.create()
    assert kept.read(cell.key) is None

    kept.write(cell.key, compute_cell(cell.variant.text, cell.policy, cell.seed))

    assert kept.read(cell.key) == compute(cell)
    assert [path.suffix for path in (tmp_path / cells.CELLS_FOLDER).iterdir()] == [".json"]


@pytest.mark.parametrize("content", ["", '{"key": "', "[]", '{"key": "other", "summary": {}}', "\ud8ff"])
def test_what_is_no_whole_cell_counts_as_missing(tmp_path: Path, content: str) -> None:
    kept = CellFolder(tmp_path)
    kept.create()
    path = tmp_path / cells.CELLS_FOLDER / "k.json"
    path.write_bytes(content.encode(errors="surrogatepass"))

    assert kept.read("k") is None
    path.write_text('{"key": "k", "summary": {"jain": 1.0}}', encoding="utf-8")
    assert kept.read("k") == {"jain": 1.0}


# --- intervals and tables ---


def test_an_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    """Of 200 means of 20 exponential values; 180 expected, and 165 are three standard deviations below."""
    stream = np.random.default_rng(1)
    found = [compute_interval(stream.exponential(1.0, 20).tolist(), 0.9) for _ in range(200)]
    held = sum(low <= 1.0 <= high for _, low, high, _ in found if low is not None and high is not None)

    assert 165 <= held <= 195


def test_an_interval_is_about_that_of_the_normal_distribution_for_many_values() -> None:
    values = np.random.default_rng(2).normal(5.0, 2.0, 400)
    low, high = stats.norm.interval(0.95, values.mean(), values.std(ddof=1) / math.sqrt(len(values)))

    found = compute_interval(values.tolist(), 0.95)

    assert found == compute_interval(values.tolist(), 0.95)
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.0, 0.0, 1.0], [1e9, 1e9 + 1e-3], [1.0, 1.0, 1.0 + 1e-15]])
def test_few_or_nearly_equal_values_have_a_finite_interval(values: list[float]) -> None:
    mean, low, high, count = compute_interval(values, 0.95)

    assert count == len(values)
    assert mean is not None
    assert low is not None
    assert high is not None
    assert min(values) <= low <= mean <= high <= max(values)


def test_values_without_an_average_do_not_count() -> None:
    sweep = parse_sweep({**GOOD, "policies": ["fifo"], "seeds": [1, 2, 3], "weights": [{}], "sizes": [{}]})
    summaries = [{"jain": jain, "tenants": {"a": {"wait_seconds": {"p95": 2.0}}}} for jain in (0.5, None, 0.7)]
    rows = list_values(list(zip(sweep.list_cells(), summaries, strict=True)))

    intervals = {(row.tenant, row.measure): Interval(*row[5:]) for row in compute_intervals(rows, 0.9)}

    assert intervals[None, "jain"] == compute_interval([0.5, 0.7], 0.9)
    assert intervals["a", "wait_seconds.p95"] == Interval(2.0, 2.0, 2.0, 3)


@pytest.mark.parametrize(("makespans", "mean"), [([40.0, None, 60.0], None), ([40.0, 50.0, 60.0], 50.0)])
def test_a_makespan_that_some_seeds_lack_has_no_mean(makespans: list[float | None], mean: float | None) -> None:
    sweep = parse_sweep({**GOOD, "policies": ["fifo"], "seeds": [1, 2, 3], "weights": [{}], "sizes": [{}]})
    summaries: list[Json] = [{"makespan_seconds": makespan, "tenants": {}} for makespan in makespans]
    (row,) = compute_intervals(list_values(list(zip(sweep.list_cells(), summaries, strict=True))), 0.9)

    assert (row.mean, row.seeds) == (mean, sum(makespan is not None for makespan in makespans))
    assert (row.low is None) == (mean is None)


def test_tables_say_what_the_cells_say(tmp_path: Path) -> None:
    sweep = parse_sweep({**GOOD, "scenario": {**SCENARIO, "composite": "two sources", "notes": ["assumed"]}})
    listed = [(cell, compute(cell)) for cell in sweep.list_cells()]

    write_sweep(tmp_path, sweep, listed, "csv")

    with (tmp_path / "values.csv").open(encoding="utf-8", newline="") as file:
        values = list(csv.DictReader(file))
    wanted = {"policy": "fifo", "weights": "a=2 b=500m", "sizes": "n=4", "seed": "3", "tenant": "b"}
    (row,) = (row for row in values if wanted.items() <= row.items() and row["measure"] == "wait_seconds.mean")
    (summary,) = (
        summary for cell, summary in listed if cell.describe() == "fifo, seed 3, weights a=2 b=500m, sizes n=4"
    )
    assert float(row["value"]) == summary["tenants"]["b"]["wait_seconds"]["mean"]
    with (tmp_path / "intervals.csv").open(encoding="utf-8", newline="") as file:
        intervals = list(csv.DictReader(file))
    assert len(intervals) * 2 == len(values)
    assert {row["seeds"] for row in intervals if row["measure"] == "completed"} == {"2"}
    said = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert (said["composite"], said["notes"], said["cells"]) == ("two sources", ["assumed"], 16)
    assert said["sizes"] == ["n=2", "n=4"]
