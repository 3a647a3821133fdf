"""make: lists its targets, and says in one line when Python is too old."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_help_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    listed = re.findall(r"^  make (\S+) +\S", make("help").stdout, re.MULTILINE)

    assert len(targets) > 10
    assert listed == targets


def test_nothing_but_help_by_default() -> None:
    assert make("--dry-run").stdout == make("--dry-run", "help").stdout


def test_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "old python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    outcome = make("install", f"PYTHON={old}")

    assert outcome.returncode == 2
    assert outcome.stderr.splitlines()[0].startswith("fairbind needs Python 3.11 or newer, and")
    assert str(old) in outcome.stderr


def test_no_target_takes_the_number_of_nodes_of_another() -> None:
    assert "--nodes" not in make("--dry-run", "bench").stdout
    assert '--nodes "7"' in make("--dry-run", "bench", "NODES=7").stdout
    assert '--nodes "1000"' in make("--dry-run", "adversary").stdout
    assert '--nodes "60"' in make("--dry-run", "local-up").stdout
