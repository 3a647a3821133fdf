"""Exact solves, off the scheduling path: one question at a time to a worker process.

A process and not a thread, because the solvers are Python between their large steps and would hold the event loop up.
It is started by the first question, killed when an answer takes too long, and started again by the next one.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from fairbind.model import FairbindError
from fairbind.scheduling.fair_shares.audit import AuditReport, AuditScene
from fairbind.scheduling.fair_shares.problem import ExactProblem, ExactShares

LENGTH = struct.Struct(">Q")
SOLVE_SECONDS = 60.0
"""An answer that takes longer is given up: shares of a minute ago say little about now."""


class ExactSolveError(FairbindError):
    """There is no answer. result: for the counter of solves, one of `SOLVE_RESULTS` but "solved"."""

    def __init__(self, result: str, message: str) -> None:
        super().__init__(message)
        self.result = result


SOLVE_RESULTS = ("solved", "failed", "timeout")


@dataclass(frozen=True, slots=True, eq=False)
class AuditQuestion:
    """What an audit is made of."""

    scene: AuditScene
    fair_shares: Mapping[str, float] | None


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """shares or report, as it was asked for; neither when `error` says why. seconds: how long the worker took."""

    seconds: float
    shares: ExactShares | None = None
    report: AuditReport | None = None
    error: str | None = None


class ExactSolver:
    """Asks the worker. One question at a time; `close` ends it."""

    def __init__(self, *, solve_seconds: float = SOLVE_SECONDS) -> None:
        self._solve_seconds = solve_seconds
        self._process: asyncio.subprocess.Process | None = None

    async def solve(self, problem: ExactProblem) -> ExactShares:
        """Return what the mechanism gives. Raises ExactSolveError; a cancelled solve ends the worker."""
        answer = await self._ask(problem, problem.mechanism)
        if answer.shares is None:
            raise ExactSolveError("failed", answer.error or "no answer")
        return answer.shares

    async def audit(self, question: AuditQuestion) -> AuditReport:
        """Return what is not as fair as it could be. Raises as `solve` does."""
        answer = await self._ask(question, "the audit")
        if answer.report is None:
            raise ExactSolveError("failed", answer.error or "no answer")
        return answer.report

    async def _ask(self, question: ExactProblem | AuditQuestion, what: str) -> Answer:
        try:
            async with asyncio.timeout(self._solve_seconds):
                return await self._exchange(question)
        except TimeoutError:
            await self.close()
            raise ExactSolveError("timeout", f"{what} had no answer within {self._solve_seconds:g} s") from None
        except (OSError, EOFError) as error:
            await self.close()
            raise ExactSolveError("failed", f"the solver's process ended: {error}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the worker, whatever it does."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def _exchange(self, question: ExactProblem | AuditQuestion) -> Answer:
        if self._process is None or self._process.returncode is not None:  # it ended while it was not asked
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairbind.kube.fair_shares.worker",
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
