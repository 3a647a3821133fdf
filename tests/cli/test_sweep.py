from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from cli.test_simulate import read_folder, write_scenario
from fairbind.cli import main
from fairbind.cli.sweep_processes import MOST_LOSSES, compute_in_processes
from fairbind.model import FairbindError
from fairbind.simulator.sweep.cells import compute_cell
from fairbind.simulator.sweep.grid import Cell, parse_sweep
from simulator.scenarios import make_entry, make_scenario

SCENARIO = make_scenario(
    make_entry(tasks=12, arrival={"poisson": 1}, duration={"exponential": 8}),
    make_entry("v", tenant="b", tasks=6, cpu=2, arrival={"poisson": 1}, duration={"exponential": 8}),
    count=3,
    tenants="ab",
)
SWEEP = {
    "scenario": SCENARIO,
    "policies": ["best-fit-drfh", "two-choices-drfh"],
    "seeds": {"count": 2},
    "weights": [{}, {"a": 3}],
    "sizes": [{}, {"n": 5}],
}
CELLS = 16
WORKER = Path(__file__).with_name("sweep_worker.py")


def write_sweep(folder: Path, document: Any) -> str:
    path = folder / "sweep.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def read_results(folder: Path) -> dict[str, bytes]:
    """Return the tables, the summary and all cells."""
    return {
        **{path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()},
        **read_folder(folder / "cells"),
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return what one worker finds."""
    folder = tmp_path_factory.mktemp("alone")
    assert main(["sweep", write_sweep(folder, SWEEP), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return read_results(folder / "out")


def test_it_writes_tables_and_cells_and_prints_means_with_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alone: dict[str, bytes]
) -> None:
    (tmp_path / "below").mkdir()
    write_scenario(tmp_path / "below", SCENARIO)
    sweep = write_sweep(tmp_path / "below", {**SWEEP, "scenario": "scenario.json"})

    assert main(["sweep", sweep, "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0

    assert read_results(tmp_path / "out") == alone
    tables = [name for name in alone if not name.endswith(".json")] + ["summary.json"]
    assert sorted(tables) == ["intervals.parquet", "summary.json", "values.parquet"]
    assert len(alone) == CELLS + 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["policy", "weights", "sizes"]
    assert [line.split()[:3] for line in lines[2:4]] == [["best-fit-drfh", "-", "-"], ["best-fit-drfh", "-", "n=5"]]
    assert sum("[" in line for line in lines) >= CELLS // 2  # a mean with its interval for each pair of seeds
    assert max(map(len, lines)) <= 80
    assert main(["sweep", sweep, "--out", str(tmp_path / "out"), "--jobs", "1", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["intervals"]
    assert found[0].keys() >= {"policy", "weights", "sizes", "tenant", "measure", "mean", "low", "high"}


def test_results_are_the_same_from_several_processes(tmp_path: Path, alone: dict[str, bytes]) -> None:
    assert main(["sweep", write_sweep(tmp_path, SWEEP), "--out", str(tmp_path / "out"), "--jobs", "2"]) == 0

    assert read_results(tmp_path / "out") == alone


def test_finished_cells_are_kept_and_broken_ones_computed_again(tmp_path: Path, alone: dict[str, bytes]) -> None:
    out, cells = tmp_path / "out", tmp_path / "out" / "cells"
    smaller = {**SWEEP, "seeds": [0]}
    assert main(["sweep", write_sweep(tmp_path, smaller), "--out", str(out), "--jobs", "1"]) == 0
    broken, *whole = sorted(cells.iterdir())
    assert len(whole) == CELLS // 2 - 1
    broken.write_bytes(broken.read_bytes()[:-50])
    before = {path.name: path.stat().st_mtime_ns for path in whole}

    assert main(["sweep", write_sweep(tmp_path, SWEEP), "--out", str(out), "--jobs", "1"]) == 0

    assert read_results(out) == alone
    assert {name: (cells / name).stat().st_mtime_ns for name in before} == before


def test_an_interrupted_sweep_goes_on(tmp_path: Path, alone: dict[str, bytes]) -> None:
    """The first process stops itself after its first cell: what comes then must come while it computes."""
    out = tmp_path / "out"
    arguments = ["sweep", write_sweep(tmp_path, {**SWEEP, "policies": ["best-fit-drfh"]}), "--out", str(out)]
    script = (
        "import os, signal, sys; from importlib import import_module; from fairbind.cli import main\n"
        "sweep = import_module('fairbind.cli.sweep'); compute, count = sweep.compute_cell, []\n"
        "def compute_and_stop(*cell):\n"
        "    count.append(cell)\n"
        "    if len(count) == 4: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return compute(*cell)\n"
        "sweep.compute_cell = compute_and_stop; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, *arguments, "--jobs", "1"]
    interrupted = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert interrupted.returncode == 130
    assert interrupted.stdout == ""
    assert interrupted.stderr == "fairbind: interrupted: 3 of 8 cells are finished; the same command goes on\n"
    kept = read_results(out)
    assert len(kept) == 3
    assert kept.items() <= alone.items()

    assert main(["sweep", write_sweep(tmp_path, SWEEP), "--out", str(out), "--jobs", "1"]) == 0
    assert read_results(out) == alone


def test_ctrl_c_ends_all_processes_with_one_line(tmp_path: Path) -> None:
    """The cells never end by themselves; on a terminal Ctrl-C comes to all processes of the group."""
    endless = make_scenario(make_entry(tasks=None, arrival={"every": 1e-3}, duration=1e-3), horizon=9e3)
    sweep = write_sweep(tmp_path, {"scenario": endless, "seeds": [1, 2, 3]})
    command = [sys.executable, "-m", "fairbind", "sweep", sweep, "--out", str(tmp_path / "out"), "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            wait_until_it_computes(tmp_path / "out")
            os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate(timeout=120)
        finally:
            process.kill()

    assert (process.returncode, told) == (
        130,
        "fairbind: interrupted: 0 of 3 cells are finished; the same command goes on\n",
    )


def wait_until_it_computes(out: Path) -> None:
    """Wait for the folder of the cells, which is made right before the first of them."""
    while not (out / "cells").is_dir():
        time.sleep(0.01)


# --- lost processes ---


class Killing(int):
    """A seed that kills each process that receives it, or the first. marker: a file that the first one leaves."""

    marker: Path | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        kill = "__import__('os').kill(__import__('os').getpid(), 9)"
        if self.marker is None:
            return eval, (kill,)
        leave = f"open({str(self.marker)!r}, 'x').close()"
        return eval, (f"{int(self)} if __import__('os').path.exists({str(self.marker)!r}) else ({leave}, {kill})",)


def test_a_lost_process_loses_nothing(tmp_path: Path) -> None:
    (variant, *_) = parse_sweep(SWEEP).variants
    killing = Killing(1)
    killing.marker = tmp_path / "lost"

    found = dict(compute_in_processes(2, [Cell(variant, "fifo", seed) for seed in (0, killing, 2)]))

    assert killing.marker.exists()
    assert found == {cell: compute_cell(variant.text, "fifo", cell.seed) for cell in found}
    assert sorted(cell.seed for cell in found) == [0, 1, 2]


def test_a_cell_with_which_every_process_is_lost_is_given_up() -> None:
    (variant, *_) = parse_sweep(SWEEP).variants

    with pytest.raises(FairbindError, match=f"fifo, seed 1: {MOST_LOSSES} processes that computed it were lost"):
        list(compute_in_processes(1, [Cell(variant, "fifo", Killing(1))]))


def test_what_fails_in_a_process_is_told() -> None:
    (variant, *_) = parse_sweep(SWEEP).variants

    with pytest.raises(FairbindError, match="fifo, seed 1: FieldError: cluster: is missing"):
        list(compute_in_processes(1, [Cell(replace(variant, text="{}"), "fifo", 1)]))


# --- Dask ---


@contextmanager
def serve(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Dask's until the end of the block."""
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_lost_dask_worker_loses_nothing(tmp_path: Path, alone: dict[str, bytes]) -> None:
    """It is killed amid its second cell; what its first one gave may be lost with it."""
    found = ["--scheduler-file", str(tmp_path / "scheduler.json")]
    own = ["--host", "127.0.0.1", "--no-dashboard"]
    worker = ["distributed.cli.dask_worker", *own, *found, "--nthreads", "1", "--no-nanny"]
    worker += ["--local-directory", str(tmp_path)]
    with ExitStack() as programs:
        programs.enter_context(serve("distributed.cli.dask_scheduler", *own, "--port", "0", "--no-show", *found))
        lost = programs.enter_context(serve(*worker, "--preload", str(WORKER)))
        programs.enter_context(serve(*worker))
        with Client(scheduler_file=found[1], set_as_default=False) as client:
            client.wait_for_workers(2)
            address = client.scheduler.address
        sweep = write_sweep(tmp_path, SWEEP)

        assert main(["sweep", sweep, "--out", str(tmp_path / "out"), "--scheduler", address]) == 0
        assert read_results(tmp_path / "out") == alone
        assert lost.wait(timeout=300) == -signal.SIGKILL


# --- what is refused ---


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({**SWEEP, "seeds": [1, 1]}, "seeds[1]: must differ from all others, but is seeds[0] already"),
        ({**SWEEP, "scenario": "missing.yaml"}, "missing.yaml: no such file"),
        ({**SWEEP, "scenario": "-"}, "scenario: must be a scenario, or the path of its file, not standard input"),
        ({**SWEEP, "wieghts": []}, "wieghts: is no field here; did you mean weights?"),
        ([], "sweep: must be an object with scenario, not []"),
    ],
)
def test_a_refused_sweep_is_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sweep: Any, message: str
) -> None:
    status = main(["sweep", write_sweep(tmp_path, sweep), "--out", str(tmp_path / "out")])

    captured = capsys.readouterr()
    assert (status, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert captured.err.startswith("fairbind: ")
    assert message in captured.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content",
    [
        "secret:x:0:0:root:/root:/bin/bash\nsecret:x:1:1\n",
        "{secret: [",
        "secret: 1\nsecret: 2\n",
        "!secret {}",
        "[*secret]",
        '{"secret": 1}',
        '{"cluster": "secret"}',
        '{"cluster": [{"shape": "secret"}], "tenants": [], "workload": []}',
        "secret\nsecret\xff".encode("latin-1"),
    ],
)
@pytest.mark.parametrize("name", ["secret.json", "secret.yaml", "passwd"])
def test_nothing_of_a_file_that_a_sweep_names_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | bytes, name: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    sweep = write_sweep(tmp_path, {**SWEEP, "scenario": f"elsewhere/{name}"})

    assert main(["sweep", sweep, "--out", str(tmp_path / "out"), "--debug"]) == 2
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert last == (
        f"fairbind: scenario: {tmp_path}/elsewhere/{name} is no scenario; `fairbind simulate` of that file says why"
    )
    assert "secret" not in (captured.out + captured.err).replace(name, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "0 is not in the range"),
        (["--scheduler", "127.0.0.1:8786"], "must be as tcp://host:8786, not '127.0.0.1:8786'"),
        (["--scheduler", "tcp://h:99999"], "must be as tcp://host:8786"),
        (["--scheduler", "tcp://h:1", "--jobs", "2"], "--jobs: must not stand beside --scheduler"),
        (["--out", "{sweep}"], "sweep.json cannot be a folder: File exists"),
    ],
)
def test_refused_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    sweep = write_sweep(tmp_path, SWEEP)
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]

    assert main(["sweep", sweep, *out, *(word.format(sweep=sweep) for word in arguments)]) == 2
    assert message in capsys.readouterr().err
