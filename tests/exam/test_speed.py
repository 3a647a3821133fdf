"""How results of throughput cases are kept and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exam.speed_main import check_renewable, compute_rounds, parse, renew, write, write_page
from exam.speed_report import (
    HEAD,
    PAGE,
    compute_mean,
    find_below,
    render_below,
    render_large,
    render_processors,
    render_spent,
    render_table,
)

Json = dict[str, Any]


def make_run(case: str, who: str, turn: int, seconds: float, bound: int = 100) -> Json:
    part = {"pods": 100, "bound": bound, "seconds": seconds}
    return {"case": case, "workload": "w", "contender": who, "turn": turn, "parts": [part]}


RESULT: Json = {
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"cores": 2},
    "versions": {"fairbind": "0.1.0 (abc)", "etcd": "3"},
    "runs": [
        make_run("SchedulingBasic", "fairbind", 0, 0.5),
        make_run("SchedulingBasic", "kube-scheduler", 0, 1.0),
        make_run("SchedulingBasic", "fairbind", 1, 0.25),
        make_run("Slow", "fairbind", 0, 2.0, bound=90),
        make_run("Slow", "kube-scheduler", 0, 1.0),
    ],
}


def read_table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_a_row_has_its_rounds_both_ratios_and_its_origin() -> None:
    rows = read_table(render_table(RESULT))

    assert rows[0] == HEAD
    origin = "2026-01-01 abc"
    assert rows[2] == ["SchedulingBasic", "2", "100", "300 (200 to 400)", "3.00", "100%", "100", origin]
    assert rows[3] == ["Slow", "1", "100", "45", "0.45", "15%", "fairbind: 90 of 100", origin]


def test_a_ratio_of_many_rounds_has_a_standard_error() -> None:
    runs = [make_run("Few", who, turn, 1.0 + turn) for who in ("fairbind", "kube-scheduler") for turn in range(3)]
    same = [make_run("Same", who, turn, 1.0) for who in ("fairbind", "kube-scheduler") for turn in range(3)]
    ratios = [row[4] for row in read_table(render_table({**RESULT, "runs": [*runs, *same]}))[2:]]

    # 100, 50 and 33 pods a second: the mean 61.1 has the standard error 20.0.
    assert ratios == ["1.00 ± 0.46", "1.00 ± 0.00"]


def test_cases_with_few_pods_have_more_rounds() -> None:
    assert [compute_rounds(pods) for pods in (0, 100, 126, 300, 501, 6_000)] == [8, 8, 8, 4, 2, 2]


def test_cases_that_are_played_again_take_the_place_of_recorded_ones_and_say_when() -> None:
    later = {
        **RESULT,
        "date": "2026-02-02T00:00:00+00:00",
        "versions": {"fairbind": "0.1.0 (def)", "etcd": "3"},
        "runs": [make_run("Slow", "fairbind", 0, 0.5), make_run("More", "fairbind", 0, 0.5)],
    }
    check_renewable(RESULT, later)
    once = renew(RESULT, later)
    rows = read_table(render_table(once))

    assert [(row[0], row[3], row[-1]) for row in rows[2:]] == [
        ("SchedulingBasic", "300 (200 to 400)", "2026-01-01 abc"),
        ("Slow", "200", "2026-02-02 def"),
        ("More", "200", "2026-02-02 def"),
    ]
    assert renew(once, later) == once
    assert "renewed" not in RESULT


def test_a_case_stands_beside_the_plain_case_of_its_commit() -> None:
    later = {
        **RESULT,
        "versions": {"fairbind": "0.1.0 (def)", "etcd": "3"},
        "runs": [make_run("SchedulingBasic", "fairbind", 0, 1.0), make_run("More", "fairbind", 0, 2.0)],
    }
    once = renew(RESULT, later)

    assert [row[5] for row in read_table(render_table(once))[2:]] == ["100%", "15%", "50%"]
    assert renew(once, later) == once
    all_later = renew(once, {**later, "runs": [make_run("Slow", "fairbind", 0, 4.0)]})
    assert [row[5] for row in read_table(render_table(all_later))[2:]] == ["100%", "25%", "50%"]
    assert all_later["plains"] == {}


@pytest.mark.parametrize("other", [{"machine": {"cores": 4}}, {"versions": {"fairbind": "0.1.0 (abc)", "etcd": "4"}}])
def test_figures_of_another_machine_or_other_programs_do_not_stand_beside_recorded_ones(other: Json) -> None:
    with pytest.raises(ValueError, match="play all cases"):
        check_renewable(RESULT, {**RESULT, **other})


@pytest.mark.parametrize(
    "arguments",
    [["--renew"], ["--renew", "--only=Slow", "--small"], ["--renew", "--only=Slow", "--output=/does/not/exist.json"]],
)
def test_only_some_cases_at_their_size_are_put_into_a_result_that_is_recorded(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)


def test_some_cases_are_written_only_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exam.speed_main.RESULTS", tmp_path / "exam.json")
    monkeypatch.setattr("exam.speed_main.PAGE", tmp_path / "exam.md")
    monkeypatch.setattr("exam.speed_main.LARGE_RESULTS", tmp_path / "large.json")
    monkeypatch.setattr("exam.speed_main.render_page", lambda result, _large: render_table(result))
    recorded = tmp_path / "exam.json"
    recorded.write_text(json.dumps(RESULT), encoding="utf-8")
    later = {**RESULT, "runs": [make_run("Slow", "fairbind", 0, 0.5)]}
    options = [f"--output={recorded}", "--only=Slow"]

    write(parse(options), later)
    assert json.loads(recorded.read_text(encoding="utf-8")) == RESULT
    write(parse([*options, "--renew"]), later)
    assert len(json.loads(recorded.read_text(encoding="utf-8"))["runs"]) == 4
    assert "SchedulingBasic" in (tmp_path / "exam.md").read_text(encoding="utf-8")
    write(parse([f"--output={recorded}"]), later)
    assert json.loads(recorded.read_text(encoding="utf-8")) == later


def test_where_the_time_of_a_case_goes_is_shown_where_it_creates_nodes() -> None:
    def make(who: str, turn: int, tried: float) -> Json:
        spent = {
            "create pods": {"seconds": 2.0, "bound": 0},
            "until tried": {"seconds": tried, "bound": 10},
            "create nodes": {"seconds": 1.0, "bound": 40},
            "until bound": {"seconds": 0.5, "bound": 50},
        }
        run = make_run("Nodes", who, turn, 3.5 + tried)
        return {**run, "parts": [{**run["parts"][0], "spent": spent}]}

    runs = [make("fairbind", 0, 1.0), make("fairbind", 1, 3.0), make("kube-scheduler", 0, 4.0), *RESULT["runs"]]
    rows = read_table(render_spent({**RESULT, "runs": runs}))

    assert rows[2:] == [
        ["the case creates pods", "2.0", "0", "2.0", "0"],
        ["until all have been tried", "4.0", "10", "2.0", "10"],
        ["the case creates nodes, until they are ready", "1.0", "40", "1.0", "40"],
        ["until all are bound", "0.5", "50", "0.5", "50"],
        ["pods/s of the last two", "60", "", "60", ""],
    ]


def test_time_in_which_a_case_changes_nodes_has_a_row_where_pods_are_bound_in_it() -> None:
    def make(who: str, bound: int) -> Json:
        spent = {"until tried": {"seconds": 2.0, "bound": 0}, "create nodes": {"seconds": 1.0, "bound": bound}}
        run = make_run("Nodes", who, 0, 10.0)
        return {**run, "parts": [{**run["parts"][0], "spent": spent}]}

    def find_rows(bound: int) -> list[list[str]]:
        runs = [make("fairbind", bound), make("kube-scheduler", bound), *RESULT["runs"]]
        return read_table(render_spent({**RESULT, "runs": runs}))[3:]

    pods = sum(part["bound"] for part in make("fairbind", 0)["parts"])
    assert find_rows(0)[1] == ["the case changes nodes", *["7.0", f"{pods:,}"] * 2]
    assert [row[0] for row in find_rows(pods)] == [
        "the case creates nodes, until they are ready",
        "pods/s of the last two",
    ]


def test_what_programs_took_of_the_processors_is_shown_where_a_case_is_far_below_the_plain_one() -> None:
    def use(seconds: float, **by_process: float) -> Json:
        return {"seconds": seconds, "busy": 0.5, "by_process": by_process}

    slow = [run for run in RESULT["runs"] if run["case"] == "Slow"]
    ours = [{**run, "cpu": use(10.0, etcd=2.0, fairbind=4.0)} for run in slow if run["contender"] == "fairbind"]
    theirs = [{**run, "cpu": use(20.0, etcd=9.0)} for run in slow if run["contender"] != "fairbind"]
    plain = [{**run, "cpu": use(1.0, etcd=1.0)} for run in RESULT["runs"] if run["case"] != "Slow"]
    rows = read_table(render_processors({**RESULT, "runs": [*plain, *ours, *theirs]}))
    ours_alone, theirs_alone = (compute_mean(RESULT, "Slow", who) for who in ("fairbind", "kube-scheduler"))

    assert rows[0] == ["Slow: seconds of all processors together, mean of a round", "kube-scheduler", "fairbind"]
    assert rows[2:] == [
        ["etcd", "9", "2"],
        ["fairbind", "", "4"],
        ["the round lasted, s", "20", "10"],
        ["of all processors, busy", "50%", "50%"],
        ["pods/s, if the scheduler took nothing", f"{theirs_alone:.0f}", f"{3 * ours_alone:.0f}"],
    ]
    assert render_processors({**RESULT, "runs": [*plain, *slow]}) == ""


def test_the_published_page_is_made_from_the_published_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exam.speed_main.PAGE", tmp_path / "exam.md")
    write_page()

    assert PAGE.read_text(encoding="utf-8") == (tmp_path / "exam.md").read_text(encoding="utf-8")


def test_a_large_cluster_has_a_section_of_its_own() -> None:
    section = render_large({**RESULT, "runs": RESULT["runs"][3:]})

    assert section.startswith("## On 5,000 nodes\n")
    assert "- Slow: 0.45 x kube-scheduler" in section
    assert section.endswith("| 2026-01-01 abc |\n\n")


def test_what_is_below_what_is_wanted_is_named() -> None:
    assert find_below(RESULT) == [
        ("Slow", "0.45 x kube-scheduler"),
        ("Slow", "15% of our plain case; kube-scheduler: 100% of its own"),
    ]
    assert "- Slow: 0.45 x kube-scheduler" in render_below(RESULT)
    assert render_below({**RESULT, "runs": RESULT["runs"][:3]}) == "All cases reach both."
