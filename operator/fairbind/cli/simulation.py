"""The command `fairbind simulate`: a scenario, its policies one after the other or side by side, and what is written.

Ctrl-C asks the runs to end at their next instant; what was decided until then is written all the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Self

import click

from fairbind.cli.cluster_listing import Source, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.exit_status import EXIT_INTERRUPTED
from fairbind.cli.mechanisms.reading import read_document
from fairbind.cli.mechanisms.tables import lay_out_side_by_side, write_text
from fairbind.cli.progress import Progress
from fairbind.model.errors import FairbindError, InvalidProblemError
from fairbind.simulator.driver import Simulation, StopRun
from fairbind.simulator.parsing import check_policies, parse_scenario
from fairbind.simulator.report import compute_report
from fairbind.simulator.results import Run
from fairbind.simulator.scenario import Scenario
from fairbind.simulator.snapshot_additions import add_to_snapshot, read_seed
from fairbind.simulator.snapshot_scenario import make_scenario
from fairbind.simulator.tables import choose_format, describe_results, write_results
from fairbind.simulator.workload import Workload, draw_workload
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.reading import NANOSECONDS

LOOK_SECONDS = 0.2
GIVE_UP = signal.SIGUSR1
"""What interrupts a run amid an instant; no other program sends it."""
PATIENCE_SECONDS = 3.0
"""After Ctrl-C an instant may take so long to its end; then the run ends amid it."""


def run_scenario(
    source: str | None,
    *,
    start: Source | None,
    run_times: Mapping[str, Sequence[float]],
    policies: Sequence[str],
    seed: int | None,
    folder: Path | None,
    jobs: int,
    tables: str | None,
    output: str,
) -> int:
    """Simulate, write and print; return the exit status. Raises InvalidProblemError for invalid input.

    source: of a scenario. start: of a cluster, with which the scenario, if there is one, begins. run_times: seconds, by
    tenant; for the pods of that cluster.
    """
    if source is None and start is None:
        raise InvalidProblemError("SCENARIO: must be there, or --from or --from-cluster, or both")
    if start is not None and source == start.file == "-":
        raise InvalidProblemError("--from: must not be standard input, which SCENARIO is already")
    if start is None and run_times:
        raise InvalidProblemError("--run-time: must stand beside --from or --from-cluster; a scenario has durations")
    question = Question(
        None if source is None else read_document(source),
        tuple(policies),
        seed,
        None if start is None else read_objects(start),
        run_times,
    )
    scenario = question.make_scenario()
    table_format = choose_format(tables)
    if folder is not None:
        make_folder(folder)
    with Interruption() as interruption:
        if jobs > 1 and len(scenario.policies) > 1:
            runs = _SideBySide(question, scenario.policies, jobs, interruption).run()
        else:
            runs = _run_one_by_one(scenario, interruption)
        is_interrupted = len(runs) < len(scenario.policies) or any(run.interrupted for run in runs)
        if folder is not None:
            write_results(
                folder,
                runs,
                table_format,
                is_interrupted=is_interrupted,
                composite=scenario.composite,
                notes=scenario.notes,
            )
            (folder / "report.html").write_text(compute_report(scenario, runs), encoding="utf-8")
    if is_interrupted:
        click.echo(f"fairbind: {_describe_progress(scenario, runs)}", err=True)
        return EXIT_INTERRUPTED
    if output != "table":
        found = describe_results(runs, composite=scenario.composite, notes=scenario.notes)
        write_text(format_document(found, output))
        return 0
    told = [] if scenario.composite is None else [f"composite: {scenario.composite}"]
    if scenario.start is not None:
        told += scenario.notes
    write_text("\n".join([*told, *lay_out_side_by_side(compute_table(runs), headings=2)]))
    return 0


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: a scenario, and what the command line says in place of its own policies and seed.

    scenario: None: there is only a cluster to begin with. start: the objects of that cluster; None: the scenario has
    one of its own. run_times: how long the pods of the start run, by tenant.
    """

    scenario: object | None
    policies: tuple[str, ...]
    seed: int | None
    start: ListedObjects | None = None
    run_times: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def make_scenario(self) -> Scenario:
        """Return the scenario. Raises InvalidProblemError."""
        if self.start is None:
            scenario = parse_scenario(self.scenario)
        elif self.scenario is None:
            scenario = make_scenario(self.start, self.seed or 0, self.run_times)
        else:
            seed = read_seed(self.scenario) if self.seed is None else self.seed
            start = make_scenario(self.start, seed, self.run_times, may_be_empty=True)
            scenario = add_to_snapshot(start, self.scenario)
        if self.policies:
            check_policies(self.policies)
            scenario = replace(scenario, policies=self.policies)
        return scenario if self.seed is None else replace(scenario, seed=self.seed)


def make_folder(folder: Path) -> None:
    """Make the folder of the results before anything is simulated: where it cannot be made, nothing is in vain."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidProblemError(f"--out: {folder} cannot be a folder: {error.strerror}") from error


class Interruption:
    """Takes Ctrl-C as a request to end soon: at the next instant, or amid one that takes too long.

    is_wanted: whether it came.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._may_stop = False
        # A thread, because a process has one alarm, which the caller may need.
        self._timer = threading.Timer(PATIENCE_SECONDS, signal.pthread_kill, (threading.get_ident(), GIVE_UP))
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note), signal.signal(GIVE_UP, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()  # its signal must not come after the handlers are gone
        for number, handler in zip((signal.SIGINT, GIVE_UP), self._before, strict=True):
            signal.signal(number, handler)

    def simulate(self, scenario: Scenario, workload: Workload, policy: str, show: Callable[[float], None]) -> Run:
        """Return the run of one policy, which ends when that is wanted."""

        def watch(part: float) -> bool:
            self._may_stop = True
            show(part)
            return self.is_wanted

        simulation = Simulation(scenario, workload, policy, watch)
        try:
            simulation.live()
        finally:
            self._may_stop = False
        return simulation.conclude()

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if not self.is_wanted:
            self.is_wanted = True
            self._timer.start()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._may_stop:
            self._may_stop = False
            raise StopRun


def _run_one_by_one(scenario: Scenario, interruption: Interruption) -> list[Run]:
    workload = draw_workload(scenario)
    runs: list[Run] = []
    for policy in scenario.policies:
        if interruption.is_wanted:
            break
        progress = Progress(policy)
        runs.append(interruption.simulate(scenario, workload, policy, progress.show))
        progress.clear()
    return runs


class _SideBySide:
    """Runs policies in processes of their own. Each reads the document again, so it decides as it would alone."""

    def __init__(self, question: Question, policies: Sequence[str], jobs: int, interruption: Interruption) -> None:
        self._question = question
        self._policies = policies
        self._jobs = jobs
        self._interruption = interruption
        self._processes = multiprocessing.get_context("spawn")
        self._running: dict[Connection, tuple[BaseProcess, str]] = {}
        self._progress = Progress(f"{len(policies)} policies")

    def run(self) -> list[Run]:
        """Return the runs, in the order of the policies; without those that had not begun when it was interrupted."""
        waiting = list(self._policies)
        found: dict[str, Run] = {}
        try:
            while self._running or (waiting and not self._interruption.is_wanted):
                while waiting and len(self._running) < self._jobs and not self._interruption.is_wanted:
                    self._start(waiting.pop(0))
                for connection in wait(list(self._running), LOOK_SECONDS):
                    assert isinstance(connection, Connection)
                    run = self._take(connection)
                    found[run.policy] = run
                self._progress.show(len(found) / len(self._policies))
                if self._interruption.is_wanted:  # said again and again: the first time it may not listen yet
                    for process, _ in self._running.values():
                        os.kill(process.pid or os.getpid(), signal.SIGINT)
        finally:
            self._progress.clear()
            for process, _ in self._running.values():
                process.kill()
        return [found[policy] for policy in self._policies if policy in found]

    def _start(self, policy: str) -> None:
        ours, theirs = self._processes.Pipe(duplex=False)
        process = self._processes.Process(target=_answer, args=(self._question, policy, theirs))
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process inherits it until it listens itself
        process.start()
        signal.signal(signal.SIGINT, before)
        theirs.close()
        self._running[ours] = process, policy

    def _take(self, connection: Connection) -> Run:
        process, policy = self._running.pop(connection)
        try:
            run: Run = connection.recv()
        except EOFError as error:
            raise FairbindError(f"the process that simulated {policy} ended before its run did") from error
        process.join()
        return run


def _answer(question: Question, policy: str, connection: Connection) -> None:
    """Simulate one policy in a process of its own."""
    with Interruption() as interruption:
        scenario = question.make_scenario()
        connection.send(interruption.simulate(scenario, draw_workload(scenario), policy, lambda _part: None))
        connection.close()


def _describe_progress(scenario: Scenario, runs: Sequence[Run]) -> str:
    finished = sum(not run.interrupted for run in runs)
    parts = [f"{run.policy} up to {run.end / NANOSECONDS:g} s" for run in runs if run.interrupted]
    amid = f", {' and '.join(parts)}" if parts else ""
    return f"interrupted: {finished} of {len(scenario.policies)} policies finished{amid}"


def compute_table(runs: Sequence[Run]) -> list[list[str]]:
    """Return the policies side by side, in lines for a terminal."""
    rows = [
        ["policy", "completed", "unfinished", "makespan", "cpu", "jain", "share", "mean"],
        ["", "", "", "s", "used", "", "error", "wait s"],
    ]
    for run in runs:
        summary = run.summary
        numbers = (
            summary["makespan_seconds"],
            summary["utilisation"].get("cpu"),
            summary["jain"],
            summary["share_error"]["mean"],
            summary["wait_seconds"]["mean"],
        )
        shown = ["-" if number is None else f"{number:.3f}" for number in numbers]
        rows.append([run.policy, str(summary["completed"]), str(summary["unfinished"]), *shown])
    if any("gangs" in run.summary for run in runs):
        found = [run.summary.get("gangs", {"started": 0, "arrived": 0, "torn": 0}) for run in runs]
        told = [[f"{gangs['started']}/{gangs['arrived']}", str(gangs["torn"])] for gangs in found]
        headings = [["groups", "groups"], ["started", "torn"]]
        rows = [[*row, *more] for row, more in zip(rows, [*headings, *told], strict=True)]
    return rows
