"""The layers are enforced, not just drawn: the contracts hold, and each of them notices the import that it forbids."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = "Layers: dependencies point inward"
FAIRNESS = "Fairness: properties ask solve, which asks mechanisms, which ask solvers, which know problems"
SOLVERS = "Fairness: solver families are independent, but PS-DSF may start from a market"
INNER = "The inner packages do no I/O, read no clock, draw no randomness and log nothing"
KOPF = "kopf appears only in kube.handlers"
METRICS = "Only web serves metrics"

FORBIDDEN = [
    ("scheduling/probe.py", "import time", INNER),
    ("scheduling/probe.py", "from random import random", INNER),
    ("scheduling/probe.py", "import kubernetes", INNER),
    ("model/probe.py", "import logging", INNER),
    ("model/probe.py", "from pathlib import Path", INNER),
    ("model/probe.py", "import fairbind.scheduling", LAYERS),
    ("scheduling/probe.py", "from fairbind import kube", LAYERS),
    ("kube/probe.py", "import fairbind.web", LAYERS),
    ("web/probe.py", "from fairbind.kube import probe", LAYERS),
    ("kube/probe.py", "def late() -> None:\n    import fairbind.cli", LAYERS),
    ("kube/probe.py", "import kopf", KOPF),
    ("web/probe.py", "from kopf import on", KOPF),
    ("kube/probe.py", "import prometheus_client", METRICS),
    ("newcomer/__init__.py", "", LAYERS),
    ("fairness/problems/probe.py", "import fairbind.fairness.solvers.warm", FAIRNESS),
    ("fairness/solvers/market/probe.py", "from fairbind.fairness.mechanisms.registry import MECHANISMS", FAIRNESS),
    ("fairness/mechanisms/probe.py", "from fairbind.fairness import solve", FAIRNESS),
    ("fairness/solve.py", "import fairbind.fairness.properties", FAIRNESS),
    ("fairness/newcomer/__init__.py", "", FAIRNESS),
    ("fairness/solvers/market/probe.py", "import fairbind.fairness.solvers.psdsf.server_filling", SOLVERS),
    ("fairness/solvers/maxmin/probe.py", "import fairbind.fairness.solvers.psdsf.server_filling", SOLVERS),
    ("fairness/solvers/psdsf/probe.py", "import fairbind.fairness.solvers.maxmin.lexicographic", SOLVERS),
    ("fairness/solvers/market/probe.py", "import fairbind.fairness.solvers.maxmin.lexicographic", SOLVERS),
    ("fairness/solvers/newcomer/__init__.py", "", SOLVERS),
]


@pytest.fixture
def copied_source(tmp_path: Path) -> Path:
    """A source root that a test may spoil, with a stub for the outermost layer where it is not written yet."""
    source = tmp_path / "operator"
    shutil.copytree(ROOT / "operator" / "fairbind", source / "fairbind", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("kube/probe.py", "web/probe.py", "cli.py"):
        (source / "fairbind" / name).touch()
    return source


def check_contracts(source: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over a source root with the project's own contracts."""
    program = (
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "pyproject.toml")],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_contracts_hold(copied_source: Path) -> None:
    outcome = check_contracts(copied_source)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert all(f"{name} KEPT" in outcome.stdout for name in (LAYERS, FAIRNESS, SOLVERS, INNER, KOPF, METRICS))


@pytest.mark.parametrize(("path", "line", "contract"), FORBIDDEN)
def test_forbidden_import_is_found(copied_source: Path, path: str, line: str, contract: str) -> None:
    spoiled = copied_source / "fairbind" / path
    spoiled.parent.mkdir(exist_ok=True)
    spoiled.write_text(f"{line}\n", encoding="utf-8")

    outcome = check_contracts(copied_source)

    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert f"{contract} BROKEN" in outcome.stdout
    assert spoiled.stem.replace("__init__", "newcomer") in outcome.stdout.split("Broken contracts")[1]
