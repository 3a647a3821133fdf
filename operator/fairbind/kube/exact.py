"""Exact solves, off the scheduling path: one question at a time to a worker process.

A process and not a thread, because the solvers are Python between their large steps and would hold the event loop up.
It is started by the first question, killed when an answer takes too long, and started anew by the next one.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import sys
from dataclasses import dataclass

from fairbind.fairness.problem import FloatArray, Problem
from fairbind.model import FairbindError

LENGTH = struct.Struct(">Q")
SOLVE_SECONDS = 60.0
"""An answer that takes longer is given up: shares of a minute ago say little about now."""


class ExactSolveError(FairbindError):
    """There is no answer. result: for the counter of solves, one of `SOLVE_RESULTS` but "solved"."""

    def __init__(self, result: str, message: str) -> None:
        super().__init__(message)
        self.result = result


SOLVE_RESULTS = ("solved", "failed", "timeout")


@dataclass(frozen=True, slots=True)
class Question:
    """What to solve."""

    problem: Problem
    mechanism: str
    alpha: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """tasks_ik, shares_i: as in `Allocation`; None when there is a problem. seconds: how long the worker took."""

    seconds: float
    tasks_ik: FloatArray | None = None
    shares_i: FloatArray | None = None
    problem: str | None = None


class ExactSolver:
    """Asks the worker. One question at a time; `close` ends it."""

    def __init__(self, *, solve_seconds: float = SOLVE_SECONDS) -> None:
        self._solve_seconds = solve_seconds
        self._process: asyncio.subprocess.Process | None = None

    async def solve(self, question: Question) -> Answer:
        """Return the answer. Raises ExactSolveError; a cancelled solve ends the worker."""
        try:
            async with asyncio.timeout(self._solve_seconds):
                answer = await self._ask(question)
        except TimeoutError:
            await self.close()
            raise ExactSolveError(
                "timeout", f"{question.mechanism} had no answer within {self._solve_seconds:g} s"
            ) from None
        except (OSError, EOFError) as error:
            await self.close()
            raise ExactSolveError("failed", f"the solver's process ended: {error}") from error
        except BaseException:
            await self.close()
            raise
        if answer.problem is not None:
            raise ExactSolveError("failed", answer.problem)
        return answer

    async def close(self) -> None:
        """End the worker, whatever it does."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def _ask(self, question: Question) -> Answer:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairbind.kube.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        body = pickle.dumps(question)
        process.stdin.write(LENGTH.pack(len(body)) + body)
        await process.stdin.drain()
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        answer: Answer = pickle.loads(await process.stdout.readexactly(length))  # noqa: S301  only the worker writes
        return answer
