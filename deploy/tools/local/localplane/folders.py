"""The folder of a plane, and the remains of planes that were killed.

A plane holds a lock in its folder as long as its process lives; the kernel gives the lock back however it ends. So a
folder without a holder is not in use: the next plane removes its bulk (etcd's data, keys), a day later the rest.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PREFIX = "fairbind-plane-"
LOCK_NAME = "lock"
LOG_LIFETIME_SECONDS = 24 * 3600
BIRTH_SECONDS = 60  # a folder this young may not have its lock yet


class FolderInUseError(RuntimeError):
    """Another plane lives in the folder."""


@dataclass(slots=True)
class PlaneFolder:
    """A folder held by this process. is_temporary: made by us, so removed by us."""

    path: Path
    is_temporary: bool
    lock: IO[str]

    @classmethod
    def make(cls, wanted: Path | None) -> PlaneFolder:
        """Make a temporary folder, or take the wanted one and empty it; raise FolderInUseError."""
        if wanted is None:
            remove_abandoned()
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
        else:
            path = wanted.absolute()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(path.iterdir()) and not (path / LOCK_NAME).exists():
                raise FolderInUseError(f"{path} is not empty and not a control plane's: choose another folder")
        lock = find_lock(path)
        if lock is None:
            raise FolderInUseError(f"another control plane lives in {path}; stop it first")
        folder = cls(path, wanted is None, lock)
        if wanted is not None:
            _remove_contents(path, keep_logs=False)
        return folder

    def remove(self, *, keep_logs: bool) -> None:
        """Give the folder back: all of it, or all but the logs."""
        if self.lock.closed:
            return
        _remove_contents(self.path, keep_logs=keep_logs)
        self.lock.close()
        if self.is_temporary and not keep_logs:
            shutil.rmtree(self.path, ignore_errors=True)


def find_lock(folder: Path) -> IO[str] | None:
    """Return the folder's lock, held, or None when another process holds it."""
    stream = (folder / LOCK_NAME).open("a")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stream.close()
        return None
    return stream


def remove_abandoned(parent: Path | None = None) -> None:
    """Remove what killed planes of this user left in the folder for temporary files."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        try:
            age_seconds = time.time() - folder.stat().st_mtime
            is_candidate = folder.is_dir() and folder.stat().st_uid == os.getuid() and age_seconds > BIRTH_SECONDS
            lock = find_lock(folder) if is_candidate else None
        except OSError:  # its owner removed it meanwhile
            continue
        if lock is not None:
            with lock:
                _remove_contents(folder, keep_logs=age_seconds < LOG_LIFETIME_SECONDS)
                if age_seconds > LOG_LIFETIME_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)


def _remove_contents(folder: Path, *, keep_logs: bool) -> None:
    kept = {LOCK_NAME, "logs"} if keep_logs else {LOCK_NAME}
    for entry in folder.iterdir():
        if entry.name in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
