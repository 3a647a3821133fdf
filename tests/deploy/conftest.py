"""Programs that stand in for kind, helm, kubectl and docker and write down how they are called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from localplane.tools import Tools

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "$NOTES"
case "$1 $2" in "$FAILING") echo "it did not work" >&2; exit 1;; esac
case "$1 $2" in "$SLOW") exec sleep 1000;; esac
case "$1 $2" in "get nodes"|"events --all-namespaces"|"inspect --format="*) echo "$ANSWER";; esac
case "$1 $3" in "exec cat") echo "$FLAGS";; esac
"""


@dataclass(frozen=True, slots=True)
class StandIns:
    """Programs in a folder, and what they were called with."""

    folder: Path

    def calls(self) -> list[str]:
        notes = self.folder / "notes"
        return notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []

    @property
    def tools(self) -> Tools:
        """Kind, helm and kubectl as the driver takes them."""
        return Tools(dict.fromkeys(("kind", "cluster", "kubernetes"), self.folder))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    for name in ("kind", "helm", "kubectl", "docker"):
        (tmp_path / name).write_text(STAND_IN, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("FAILING", "none")
    monkeypatch.setenv("SLOW", "none")
    return StandIns(tmp_path)
