"""The programs that `make` runs start as it starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from house.tree import ROOT

CALL = re.compile(r"(?:PYTHONPATH=(\S+) )?(?:exec )?\$\(VENV\)/python (tests/\S+\.py)")
CALLS = sorted(set(CALL.findall((ROOT / "Makefile").read_text(encoding="utf-8"))))


def test_there_are_programs() -> None:
    assert len(CALLS) > 15


@pytest.mark.parametrize(("path", "script"), CALLS)
def test_a_program_says_what_it_takes(path: str, script: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": path} if path else {}
    shown = subprocess.run(
        [sys.executable, script, "--help"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert shown.returncode == 0, shown.stderr
    assert "usage" in shown.stdout
