"""fairbind's filters against kube-scheduler's own: ``make differential``, or ``differential.py --help``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from differential.main import main  # noqa: E402  the path comes first

if __name__ == "__main__":
    sys.exit(main())
