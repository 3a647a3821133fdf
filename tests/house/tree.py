"""The project's own files, as the gates see them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = frozenset({"build", "dist", "node_modules"})


def find_files(*patterns: str) -> list[Path]:
    """Return the tracked files that match one of the patterns (as `git ls-files` reads them), sorted.

    Outside a git checkout (a source archive) everything in the tree counts but hidden and generated folders.
    """
    if (ROOT / ".git").exists():
        # The owner may differ inside a container; git must not refuse because of that.
        command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--", *patterns]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        return sorted(path for name in listed if name and (path := ROOT / name).is_file())
    found = {path for pattern in patterns for path in ROOT.rglob(pattern.removeprefix(":(glob)")) if path.is_file()}
    return sorted(path for path in found if not _is_generated(path.relative_to(ROOT)))


def name_of(path: Path) -> str:
    """Return how a message names a file."""
    return path.relative_to(ROOT).as_posix()


def _is_generated(path: Path) -> bool:
    return any(part in GENERATED or (part.startswith(".") and part != ".ci") for part in path.parts)
