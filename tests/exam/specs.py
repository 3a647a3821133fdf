"""What became of Kubernetes' specs, as the program of the exam wrote it down, and how two candidates compare.

A spec is known by its name without Kubernetes' tags: tags say who runs it when, and change between versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

TAG = re.compile(r"\s*\[[^\]]*\]")
LONGEST_FAILURE = 400
"""Characters of a failure that are kept; Ginkgo's objects run to pages."""
PASSED, SKIPPED = "passed", "skipped"


class ReportError(ValueError):
    """What was written down tells of no spec, or of one twice."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a spec. state: Ginkgo's word. seconds: how long it took. failure: its first words, or empty."""

    state: str
    seconds: float = 0.0
    failure: str = ""


class Verdict(StrEnum):
    """What two outcomes say of fairbind. Only `FAILED` and `STALE` are faults."""

    PASSED = "passed"
    EXCEPTED = "excepted"
    """It passes with kube-scheduler, not with fairbind, and the list says why."""
    LEFT_OUT = "left out"
    """Neither ran it: it skips itself."""
    FAILED = "failed"
    """It passes with kube-scheduler and not with fairbind, or with neither, and the list does not have it."""
    STALE = "stale"
    """It passes, or does not with kube-scheduler either, and the list has it."""


def read_outcomes(lines: Path) -> dict[str, Outcome]:
    """Return what became of each spec, by name, from what the program of the exam has written until now.

    Raises ReportError where it has written nothing: then a step before all specs failed, and its log says which. Also
    where a spec passed in no time: Ginkgo's dry runs say so of specs that were never run.
    """
    outcomes: dict[str, Outcome] = {}
    try:
        specs = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise ReportError(f"{lines} tells of no spec: {error}") from error
    for spec in specs:
        name = find_name(spec["texts"])
        if name in outcomes:
            raise ReportError(f"two specs are named {name!r}")
        if spec["state"] == PASSED and not spec["seconds"]:
            raise ReportError(f"{name!r} passed in no time, so it was not run")
        failure = " ".join(spec["failure"].split())[:LONGEST_FAILURE]
        outcomes[name] = Outcome(spec["state"], round(spec["seconds"], 1), failure)
    return outcomes


def find_name(texts: Iterable[str]) -> str:
    """Return the name of a spec without tags. texts: of its containers and its own.

    >>> find_name(["[sig-x] Pods [Serial]", "run [Conformance]"])
    'Pods run'
    """
    return " ".join(filter(None, (TAG.sub("", text).strip() for text in texts)))


def judge(control: Outcome, ours: Outcome, *, excepted: bool) -> Verdict:
    """Return what two outcomes of a spec say. excepted: the list has it, so it is known that fairbind does not pass."""
    if excepted:
        return Verdict.EXCEPTED if control.state == PASSED != ours.state else Verdict.STALE
    if control.state == ours.state == SKIPPED:
        return Verdict.LEFT_OUT
    return Verdict.PASSED if control.state == ours.state == PASSED else Verdict.FAILED
