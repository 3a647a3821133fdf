from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fairbind.cli import main
from fairbind.cli.advice import format_advice
from fairbind.what_if.advice import Advice, Loss
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_two_tenants
from what_if.test_advice import make_example


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_table_has_all_policies_and_the_recommendation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", write(tmp_path, format_snapshot(make_example()))]) == 0
    shown = capsys.readouterr().out

    assert re.search(r"^tenant .*best-fit-drfh +ps-dsf", shown, flags=re.MULTILINE)
    assert re.search(r"^b +37\.6 +53\.3 +29%$", shown, flags=re.MULTILINE)
    said = " ".join(shown.split("\n\n")[0].split())
    assert said.startswith(
        "Recommended: ps-dsf (now best-fit-drfh): shares of totals hurt b: 37.6 pods in place of 53.3,"
    )


@pytest.mark.parametrize("losers", [2, 35])
def test_of_many_tenants_those_are_shown_that_lose_most(losers: int) -> None:
    names = [f"t{number:02}" for number in range(40)]
    losses = tuple(Loss(name, 0.1, 0.2, 0.5, 1.0, 2.0) for name in names[::-1][:losers])
    shares = dict.fromkeys(names, 0.01)
    advice = Advice("fifo", dict.fromkeys(names, 1.0), {"ps-dsf": shares}, {}, losses, "ps-dsf", "so")
    lines = format_advice(advice)

    first = next(number for number, line in enumerate(lines) if line.startswith("tenant ")) + 2
    table = [line.split()[0] for line in lines[first : first + 30]]
    assert table[: min(losers, 30)] == [loss.tenant for loss in losses[:30]]
    assert "30 of 40 tenants, those that lose most first; -o json has all" in lines
    assert ("30 of 35 that lose; -o json has all" in lines) == (losers == 35)


def test_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", write(tmp_path, format_snapshot(make_two_tenants())), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["recommendation"]["policy"] == "best-fit-drfh"
    assert found["losers"] == []


def test_a_file_that_is_no_snapshot_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", write(tmp_path, "[]")]) == 2
    assert re.fullmatch(r"fairbind: snapshot: must be an object with nodes and pods[^\n]*\n", capsys.readouterr().err)
