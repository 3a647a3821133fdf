from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fairbind
from fairbind.fairness.solvers.highs import make_silent_highs
from fairbind.fairness.solvers.maxmin.level_lp import make_highs


def test_highs_is_silent_before_it_is_told_of_callbacks(capfd: pytest.CaptureFixture[str]) -> None:
    highs = make_silent_highs()
    highs.addVariable(lb=0.0, ub=1.0, obj=-1.0)
    highs.run()
    assert capfd.readouterr().out == ""
    highs.setOptionValue("output_flag", True)
    highs.enableCallbacks()  # type: ignore[no-untyped-call]  # highspy has no types here
    assert not highs.getOptionValue("output_flag")[1]


def test_no_other_module_makes_a_highs_of_its_own() -> None:
    package = Path(fairbind.__file__).parent
    making = [path.name for path in package.rglob("*.py") if "highspy.Highs()" in path.read_text("utf-8")]
    assert making == []


def test_every_highs_has_as_many_threads_as_the_one_before() -> None:
    """The default is a half of the machine's cores in one version and all in another."""
    for make in (make_silent_highs, make_highs):
        assert make().getOptionValue("threads")[1] == 1


SEQUENCE = """
from fairbind.fairness.solvers.highs import make_silent_highs
from fairbind.fairness.solvers.maxmin.level_lp import make_highs

for make in (make_silent_highs, make_highs, make_silent_highs):
    highs = make()
    highs.addVariable(lb=0.0, ub=1.0, obj=-1.0)
    highs.run()
    print(highs.modelStatusToString(highs.getModelStatus()))
"""
"""In a process of its own, because the first one that runs in a process decides for the others."""


def test_one_solves_after_the_other() -> None:
    done = subprocess.run([sys.executable, "-c", SEQUENCE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Optimal"] * 3
