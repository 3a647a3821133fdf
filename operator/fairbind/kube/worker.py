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

from fairbind.fairness.solve import compute_allocation
from fairbind.kube.exact import LENGTH, Answer, Question
from fairbind.model import InvalidProblemError, SolverError

NICENESS = 10


def main() -> int:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints must not end up between two answers
    while (question := _read_question(sys.stdin.buffer)) is not None:
        body = pickle.dumps(answer(question))
        answers.write(LENGTH.pack(len(body)) + body)
        answers.flush()
    return 0


def answer(question: Question) -> Answer:
    """Solve one problem; what goes wrong is an answer too."""
    started = time.perf_counter()
    try:
        allocation = compute_allocation(question.problem, question.mechanism, alpha=question.alpha)
    except (InvalidProblemError, SolverError) as error:
        return Answer(seconds=time.perf_counter() - started, problem=str(error))
    except Exception as error:  # noqa: BLE001 - a bug must not end the worker; the parent reports it
        return Answer(seconds=time.perf_counter() - started, problem=f"{type(error).__name__}: {error}")
    return Answer(
        seconds=time.perf_counter() - started, tasks_ik=allocation.tasks_ik, shares_i=allocation.dominant_shares_i
    )


def _read_question(questions: IO[bytes]) -> Question | None:
    header = questions.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    question: Question = pickle.loads(questions.read(*LENGTH.unpack(header)))  # noqa: S301  only the parent writes here
    return question


if __name__ == "__main__":
    sys.exit(main())
