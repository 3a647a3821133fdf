from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairbind.fairness.problems.problem import make_problem
from fairbind.kube.fair_shares.solver_process import LENGTH, ExactSolveError, ExactSolver
from fairbind.scheduling.fair_shares.problem import ExactProblem


def make_question(weight_i: Sequence[float] = (1, 1)) -> ExactProblem:
    """Ask about the example of the DRF paper, section 4.1, on one server."""
    return ExactProblem(
        problem=make_problem([[9, 18]], [[1, 4], [3, 1]], weight_i=weight_i),
        mechanism="drfh",
        alpha=None,
        tenants=("a", "b"),
        tenant_i=np.arange(2),
        wanted_i=np.full(2, 100.0),
        counted_ir=np.array([[1.0, 4.0], [3.0, 1.0]]),
        weight_n=np.array(weight_i, dtype=np.float64),
    )


PAPER = make_question()


@pytest.fixture
async def solver() -> AsyncIterator[ExactSolver]:
    solver = ExactSolver(solve_seconds=600.0)
    yield solver
    await solver.close()


def find_worker(solver: ExactSolver) -> int:
    assert solver._process is not None
    return solver._process.pid


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 300
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


async def test_the_worker_solves_one_question_after_the_other(solver: ExactSolver) -> None:
    first = await solver.solve(PAPER)
    worker = find_worker(solver)
    second = await solver.solve(make_question(weight_i=[2, 1]))

    assert first.fair_shares == pytest.approx({"a": 2 / 3, "b": 2 / 3})
    assert second.fair_shares["a"] / second.fair_shares["b"] == pytest.approx(2)
    assert find_worker(solver) == worker


async def test_a_problem_that_cannot_be_solved_is_an_error_and_not_the_end(solver: ExactSolver) -> None:
    with pytest.raises(ExactSolveError, match="drfh does not take alpha") as caught:
        await solver.solve(replace(PAPER, alpha=1.0))
    assert caught.value.result == "failed"
    assert (await solver.solve(PAPER)).fair_shares == pytest.approx({"a": 2 / 3, "b": 2 / 3})


async def test_a_worker_that_was_killed_is_an_error_and_the_next_question_starts_another(solver: ExactSolver) -> None:
    await solver.solve(PAPER)
    worker = find_worker(solver)
    os.kill(worker, signal.SIGSTOP)
    asking = asyncio.create_task(solver.solve(PAPER))
    await asyncio.sleep(0)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(ExactSolveError, match="process ended") as caught:
        await asking
    assert caught.value.result == "failed"
    assert (await solver.solve(PAPER)).fair_shares == pytest.approx({"a": 2 / 3, "b": 2 / 3})
    assert find_worker(solver) != worker


async def test_a_worker_that_was_killed_while_nobody_asked_is_started_anew(solver: ExactSolver) -> None:
    await solver.solve(PAPER)
    worker = find_worker(solver)
    assert solver._process is not None
    os.kill(worker, signal.SIGKILL)
    await solver._process.wait()
    assert (await solver.solve(PAPER)).fair_shares == pytest.approx({"a": 2 / 3, "b": 2 / 3})
    assert find_worker(solver) != worker


async def test_an_answer_that_takes_too_long_is_given_up_and_its_worker_ended() -> None:
    solver = ExactSolver(solve_seconds=600.0)
    await solver.solve(PAPER)
    worker = find_worker(solver)
    solver._solve_seconds = 0.2
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(ExactSolveError, match=r"no answer within 0\.2 s") as caught:
        await solver.solve(PAPER)
    assert caught.value.result == "timeout"
    wait_until_gone(worker)
    await solver.close()


async def test_a_cancelled_solve_leaves_no_worker_behind(solver: ExactSolver) -> None:
    await solver.solve(PAPER)
    worker = find_worker(solver)
    os.kill(worker, signal.SIGSTOP)
    asking = asyncio.create_task(solver.solve(PAPER))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    wait_until_gone(worker)


async def test_the_interrupt_of_a_terminal_is_for_the_parent_alone(solver: ExactSolver) -> None:
    await solver.solve(PAPER)
    worker = find_worker(solver)
    os.kill(worker, signal.SIGINT)
    await solver.solve(PAPER)
    assert find_worker(solver) == worker


PARENT = """
import asyncio, pickle, sys
from fairbind.kube.fair_shares.solver_process import ExactSolver

async def main():
    solver = ExactSolver(solve_seconds=600.0)
    await solver.solve(pickle.load(sys.stdin.buffer))
    print(solver._process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_worker_ends_with_a_parent_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(pickle.dumps(PAPER))
        parent.stdin.flush()
        worker = int(parent.stdout.readline())
        assert is_alive(worker)
        parent.kill()
    wait_until_gone(worker)


def test_a_worker_whose_parent_is_gone_before_the_answer_says_nothing() -> None:
    command = [sys.executable, "-m", "fairbind.kube.fair_shares.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.close()
        body = pickle.dumps(PAPER)
        worker.stdin.write(LENGTH.pack(len(body)) + body)
        worker.stdin.close()
        assert worker.stderr.read() == b""
        assert worker.wait(300) == 0


LOUD = """
import ctypes, os, sys
from fairbind.kube.fair_shares import worker

solve = worker.solve_exactly

def print_and_solve(*question, **options):
    print("of Python", flush=True)
    os.write(1, b"of a library")
    ctypes.CDLL(None).puts(b"in a buffer of C")
    return solve(*question, **options)

worker.solve_exactly = print_and_solve
sys.exit(worker.main())
"""
"""The worker, with a solver that prints."""


def test_whatever_a_library_prints_is_not_between_the_answers() -> None:
    body = pickle.dumps(PAPER)
    question = LENGTH.pack(len(body)) + body
    done = subprocess.run([sys.executable, "-c", LOUD], input=question * 2, capture_output=True, check=True)
    answers = done.stdout
    for _ in range(2):
        (length,) = LENGTH.unpack(answers[: LENGTH.size])
        answer = pickle.loads(answers[LENGTH.size : LENGTH.size + length])
        assert answer.error is None
        answers = answers[LENGTH.size + length :]
    assert answers == b""
    for said in (b"of Python", b"of a library", b"in a buffer of C"):
        assert done.stderr.count(said) == 2
