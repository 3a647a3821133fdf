"""Of which code a recorded result is, and how many commits have come since."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRIED = ("operator", "charts", "crds", "deploy", "tests")
"""What a result is of; the results of a run before do not count as a change."""


def read_commit(folder: Path = ROOT) -> str:
    """Return the commit of the code of a folder, with a plus where the code differs from it; "" when unknown."""
    git = ["git", "-C", str(folder)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *(f":/{name}" for name in TRIED)], check=False)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit.stdout.strip() + "+" * bool(changed.returncode)


def count_commits_since(commit: str, folder: Path = ROOT) -> int | None:
    """Return how many commits the present one is ahead of what `read_commit` gave; None when that is unknown.

    A page says so of the moment in which it is written: later commits do not write it again.
    """
    range_of_commits = f"{commit.rstrip('+')}..HEAD"
    git = ["git", "-C", str(folder), "rev-list", "--count", range_of_commits, "--"]
    try:
        counted = subprocess.run(git, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(counted.stdout) if commit else None


def describe_age(commit: str, folder: Path = ROOT) -> str:
    """Return a commit as pages name it, with how many commits it lay behind as the page was written."""
    count = count_commits_since(commit, folder)
    if count is None:
        return commit
    return f"{commit}, {count:,} commit{'' if count == 1 else 's'} before this page was written"
