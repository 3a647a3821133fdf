"""Kubernetes' own end-to-end specs of scheduling: ``make exam-e2e``, or ``exam.py --help``.

See docs/reliability/exam.md for what is done and what it gave. The parts are beside this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from exam.main import main  # noqa: E402  the path comes first

if __name__ == "__main__":
    sys.exit(main())
