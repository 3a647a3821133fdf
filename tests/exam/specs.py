"""What became of Kubernetes' specs, read from Ginkgo's report, and how two candidates compare.

A spec is known by its name without Kubernetes' tags: tags say who runs it when, and change between versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

TAG = re.compile(r"\s*\[[^\]]*\]")
NANOSECONDS = 1e9
LONGEST_FAILURE = 400
"""Characters of a failure that are kept; Ginkgo's objects run to pages."""
PASSED, SKIPPED = "passed", "skipped"


class ReportError(ValueError):
    """A report is not what Ginkgo writes, or its suite never came to its specs."""


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
    WITHOUT_CONTROL = "without control"
    """It does not pass with kube-scheduler here, and the list says why: it says nothing about fairbind."""
    LEFT_OUT = "left out"
    """Neither ran it: it skips itself, or its feature is off."""
    FAILED = "failed"
    """It passes with kube-scheduler and not with fairbind, or with neither, and no list says why."""
    STALE = "stale"
    """It passes, and a list says that it does not."""


def read_outcomes(report: Path) -> dict[str, Outcome]:
    """Return what became of each spec, by name, from a report of Ginkgo's `--ginkgo.json-report`.

    Raises ReportError where a step before all specs failed: then it tells nothing of any of them.
    """
    try:
        suites = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{report} is no report: {error}") from error
    outcomes: dict[str, Outcome] = {}
    for spec in _list_specs(suites):
        failure = " ".join(spec.get("Failure", {}).get("Message", "").split())[:LONGEST_FAILURE]
        if spec["LeafNodeType"] != "It":
            if spec["State"] not in {PASSED, SKIPPED}:
                raise ReportError(f"{spec['LeafNodeType']}: {failure}")
            continue
        name = find_name(spec)
        if name in outcomes:
            raise ReportError(f"two specs are named {name!r}")
        outcomes[name] = Outcome(spec["State"], round(spec["RunTime"] / NANOSECONDS, 1), failure)
    if not outcomes:
        raise ReportError(f"{report} has no specs")
    return outcomes


def _list_specs(suites: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for suite in suites:
        yield from suite["SpecReports"] or ()


def find_name(spec: Mapping[str, Any]) -> str:
    """Return the name of a spec without tags.

    >>> find_name({"ContainerHierarchyTexts": ["[sig-x] Pods [Serial]"], "LeafNodeText": "run [Conformance]"})
    'Pods run'
    """
    texts = [*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]
    return " ".join(filter(None, (TAG.sub("", text).strip() for text in texts)))


def judge(control: Outcome, ours: Outcome, *, excepted: bool, needs_kubelet: bool) -> Verdict:
    """Return what two outcomes of a spec say.

    excepted: it is known that fairbind does not pass. needs_kubelet: it is known that no scheduler passes here.
    """
    if needs_kubelet:
        return Verdict.STALE if PASSED in {control.state, ours.state} else Verdict.WITHOUT_CONTROL
    if excepted:
        return Verdict.EXCEPTED if control.state == PASSED != ours.state else Verdict.STALE
    if control.state == ours.state == SKIPPED:
        return Verdict.LEFT_OUT
    return Verdict.PASSED if control.state == ours.state == PASSED else Verdict.FAILED
