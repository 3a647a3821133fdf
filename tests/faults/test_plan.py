"""The same seed gives the same faults, all kinds come, and the page says what became of them."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

from e2e.modes import MODES
from faults.kinds import KINDS
from faults.main import find_done, make_head, make_parser
from faults.plan import LONGEST_IN_CI_SECONDS, NEVER_TOGETHER, draw
from faults.report import make_page, make_table, read_lines
from recorded import read_commit

if TYPE_CHECKING:
    from pathlib import Path


COUNT = 600


def test_a_fault_depends_on_the_seed_and_its_number_alone() -> None:
    backwards = [draw(7, number, is_short=False) for number in reversed(range(20))]

    assert [draw(7, number, is_short=False) for number in range(20)] == backwards[::-1]
    assert draw(7, 0, is_short=False) != draw(8, 0, is_short=False)


def test_every_kind_comes_and_none_lasts_too_long() -> None:
    drawn = [draw(1, number, is_short=False) for number in range(COUNT)]
    counts = Counter(fault.kind.name for one in drawn for fault in one.faults)

    assert counts.keys() == {kind.name for kind in KINDS}
    assert min(counts.values()) >= 5
    assert all(one.seconds <= fault.kind.longest for one in drawn for fault in one.faults)
    assert all({fault.kind.group for fault in one.faults} != NEVER_TOGETHER for one in drawn)
    assert {len(one.faults) for one in drawn} == {1, 2}


def test_short_ones_are_short_and_leave_out_what_cannot_be() -> None:
    drawn = [draw(1, number, is_short=True, without={"latency"}) for number in range(50)]
    names = {fault.kind.name for one in drawn for fault in one.faults}

    assert max(one.seconds for one in drawn) <= LONGEST_IN_CI_SECONDS
    assert names == {kind.name for kind in KINDS if kind.weights[1]} - {"latency"}


def make_line(number: int, kind: str, verdict: str, **fields: Any) -> dict[str, Any]:
    line = {"number": number, "kind": kind, "settings": [{}], "at": 10.0 * number, "seconds": 2.0, "steady": 1.0}
    return {**line, "stalls": 0.5, "binds": 4, "changes": 1, "found": [], "verdict": verdict, **fields}


def test_the_page_counts_each_kind_and_lists_what_did_not_hold(tmp_path: Path) -> None:
    lines = [
        make_line(0, "latency + frozen", "held"),
        make_line(1, "latency", "late", steady=40.0),
        make_line(2, "killed", "never steady", steady=None, missing=["red/p fits on n1", "red/q fits on n1"]),
        make_line(3, "frozen", "broken", found=["red/p was bound twice"]),
    ]
    results = tmp_path / "faults.jsonl"
    head = {"seed": 5, "day": "2026-01-01", "short": False}
    results.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)), encoding="utf-8")

    page = make_page(*read_lines(results), "results/faults.jsonl")

    assert "| latency | 2 | 1 | 1 | 0 | 0 | 20.5 | 40.0 |" in page
    assert "| frozen | 2 | 1 | 0 | 0 | 1 | 1.0 | 1.0 |" in page
    assert "- 2 of seed 5 in bind mode, killed: not steady after three minutes; to the last, red/p fits on n1\n" in page
    assert "- 3 of seed 5 in bind mode, frozen: red/p was bound twice" in page
    assert "4 faults in 1 minutes, with 16 bindings" in page
    assert "| bind | 5 | 0 to 3 | 2026-01-01 |  |  | 4 | 1 | 1 | 13.0 |  |" in page
    assert "Pods bound twice: 1." in page
    assert "{" not in make_table(lines)


def test_a_file_has_the_faults_of_several_runs(tmp_path: Path) -> None:
    results = tmp_path / "faults.jsonl"
    first, second, third = ({"seed": seed, "day": "2026-01-01", "commit": f"x{seed}"} for seed in (5, 6, 7))
    third |= {"other": "x6", "mode": "gate", "commit": read_commit().rstrip("+")}
    lines = [first, make_line(1, "latency", "late"), make_line(0, "killed", "held"), second, third]
    lines.append(make_line(0, "frozen", "late", steady=40.0))
    results.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    heads, faults = read_lines(results)

    assert [head["seed"] for head in heads] == [5, 7], "a run without any fault says nothing"
    assert [(fault["mode"], fault["seed"], fault["number"]) for fault in faults] == [
        ("bind", 5, 1),
        ("bind", 5, 0),
        ("gate", 7, 0),
    ]
    page = make_page(heads, faults, "results/faults.jsonl")
    assert "| bind | 5 | 0 to 1 | 2026-01-01 | x5 |  | 2 | 1 |" in page
    assert f"| gate | 7 | 0 to 0 | 2026-01-01 | {third['commit']} beside x6 | 0 | 1 | 0 |" in page
    assert "2 of the first 2 of seed 5 in bind mode; 1 of the first 1 of seed 7 in gate mode" in page
    assert "- 0 of seed 7 in gate mode, frozen: steady after 40.0 s" in page


def test_a_later_run_adds_what_is_missing_of_its_mode_and_seed(tmp_path: Path) -> None:
    results = tmp_path / "faults.jsonl"
    heads = [{"seed": 5}, {"seed": 5, "mode": "gate"}, {"seed": 6, "mode": "gate"}, {"seed": 5, "mode": "gate"}]
    lines = [part for number, head in enumerate(heads) for part in (head, make_line(number, "latency", "held"))]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    assert [find_done(results, 5, mode) for mode in MODES] == [{0}, {1, 3}, set()]
    assert find_done(results, 6, "gate") == {2}


def test_a_run_says_which_other_version_it_had_as_the_draw_depends_on_it(tmp_path: Path) -> None:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(tmp_path)]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*command, *arguments], check=True)
    commit = read_commit(tmp_path)
    head = make_head(make_parser().parse_args([f"--other={tmp_path}", "--seed=4", "--only=clock", "--mode=gate"]))
    assert head["mode"] == "gate"
    assert (head["seed"], head["only"], head["other"]) == (4, "clock", commit)
    assert make_head(make_parser().parse_args([]))["other"] == ""
