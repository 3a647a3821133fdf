from __future__ import annotations

from pathlib import Path

import pytest

import docs
from fairbind.web.metric_specs import METRICS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_committed_references_are_what_the_code_says() -> None:
    for path, text in docs.compute_outputs(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python deploy/tools/docs.py"


def test_every_metric_and_every_label_value_is_explained() -> None:
    page = docs.compute_metrics_page()
    for spec in METRICS:
        assert f"| `{spec.name}` | {spec.kind} |" in page


def test_the_help_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = docs.compute_command_page()
    monkeypatch.setenv("COLUMNS", "200")
    assert docs.compute_command_page() == narrow


def test_drift_is_found_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--root", str(tmp_path)]) == 0
    assert docs.main(["--check", "--root", str(tmp_path)]) == 0
    (tmp_path / "docs" / "reference" / "cli.md").write_text("something else")
    assert docs.main(["--check", "--root", str(tmp_path)]) == 1
    assert "docs/reference/cli.md is out of date" in capsys.readouterr().err
