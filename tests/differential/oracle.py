"""kube-scheduler's own filters and scores as a program that answers questions: `deploy/tools/local/go/oracle`."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from localplane.tools import ensure_tools

Json = dict[str, Any]


class OracleError(RuntimeError):
    """The program did not answer a question."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first plugin that refuses a pod on a node, and its reasons.

    besides: where that is one about room, the first that would refuse the pod if there were room; else empty.
    """

    plugin: str
    reasons: tuple[str, ...]
    besides: str = ""


Verdict = Mapping[str, Refusal | None]
"""By node: None where the pod may be placed."""

Scores = Mapping[str, Mapping[str, int]]
"""By node that takes the pod and plugin: normalised and times the plugin's weight."""


class Oracle:
    """The running program. One question at a time."""

    def __init__(self, write: IO[bytes], read: IO[bytes]) -> None:
        self._write = write
        self._read = read

    def create(self, pods: Sequence[Json]) -> list[Json]:
        """Return pods as the API server would store them, without those that it would refuse."""
        answers = self._ask({"create": pods})["created"] if pods else []
        return [answer["pod"] for answer in answers if "error" not in answer]

    def judge(self, cluster: Json, pods: Sequence[Json]) -> list[Verdict]:
        """Return where each of these pods may be placed, each by itself."""
        return self._judge({"cluster": cluster, "pods": pods})

    def place(self, placed: Sequence[Json], pods: Sequence[Json]) -> list[Verdict]:
        """Let pods join the cluster of the question before; return where each of the others may be placed then."""
        return self._judge({"placed": placed, "pods": pods})

    def score(self, cluster: Json, pods: Sequence[Json]) -> list[Scores]:
        """Return what the nodes are worth to each of these pods, each by itself."""
        return self._score({"cluster": cluster, "pods": pods})

    def score_next(self, placed: Sequence[Json], pods: Sequence[Json]) -> list[Scores]:
        """Let pods join the cluster of the question before; return what the nodes are worth to the others then."""
        return self._score({"placed": placed, "pods": pods})

    def _score(self, question: Json) -> list[Scores]:
        return [answer.get("scores", {}) for answer in self._ask({**question, "scores": True}).get("verdicts", ())]

    def _judge(self, question: Json) -> list[Verdict]:
        return [
            dict.fromkeys(answer["feasible"])
            | {
                name: Refusal(refused["plugin"], tuple(refused["reasons"] or ()), refused.get("besides", ""))
                for name, refused in answer["refused"].items()
            }
            for answer in self._ask(question).get("verdicts", ())
        ]

    def _ask(self, question: Json) -> Json:
        self._write.write(json.dumps(question).encode() + b"\n")
        self._write.flush()
        line = self._read.readline()
        if not line:
            raise OracleError("the program ended")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer


@contextlib.contextmanager
def run_oracle(report: Callable[[str], None] = print) -> Iterator[Oracle]:
    """Run the program; build it first if it is not there. report: of the building."""
    path = ensure_tools(["filter-oracle"], report).path("filter-oracle")
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            yield Oracle(program.stdin, program.stdout)
        finally:
            program.stdin.close()  # it ends with its input
