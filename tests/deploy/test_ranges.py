"""A lock is what each change is tested with, a range is what is installed: both ends of the ranges are tested, too."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import ranges

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
UV = """#!/bin/sh
for word; do case "$word" in --output-file=*)
  printf 'click==8.2.0\\nhighspy==1.11.0\\n' > "${word#--output-file=}";; esac; done
echo "$*" >> "$CALLS"
"""


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in uv's place, which resolves to click 8.2 and highspy 1.11; return the file of its calls."""
    (tmp_path / "uv").write_text(UV, encoding="utf-8")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setattr(ranges, "BIN", tmp_path)
    monkeypatch.setattr(ranges, "FOLDER", tmp_path / "ranges")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def make_project(*dependencies: str) -> dict[str, object]:
    return {
        "dependencies": list(dependencies),
        "optional-dependencies": {"plot": [], "simulate": [], "distributed": []},
    }


def test_a_bound_that_no_resolver_gives_is_refused(uv: Path) -> None:
    ranges.resolve(ranges.OLDEST, sys.executable, make_project("click>=8.2", "highspy>=1.11"))

    with pytest.raises(
        ranges.RangeError, match=r"do not: click>=8\.1 should say >=8\.2\.0; highspy should say >=1\.11\.0$"
    ):
        ranges.resolve(ranges.OLDEST, sys.executable, make_project("click>=8.1", "highspy"))
    ranges.resolve(ranges.NEWEST, sys.executable, make_project("click>=8.1"))
    assert "--resolution=lowest-direct" in uv.read_text(encoding="utf-8").splitlines()[0]
    assert "--resolution=highest" in uv.read_text(encoding="utf-8").splitlines()[-1]


def test_versions_are_compared_and_not_texts() -> None:
    versions = {"python-json-logger": Version("3.0.0")}

    assert ranges.find_untrue_bounds([Requirement("python_json_logger>=3")], versions) == []


def test_an_environment_has_its_versions_and_fairbind_of_this_tree(uv: Path) -> None:
    lock = ranges.resolve(ranges.NEWEST, sys.executable, make_project("click>=8.1"))
    python = ranges.install(ranges.NEWEST, sys.executable, lock)

    made, filled, ours = uv.read_text(encoding="utf-8").splitlines()[1:]
    assert made.startswith("venv ")
    assert f"--python={python} --extra=dev --extra=plot" in filled
    assert f"--constraint={lock}" in filled
    assert ours.endswith(f"--no-deps --editable {ROOT}")


def test_every_bound_of_the_product_is_one_lower_bound() -> None:
    for requirement in ranges.find_direct(PROJECT):
        assert [each.operator for each in requirement.specifier] == [">="], str(requirement)


def test_the_oldest_python_is_the_one_that_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in PATH that does not run, as a shim for another version, is passed over."""
    for name, text in {"python3.14": "exit 127", "python3.12": "echo twelve", "python3.11": "echo eleven"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ranges.find_python(ranges.OLDEST, None, ">=3.11") == "eleven"
    assert ranges.find_python(ranges.NEWEST, None, ">=3.11") == "twelve"
    (tmp_path / "python3.11").unlink()
    with pytest.raises(ranges.RangeError, match=r"python3\.11 does not run here: name one with make ranges OLDEST="):
        ranges.find_python(ranges.OLDEST, None, ">=3.11")
    with pytest.raises(ranges.RangeError, match="not one lower bound"):
        ranges.find_python(ranges.OLDEST, None, ">=3.11,<4")


def test_a_side_that_fails_does_not_hide_the_other(
    uv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranges, "find_direct", lambda _: [Requirement("click>=8.1")])
    monkeypatch.setattr(ranges, "is_passing", lambda *_: True)

    assert ranges.main([f"--newest={sys.executable}", f"--oldest={sys.executable}"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "ranges that failed: oldest"
    assert uv.exists()


def test_each_night_and_each_release_tests_them() -> None:
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8")
    nightly, release = (
        yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))["jobs"]
        for name in ("nightly", "release")
    )

    assert "$(MAKE) --no-print-directory ranges || status=1" in recipes[recipes.index("\nnightly:") :]
    assert "make ranges" in [step.get("run") for step in release["ranges"]["steps"]]
    assert "ranges" in release["release"]["needs"]
    for job in (nightly["nightly"], release["ranges"]):
        [python] = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
        assert python["with"]["python-version"].split() == ["3.11", "3.13"]
