"""What a release is made of: the commit that is checked out, and nothing that lies beside it."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from release.failures import ReleaseError

LAST_WORDS_LINES = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that is released. epoch: when it was made, in seconds, which is the time of all that is made of it."""

    revision: str
    epoch: int


def find_commit(root: Path, *, allow_changes: bool = False) -> Commit:
    """Return the commit that is checked out; ReleaseError where files differ from it, unless that is allowed."""
    changed = run(["git", "status", "--porcelain"], root).splitlines()
    if changed and not allow_changes:
        files = ", ".join(line[3:] for line in changed[:5])
        raise ReleaseError(f"a release is made of a commit, and these files differ from it: {files}")
    revision, epoch = run(["git", "log", "-1", "--format=%H %ct"], root).split()
    return Commit(revision, int(epoch))


def export_tree(root: Path, target: Path, commit: Commit) -> None:
    """Write the files of a commit to a folder that does not exist yet."""
    words = ["git", "-c", "tar.umask=0022", "archive", "--format=tar", commit.revision]
    done = subprocess.run(words, cwd=root, capture_output=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"git archive failed: {done.stderr.decode(errors='replace').strip()}")
    target.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")


def run(words: list[str], folder: Path, **settings: str) -> str:
    """Run a program and return what it prints; ReleaseError with its last words when it fails.

    settings: more environment variables. Those that would let Python find other modules are left out.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment | settings, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise ReleaseError(f"{words[0]} cannot be started: {error}") from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-LAST_WORDS_LINES:]
        raise ReleaseError(f"{' '.join([Path(words[0]).name, *words[1:3]])} failed: " + "\n".join(last))
    return done.stdout
