"""``make release``: everything that a release consists of, in dist/release. Run by the interpreter of `.venv`."""

from __future__ import annotations

import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TOOLS), str(TOOLS / "local"), str(TOOLS / "kind")]  # instead of this folder

from release import program  # noqa: E402  the path comes first

if __name__ == "__main__":
    sys.exit(program.main())
