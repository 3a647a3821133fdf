"""A build takes a module of others with our files in it, and the original stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from localplane.additions import add_files

PINS = """module ours

require (
\texample.com/api v1.0.0
\texample.com/other v1.2.0
)

replace (
\texample.com/api => example.com/api v1.0.0
\texample.com/other => example.com/other v1.2.0
)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "go.mod").write_text(PINS)
    (folder / "go.sum").write_text("sums")
    return folder


def test_without_files_of_ours_a_build_is_as_it_is(module: Path, tmp_path: Path) -> None:
    def find(path: str) -> Path:
        pytest.fail(path)

    assert add_files(module, tmp_path / "place", find) == []


def test_a_copy_has_both_and_only_that_module_is_another(module: Path, tmp_path: Path) -> None:
    original = tmp_path / "kept" / "api"
    (original / "v1").mkdir(parents=True)
    (original / "v1" / "types.go").write_text("theirs")
    (original / "v1" / "types.go").chmod(0o444)
    (original / "v1").chmod(0o555)
    (module / "added" / "example.com" / "api" / "v1").mkdir(parents=True)
    (module / "added" / "example.com" / "api" / "v1" / "more.go").write_text("ours")

    for _ in range(2):  # a build that was broken off leaves its copy
        (flag,) = add_files(module, tmp_path / "a place", {"example.com/api": original}.__getitem__)

    pinned = Path(flag.removeprefix("-modfile="))
    copy = pinned.parent / "example.com" / "api"
    files = {file.name: file.read_text() for file in (copy / "v1").iterdir()}
    assert files == {"types.go": "theirs", "more.go": "ours"}
    assert pinned.read_text() == PINS.replace("=> example.com/api v1.0.0", f'=> "{copy}"')
    assert pinned.with_suffix(".sum").read_text() == "sums"
    assert [file.name for file in (original / "v1").iterdir()] == ["types.go"]
