"""Fairness numbers of policies and baselines: ``make fairness-table``, or ``fairness_table.py --help``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests")]

from fairness_table.main import main  # noqa: E402  the path comes first

if __name__ == "__main__":
    sys.exit(main())
