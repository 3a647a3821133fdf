"""A plane's folder: held while it lives, cleared when its holder is gone, and nobody else's folder is touched."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from localplane.folders import LOG_LIFETIME_SECONDS, PREFIX, FolderInUseError, PlaneFolder, remove_abandoned

if TYPE_CHECKING:
    from pathlib import Path


def make_remains(parent: Path, age_seconds: float) -> Path:
    folder = parent / f"{PREFIX}old"
    (folder / "logs").mkdir(parents=True)
    (folder / "etcd").mkdir()
    (folder / "logs" / "etcd.log").touch()
    then = time.time() - age_seconds
    os.utime(folder, (then, then))
    return folder


def test_folder_is_held_by_one() -> None:
    folder = PlaneFolder.make(None)

    with pytest.raises(FolderInUseError, match="another control plane lives in"):
        PlaneFolder.make(folder.path)
    folder.remove(keep_logs=False)
    assert not folder.path.exists()


def test_logs_are_kept_when_asked(tmp_path: Path) -> None:
    folder = PlaneFolder.make(tmp_path / "plane")
    (folder.path / "logs").mkdir()
    (folder.path / "etcd").mkdir()
    folder.remove(keep_logs=True)

    assert (tmp_path / "plane" / "logs").exists()
    assert not (tmp_path / "plane" / "etcd").exists()


def test_a_folder_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()

    with pytest.raises(FolderInUseError, match="not empty and not a control plane's"):
        PlaneFolder.make(tmp_path)
    assert (tmp_path / "precious").exists()


def test_own_folder_is_taken_again_and_emptied(tmp_path: Path) -> None:
    first = PlaneFolder.make(tmp_path)
    (tmp_path / "etcd").mkdir()
    first.lock.close()  # as if it had been killed
    second = PlaneFolder.make(tmp_path)

    assert not (tmp_path / "etcd").exists()
    second.remove(keep_logs=False)


@pytest.mark.parametrize(
    ("age_seconds", "has_bulk", "has_logs"),
    [(1.0, True, True), (600.0, False, True), (LOG_LIFETIME_SECONDS + 60.0, False, False)],
)
def test_remains_of_killed_planes_go(tmp_path: Path, age_seconds: float, *, has_bulk: bool, has_logs: bool) -> None:
    remains = make_remains(tmp_path, age_seconds)
    remove_abandoned(tmp_path)

    assert (remains / "etcd").exists() is has_bulk
    assert (remains / "logs" / "etcd.log").exists() is has_logs


def test_a_living_plane_keeps_its_folder(tmp_path: Path) -> None:
    remains = make_remains(tmp_path, 1.0)
    (remains / "lock").touch()
    held = PlaneFolder.make(remains)
    (remains / "etcd").mkdir()
    os.utime(remains, (0, 0))
    remove_abandoned(tmp_path)

    assert (remains / "etcd").exists()
    held.remove(keep_logs=False)
