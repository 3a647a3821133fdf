"""The tutorial's scenario gives what the tutorial shows."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from fairbind.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulate.md"


def find_block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_the_tutorial_shows_what_comes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *shown = find_block("console").splitlines()
    monkeypatch.chdir(tmp_path)
    Path("late-tenant.yaml").write_text(find_block("yaml"), encoding="utf-8")

    assert main([*command.split()[2:], "--tables", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == shown
    with Path("late/shares.csv").open(encoding="utf-8", newline="") as file:
        last = {(row["policy"], row["tenant"]): row for row in csv.DictReader(file)}
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    running = {
        policy: [int(last[policy, tenant]["running"]) for tenant in "ab"] for policy in ("best-fit-drfh", "ps-dsf")
    }
    assert "`a` has {} pods and `b` has {} at the end under `best-fit-drfh`".format(*running["best-fit-drfh"]) in text
    assert "Under `ps-dsf` they have {} and {}.".format(*running["ps-dsf"]) in text
    assert f"below its fair share of {float(last['ps-dsf', 'b']['fair_share']):.2f}" in text
