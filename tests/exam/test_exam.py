"""How an exam is read and judged; the exam itself takes too long for every change: `make exam-e2e`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from exam.lists import EXCEPTIONS
from exam.main import compute_pattern, compute_stages, make_result, renew
from exam.report import render_page
from exam.specs import Outcome, ReportError, Verdict, judge, read_outcomes

Json = dict[str, Any]

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", 300.0, "no"), Outcome("skipped")
STAGES = Path(__file__).resolve().parents[2] / "deploy" / "tools" / "local" / "kwok" / "stages.yaml"
HOOK = ".spec.containers.[].lifecycle.preStop.sleep.seconds"
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


def test_a_spec_that_passed_in_no_time_was_not_run(tmp_path: Path) -> None:
    dry = {**make_spec("a", "passed"), "seconds": 0}

    assert read_outcomes(write_lines(tmp_path, {**dry, "state": "skipped"})) == {"a": Outcome("skipped")}
    with pytest.raises(ReportError, match="'a' passed in no time, so it was not run"):
        read_outcomes(write_lines(tmp_path, dry))


def test_a_program_that_ended_before_its_first_spec_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="tells of no spec"):
        read_outcomes(tmp_path / "missing.jsonl")


@pytest.mark.parametrize(
    ("control", "ours", "excepted", "verdict"),
    [
        (PASSED, PASSED, False, Verdict.PASSED),
        (PASSED, FAILED, False, Verdict.FAILED),
        (PASSED, SKIPPED, False, Verdict.FAILED),
        (PASSED, Outcome("missing"), False, Verdict.FAILED),
        (FAILED, FAILED, False, Verdict.FAILED),
        (FAILED, PASSED, False, Verdict.FAILED),
        (SKIPPED, SKIPPED, False, Verdict.LEFT_OUT),
        (SKIPPED, PASSED, False, Verdict.FAILED),
        (PASSED, FAILED, True, Verdict.EXCEPTED),
        (PASSED, SKIPPED, True, Verdict.EXCEPTED),
        (PASSED, PASSED, True, Verdict.STALE),
        (FAILED, FAILED, True, Verdict.STALE),
        (SKIPPED, SKIPPED, True, Verdict.STALE),
    ],
)
def test_what_two_outcomes_say(control: Outcome, ours: Outcome, *, excepted: bool, verdict: Verdict) -> None:
    assert judge(control, ours, excepted=excepted) is verdict


def test_what_is_left_out_is_found_between_its_tags() -> None:
    pattern = re.compile(compute_pattern("Preemption (basic) validates it works"))

    assert pattern.search("[sig-x] Preemption (basic) [Serial] [Slow] validates it works [Conformance]")
    assert not pattern.search("[sig-x] Preemption (basic) validates it nearly works")
    assert not pattern.search("[sig-x] Preemption basic validates it works")


def test_a_spec_that_only_one_of_them_knows_is_a_fault() -> None:
    specs = make_result({"a": PASSED, "b": PASSED}, {"a": PASSED, "c": PASSED})["specs"]

    assert {spec["name"]: spec["verdict"] for spec in specs} == {"a": "passed", "b": "failed", "c": "failed"}


def test_the_page_has_a_row_for_each_spec_and_counts_them() -> None:
    excepted = next(iter(EXCEPTIONS))
    control = {"a": PASSED, "b": PASSED, "off": SKIPPED, excepted: PASSED}
    result = make_result(control, {"a": Outcome("passed", 2.4), "b": FAILED, "off": SKIPPED, excepted: SKIPPED})
    page = render_page(result)

    assert "| a | 0 | 2 | passes as with kube-scheduler |" in page
    assert "| b | 0 |  | **fails** |" in page
    assert "| off |  |  | not run: it skips itself on such a cluster |" in page
    assert f"| {excepted} | 0 |  | does not pass: {EXCEPTIONS[excepted]} |" in page
    assert "3 specs ran. kube-scheduler passes 3 of them. Of these fairbind passes 1,\nand 1 are on a list" in page
    assert "{" not in page


def test_specs_that_ran_again_take_the_place_of_theirs_and_say_when() -> None:
    recorded = make_result({"a": FAILED, "b": PASSED}, {"a": PASSED, "b": PASSED}) | {"day": "2026-01-01"}
    later = make_result({"a": PASSED, "b": SKIPPED}, {"a": PASSED, "b": SKIPPED}) | {"day": "2026-01-02"}
    result = renew(recorded, later)

    assert [spec["verdict"] for spec in result["specs"]] == ["passed", "passed"]
    assert "0 did not hold. Run again by themselves since: a (both, 2026-01-02)." in render_page(result)
    assert "Run again" not in render_page(recorded)


def test_pods_with_hooks_are_deleted_by_their_own_stage_alone() -> None:
    stages = [*yaml.safe_load_all(compute_stages(STAGES.read_text(encoding="utf-8")))]
    deleting = [
        {part["jq"]["key"]: part["jq"]["operator"] for part in stage["spec"]["selector"]["matchExpressions"]}
        for stage in stages
        if stage["spec"]["resourceRef"]["kind"] == "Pod" and stage["spec"]["steps"] == [{"delete": True}]
    ]

    assert [set(each) for each in deleting] == [{*deleting[0]}] * 2
    assert sorted(each[HOOK] for each in deleting) == ["DoesNotExist", "Exists"]


def test_a_reason_stands_beside_each_exception() -> None:
    assert all(len(why.split()) > 3 for why in EXCEPTIONS.values())
