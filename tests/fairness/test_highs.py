from __future__ import annotations

from pathlib import Path

import pytest

import fairbind
from fairbind.fairness.solvers.highs import make_silent_highs


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
