"""What CI leaves to the nights: it says how much, and the nights run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gates
from house.tree import ROOT
from localplane.tools import ensure_tools
from seeds import SEED_VARIABLE, draw_seeds

CONFTEST = ROOT / "tests" / "conftest.py"
PROBE = """
import pytest

@pytest.mark.nightly
def test_long(): assert False

@pytest.mark.nightly
@pytest.mark.needs_tools
def test_long_with_programs(): assert False

@pytest.mark.needs_tools
def test_with_programs(): pass

@pytest.mark.slow
def test_slow(): pass

def test_short(): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "workers"),
    [(gates.COMPUTING[0], "0"), (gates.COMPUTING[1], "0"), (gates.WITH_PROGRAMS, "0"), (gates.WITH_PROGRAMS, "1")],
    ids=lambda given: getattr(given, "name", given),
)
def test_a_stage_leaves_them_out_and_says_so(tmp_path: Path, stage: gates.Stage, workers: str) -> None:
    probe = tmp_path / "tests" / "model" / "test_probe.py"  # branches are counted of what is there
    probe.parent.mkdir(parents=True)
    probe.write_text(PROBE, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    words = ["-m", stage.marker, "-n", workers, "-q", "-p", "no:cacheprovider", f"-c{ROOT / 'pyproject.toml'}"]

    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "1 passed" in outcome.stdout
    assert "NOT RUN: 2 tests that take minutes: make nightly runs them" in outcome.stdout


def test_a_test_without_the_mark_gets_no_program() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"etcd .* marked needs_tools"):
        ensure_tools(["etcd"])


def test_the_nights_have_other_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    assert draw_seeds(3) == range(3)

    monkeypatch.setenv(SEED_VARIABLE, "1764000000")
    assert draw_seeds(3) == range(1764000000, 1764000003)


def test_the_nights_run_them() -> None:
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert "$(PYTEST) -n 2 -m nightly" in recipes
    assert "HYPOTHESIS_PROFILE=nightly $(PYTEST)" in recipes
    assert '--hypothesis-seed="$$seed"' in recipes
    assert '--randomly-seed="$$seed"' in recipes
    assert f'export {SEED_VARIABLE}="$$seed"' in recipes
    assert "make nightly" in (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
