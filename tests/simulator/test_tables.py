from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fairbind.model import InvalidProblemError
from fairbind.simulator import tables
from fairbind.simulator.tables import choose_format, write_results
from simulator.scenarios import make_entry, make_scenario, run


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_one_header_line_and_decimal_seconds(tmp_path: Path) -> None:
    entries = [make_entry(duration=0.000001), make_entry("never", cpu=9)]
    results = [run(make_scenario(*entries, horizon=0.5), policy) for policy in ("best-fit-drfh", "fifo")]
    write_results(folder := tmp_path, results, "csv")

    assert (folder / "tasks.csv").read_text(encoding="utf-8").splitlines()[:3] == [
        "policy,tenant,task,arrival,start,end,server,attempts",
        "best-fit-drfh,a,w-0,0,0,0.000001,n-0,1",
        "best-fit-drfh,a,never-0,0,,,,0",
    ]
    shares = read_csv(folder / "shares.csv")
    assert [(row["policy"], row["time"], row["fair_share"] == "") for row in shares] == [
        ("best-fit-drfh", "0", False),
        ("fifo", "0", True),
    ]
    assert read_csv(folder / "utilisation.csv")[0] == {
        "policy": "best-fit-drfh",
        "time": "0",
        "server_class": "n",
        "resource": "cpu",
        "used": "1",
        "capacity": "4",
    }
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert list(summary) == ["policies"]
    assert list(summary["policies"]) == ["best-fit-drfh", "fifo"]


def test_small_numbers_are_decimal_too(tmp_path: Path) -> None:
    result = run(make_scenario())
    write_results(tmp_path, [replace(result, shares=(result.shares[0]._replace(dominant_share=1e-7),))], "csv")

    assert read_csv(tmp_path / "shares.csv")[0]["dominant_share"] == "0.0000001"


def test_parquet_is_chosen_where_it_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "has_parquet", lambda: True)
    assert (choose_format(None), choose_format("parquet"), choose_format("csv")) == ("parquet", "parquet", "csv")

    monkeypatch.setattr(tables, "has_parquet", lambda: False)
    assert (choose_format(None), choose_format("csv")) == ("csv", "csv")
    with pytest.raises(InvalidProblemError, match=r"^--tables: pyarrow is not installed: pip install 'fairbind\[simul"):
        choose_format("parquet")


def test_parquet_has_the_same_columns_with_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyarrow is asked for; the real one reads it back where it is installed."""
    written: dict[str, Any] = {}
    arrow, parquet = ModuleType("pyarrow"), ModuleType("pyarrow.parquet")
    vars(arrow).update(
        array=lambda values, kind: (kind, list(values)),
        table=dict,
        float64=lambda: "float64",
        int64=lambda: "int64",
        string=lambda: "string",
        parquet=parquet,
    )
    vars(parquet).update(write_table=lambda table, path: written.update({path.name: table}))
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)

    write_results(tmp_path, [run(make_scenario(make_entry(), make_entry("never", cpu=9)), "fifo")], "parquet")

    assert sorted(written) == ["shares.parquet", "tasks.parquet", "utilisation.parquet"]
    assert written["tasks.parquet"] == {
        "policy": ("string", ["fifo", "fifo"]),
        "tenant": ("string", ["a", "a"]),
        "task": ("string", ["w-0", "never-0"]),
        "arrival": ("float64", [0, 0]),
        "start": ("float64", [0, None]),
        "end": ("float64", [10, None]),
        "server": ("string", ["n-0", None]),
        "attempts": ("int64", [1, 0]),
    }
    assert {name: kind for name, (kind, _) in written["shares.parquet"].items()} == {
        "policy": "string",
        "time": "float64",
        "tenant": "string",
        "dominant_share": "float64",
        "fair_share": "float64",
        "running": "int64",
        "pending": "int64",
    }

    write_results(tmp_path, [], "parquet")
    assert written["utilisation.parquet"]["used"] == ("float64", [])


def test_parquet_is_read_back(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_results(tmp_path, [run(make_scenario(make_entry(), make_entry("never", cpu=9)), "fifo")], "parquet")

    rows = parquet.read_table(tmp_path / "tasks.parquet").to_pylist()
    assert rows[1] == {
        "policy": "fifo",
        "tenant": "a",
        "task": "never-0",
        "arrival": 0.0,
        "start": None,
        "end": None,
        "server": None,
        "attempts": 0,
    }
    assert {row["fair_share"] for row in parquet.read_table(tmp_path / "shares.parquet").to_pylist()} == {None}


def test_an_interrupted_run_is_said_in_the_summary(tmp_path: Path) -> None:
    write_results(tmp_path, [], "csv", is_interrupted=True)

    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["interrupted"] is True
