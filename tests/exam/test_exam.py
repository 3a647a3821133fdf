"""How an exam is read and judged; the exam itself takes too long for every change: `make exam-e2e`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from exam.lists import EXCEPTIONS, NEEDS_KUBELET
from exam.main import RESULTS, compute_pattern, make_result
from exam.report import PAGE, render_page
from exam.specs import Outcome, ReportError, Verdict, judge, read_outcomes
from localplane.tools import KUBERNETES_VERSION

Json = dict[str, Any]

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", 300.0, "no"), Outcome("skipped")
PREEMPTION = "[sig-scheduling] SchedulerPreemption [Serial]"


def make_spec(leaf: str, state: str, *containers: str, failure: str = "") -> Json:
    return {"texts": [*containers, leaf], "state": state, "seconds": 1.52, "failure": failure}


def write_lines(folder: Path, *specs: Json) -> Path:
    path = folder / "outcomes.jsonl"
    path.write_text("".join(f"{json.dumps(spec)}\n" for spec in specs), encoding="utf-8")
    return path


def test_specs_are_known_by_their_names_without_tags(tmp_path: Path) -> None:
    lines = write_lines(
        tmp_path,
        make_spec("validates basic preemption works [Conformance]", "passed", PREEMPTION),
        make_spec("is even [Beta]", "failed", PREEMPTION, "[sig-x] Spread", failure="Expected\n  <int>: 1\nto equal 2"),
    )

    assert read_outcomes(lines) == {
        "SchedulerPreemption validates basic preemption works": Outcome("passed", 1.5),
        "SchedulerPreemption Spread is even": Outcome("failed", 1.5, "Expected <int>: 1 to equal 2"),
    }


def test_two_specs_of_one_name_are_no_result(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="two specs are named 'a'"):
        read_outcomes(write_lines(tmp_path, make_spec("a [Serial]", "passed"), make_spec("a", "passed")))


def test_a_program_that_ended_before_its_first_spec_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="tells of no spec"):
        read_outcomes(tmp_path / "missing.jsonl")


@pytest.mark.parametrize(
    ("control", "ours", "listed", "verdict"),
    [
        (PASSED, PASSED, "", Verdict.PASSED),
        (PASSED, FAILED, "", Verdict.FAILED),
        (PASSED, SKIPPED, "", Verdict.FAILED),
        (PASSED, Outcome("missing"), "", Verdict.FAILED),
        (FAILED, FAILED, "", Verdict.FAILED),
        (FAILED, PASSED, "", Verdict.FAILED),
        (SKIPPED, SKIPPED, "", Verdict.LEFT_OUT),
        (SKIPPED, PASSED, "", Verdict.FAILED),
        (PASSED, FAILED, "excepted", Verdict.EXCEPTED),
        (PASSED, SKIPPED, "excepted", Verdict.EXCEPTED),
        (PASSED, PASSED, "excepted", Verdict.STALE),
        (FAILED, FAILED, "excepted", Verdict.STALE),
        (SKIPPED, SKIPPED, "excepted", Verdict.STALE),
        (FAILED, SKIPPED, "kubelet", Verdict.WITHOUT_CONTROL),
        (FAILED, FAILED, "kubelet", Verdict.WITHOUT_CONTROL),
        (PASSED, SKIPPED, "kubelet", Verdict.STALE),
        (FAILED, PASSED, "kubelet", Verdict.STALE),
    ],
)
def test_what_two_outcomes_say(control: Outcome, ours: Outcome, listed: str, verdict: Verdict) -> None:
    assert judge(control, ours, excepted=listed == "excepted", needs_kubelet=listed == "kubelet") is verdict


def test_what_is_left_out_is_found_between_its_tags() -> None:
    pattern = re.compile(compute_pattern("Preemption (basic) validates it works"))

    assert pattern.search("[sig-x] Preemption (basic) [Serial] [Slow] validates it works [Conformance]")
    assert not pattern.search("[sig-x] Preemption (basic) validates it nearly works")
    assert not pattern.search("[sig-x] Preemption basic validates it works")


def test_a_spec_that_only_one_of_them_knows_is_a_fault() -> None:
    specs = make_result({"a": PASSED, "b": PASSED}, {"a": PASSED, "c": PASSED})["specs"]

    assert {spec["name"]: spec["verdict"] for spec in specs} == {"a": "passed", "b": "failed", "c": "failed"}


@pytest.fixture(scope="module")
def published() -> Json:
    result: Json = json.loads(RESULTS.read_text(encoding="utf-8"))
    return result


def test_the_page_is_made_of_the_result(published: Json) -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(published)


def test_the_result_is_of_the_pinned_version_and_of_the_lists_as_they_are(published: Json) -> None:
    found = {spec["name"]: (spec["verdict"], spec["why"]) for spec in published["specs"]}
    excepted = {name: (str(Verdict.EXCEPTED), why) for name, why in EXCEPTIONS.items()}
    kubelets = {name: (str(Verdict.WITHOUT_CONTROL), why) for name, why in NEEDS_KUBELET.items()}

    assert published["kubernetes"] == ".".join(map(str, KUBERNETES_VERSION))
    assert {name: words for name, words in found.items() if words[1]} == excepted | kubelets
    assert {verdict for verdict, _ in found.values()} & {Verdict.FAILED, Verdict.STALE} == set()


def test_a_reason_stands_beside_each_exception() -> None:
    assert EXCEPTIONS.keys() & NEEDS_KUBELET.keys() == set()
    assert all(len(why.split()) > 3 for why in (*EXCEPTIONS.values(), *NEEDS_KUBELET.values()))
