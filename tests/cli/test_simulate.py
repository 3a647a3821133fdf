from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairbind.cli import main, simulation
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.workload import draw_workload
from simulator.scenarios import make_entry, make_scenario

DRAWN = make_scenario(
    make_entry(tasks=40, arrival={"poisson": 1}, duration={"exponential": 8}),
    make_entry("other", tenant="b", tasks=20, cpu=2, arrival={"poisson": 1}, duration={"exponential": 8}),
    count=3,
    tenants="ab",
    policies=["best-fit-drfh", "two-choices-drfh", "fifo"],
)
LONG = make_scenario(
    make_entry(tasks=None, arrival={"every": 1}, duration=3), horizon=3e5, measureEvery=1e5, policies=["fifo", "tsf"]
)


def write_scenario(folder: Path, document: Any) -> str:
    path = folder / "scenario.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_it_writes_tables_and_a_summary_and_prints_the_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "out"
    status = main(["simulate", write_scenario(tmp_path, DRAWN), "--out", str(out), "--tables", "csv"])

    assert status == 0
    assert sorted(read_folder(out)) == ["report.html", "shares.csv", "summary.json", "tasks.csv", "utilisation.csv"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["best-fit-drfh", "two-choices-drfh", "fifo"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_it_prints_what_the_summary_has(tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    words = ["simulate", write_scenario(tmp_path, DRAWN), "--out", str(tmp_path / "out"), "--tables", "csv"]
    assert main([*words, "-o", output]) == 0

    shown = capsys.readouterr().out
    found = json.loads(shown) if output == "json" else yaml.safe_load(shown)
    assert found == json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert list(found["policies"]) == ["best-fit-drfh", "two-choices-drfh", "fifo"]


def test_weights_of_scenarios_are_numbers_and_quantities_alike(tmp_path: Path) -> None:
    shares = []
    for number, weight in enumerate([0.5, "0.5", "500m", 1]):
        tenants = [{"name": "a", "weight": weight, "resourceWeights": {"cpu": weight}}, {"name": "b"}]
        scenario = write_scenario(tmp_path, {**DRAWN, "tenants": tenants})
        out = tmp_path / str(number)
        assert main(["simulate", scenario, "--policy", "best-fit-drfh", "--out", str(out), "--tables", "csv"]) == 0
        shares.append((out / "shares.csv").read_bytes())

    assert shares[0] == shares[1] == shares[2] != shares[3]


def test_policies_and_seed_of_the_command_line_replace_those_of_the_scenario(tmp_path: Path) -> None:
    written = {}
    for name, more in {"a": ["--seed", "3"], "b": ["--policy", "tsf", "--policy", "fifo", "--seed", "3"]}.items():
        assert main(["simulate", write_scenario(tmp_path, DRAWN), "--out", str(tmp_path / name), *more]) == 0
        written[name] = json.loads((tmp_path / name / "summary.json").read_text(encoding="utf-8"))["policies"]
    assert main(["simulate", write_scenario(tmp_path, {**DRAWN, "seed": 3}), "--out", str(tmp_path / "c")]) == 0

    assert list(written["b"]) == ["tsf", "fifo"]
    assert written["b"]["fifo"] == written["a"]["fifo"]
    assert read_folder(tmp_path / "c") == read_folder(tmp_path / "a")


def test_the_same_seed_gives_the_same_bytes_whatever_the_jobs(tmp_path: Path) -> None:
    for name, jobs in {"one": "1", "two": "2"}.items():
        arguments = ["simulate", write_scenario(tmp_path, DRAWN), "--out", str(tmp_path / name), "--jobs", jobs]
        assert main(arguments) == 0

    assert read_folder(tmp_path / "one") == read_folder(tmp_path / "two")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (make_scenario(make_entry(duration=-1)), "fairbind: workload[0].duration: must be a number from 1e-09"),
        ({**DRAWN, "horizn": 5}, "fairbind: horizn: is no field here; did you mean horizon?"),
    ],
)
def test_a_refused_scenario_is_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Any, message: str
) -> None:
    status = main(["simulate", write_scenario(tmp_path, document), "--out", str(tmp_path / "out")])

    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "ps-dfs"], 'policies[0]: "ps-dfs" is no policy; did you mean ps-dsf?'),
        (["--seed", "-1"], "must be a whole number from 0"),
        (["--jobs", "0"], "0 is not in the range"),
        (["--tables", "xml"], "'xml' is not one of"),
        (["--out", "{scenario}"], "scenario.json cannot be a folder: File exists"),
        (["--out", "{scenario}/below"], "below cannot be a folder: Not a directory"),
    ],
)
def test_refused_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    source = write_scenario(tmp_path, DRAWN)

    assert main(["simulate", source, *(word.format(scenario=source) for word in arguments)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("jobs", "shown"), [("1", "fifo: "), ("2", "2 policies: ")])
def test_an_interruption_writes_what_was_decided(tmp_path: Path, jobs: str, shown: str) -> None:
    """On a terminal, which shows when the runs have begun."""
    out = tmp_path / "out"
    arguments = ["simulate", write_scenario(tmp_path, LONG)]
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "fairbind", *arguments, "--out", str(out), "--jobs", jobs, "--tables", "csv"],
        stderr=theirs,
    ) as process:
        try:
            told = read_until(ours, f"{shown}[0-9]+%")
            process.send_signal(signal.SIGINT)
            process.wait(timeout=120)
        finally:
            process.kill()
    told += read_until(ours, "finished.*\n")
    os.close(ours)
    os.close(theirs)

    assert process.returncode == 130
    assert "fairbind: interrupted: 0 of 2 policies finished" in told
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    if jobs == "1":
        assert list(summary["policies"]) == ["fifo"]
        assert "finished, fifo up to" in told
    assert all(policy["unfinished"] >= 0 for policy in summary["policies"].values())
    assert summary["interrupted"] is True
    assert (out / "tasks.csv").read_text(encoding="utf-8").startswith("policy,tenant,task,arrival")


def test_an_instant_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instant waits for ever, so the test ends only when it is given up."""
    monkeypatch.setattr(simulation, "PATIENCE_SECONDS", 0.05)
    scenario = parse_scenario(LONG)
    shown = []

    def show(part: float) -> None:
        shown.append(part)
        if len(shown) == 50:
            signal.raise_signal(signal.SIGINT)
            while True:
                time.sleep(1)

    with simulation.Interruption() as interruption:
        run = interruption.simulate(scenario, draw_workload(scenario), "fifo", show)

    assert run.interrupted
    assert run.summary["completed"] > 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def read_until(terminal: int, pattern: str) -> str:
    """Read what a terminal shows until the pattern is in it."""
    shown = ""
    while not re.search(pattern, shown):
        shown += os.read(terminal, 4096).decode()
    return shown


def test_the_schema_of_scenarios_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "scenario"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "A scenario of fairbind simulate"
