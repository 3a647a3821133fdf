"""The worker: a process of its own that solves exact problems, so that no solve ever delays a cycle.

It reads one question after the other from standard input and writes one answer each to standard output, as pickles
behind their length. It is nicer than its parent, ignores Ctrl-C (which a terminal sends to the parent too) and ends
when its input does: also when the parent was killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from typing import IO

from fairbind.fairness.solvers.warm import WarmStart
from fairbind.kube.fair_shares.solver_process import LENGTH, Answer, AuditQuestion
from fairbind.model import FairbindError
from fairbind.scheduling.fair_shares.audit import audit
from fairbind.scheduling.fair_shares.problem import ExactProblem, solve_exactly

NICENESS = 10


def main() -> int:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    answers = _reserve_standard_output()
    warm = WarmStart()
    while (question := _read_question(sys.stdin.buffer)) is not None:
        body = pickle.dumps(answer(question, warm))
        try:
            answers.write(LENGTH.pack(len(body)) + body)
            answers.flush()
        except BrokenPipeError:
            os._exit(0)  # the parent was killed meanwhile; what is left in the buffer has no reader
    return 0


def answer(question: ExactProblem | AuditQuestion, warm: WarmStart | None = None) -> Answer:
    """Solve one problem or make one audit; what goes wrong is an answer too. warm: what the solver remembers."""
    started = time.perf_counter()
    try:
        if isinstance(question, AuditQuestion):
            return Answer(time.perf_counter() - started, report=audit(question.scene, question.fair_shares))
        shares = solve_exactly(question, warm=warm)
    except FairbindError as error:
        return Answer(time.perf_counter() - started, error=str(error))
    except Exception as error:  # noqa: BLE001 - a bug must not end the worker; the parent reports it
        return Answer(time.perf_counter() - started, error=f"{type(error).__name__}: {error}")
    return Answer(time.perf_counter() - started, shares)


def _reserve_standard_output() -> IO[bytes]:
    """Return a stream to the parent; what else is printed, by Python or a library in C, goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    if sys.stderr is not None:
        os.dup2(sys.stderr.fileno(), 1)
    sys.stdout = sys.stderr
    return answers


def _read_question(questions: IO[bytes]) -> ExactProblem | AuditQuestion | None:
    header = questions.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    question: ExactProblem | AuditQuestion = pickle.loads(questions.read(*LENGTH.unpack(header)))  # noqa: S301  only the parent writes here
    return question


if __name__ == "__main__":
    sys.exit(main())
