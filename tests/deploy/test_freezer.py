"""Frozen containers are thawed, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

from kindcluster.freezer import STATE, thaw


def make_state(folder: Path, state: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / STATE
    path.write_text(f"{state}\n")
    return path


def test_what_is_frozen_in_a_container_is_thawed(tmp_path: Path) -> None:
    node = make_state(tmp_path / "one", "THAWED")
    frozen = make_state(tmp_path / "one" / "pods" / "a", "FROZEN")
    freezing = make_state(tmp_path / "one" / "pods" / "b", "FREEZING")
    other = make_state(tmp_path / "two", "FROZEN")
    before = node.stat().st_mtime_ns
    thaw(["one", "not there"], tmp_path)
    assert frozen.read_text() == freezing.read_text() == "THAWED\n"
    assert node.stat().st_mtime_ns == before
    assert other.read_text() == "FROZEN\n"


def test_what_may_not_be_thawed_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "one" / STATE).mkdir(parents=True)  # cannot be read as a file
    thaw(["one"], tmp_path)
    assert (tmp_path / "one" / STATE).is_dir()
