"""Computes a cell, and keeps finished ones in a folder.

A cell's result is a text that depends on the cell alone, and not on where and when it is computed. It is kept in a file
of the cell's key, which appears whole or not at all. A file that says something else than it should counts as missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fairbind import __version__
from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.scenario import Scenario
from fairbind.simulator.workload import draw_workload
from fairbind.what_if.reading import NANOSECONDS

CELLS_FOLDER: Final = "cells"


def compute_cell(text: str, policy: str, seed: int) -> str:
    """Return the result of a cell as JSON on one line. text: its scenario's JSON."""
    scenario = replace(_parse(text), policies=(policy,), seed=seed)
    run = simulate(scenario, draw_workload(scenario), policy)
    result = {
        "fairbind": __version__,
        "policy": policy,
        "seed": seed,
        "end": run.end / NANOSECONDS,
        "summary": run.summary,
    }
    return json.dumps(result, allow_nan=False)


@lru_cache(maxsize=1)
def _parse(text: str) -> Scenario:
    """Read a scenario; most cells that follow each other have the same."""
    return parse_scenario(json.loads(text))


class CellFolder:
    """The finished cells in a folder, by their keys."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / CELLS_FOLDER

    def create(self) -> None:
        """Make the folder where it is missing. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def read(self, key: str) -> Mapping[str, Any] | None:
        """Return the summary of a finished cell; None when there is none."""
        try:
            found = json.loads(self._find(key).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        is_whole = isinstance(found, dict) and found.get("key") == key and isinstance(found.get("summary"), dict)
        return found["summary"] if is_whole else None

    def write(self, key: str, result: str) -> None:
        """Keep a cell's result."""
        path = self._find(key)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        content = json.dumps({"key": key, **json.loads(result)}, indent=1, allow_nan=False)
        partial.write_text(f"{content}\n", encoding="utf-8")
        partial.replace(path)

    def _find(self, key: str) -> Path:
        return self._folder / f"{key}.json"
