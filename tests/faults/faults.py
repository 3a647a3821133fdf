"""Seeded faults against a whole system: ``make faults N=1000 SEED=1``, or ``faults.py --help``.

See docs/reliability/faults.md for what is done and how it is judged. The parts are beside this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from faults.main import main  # noqa: E402  the path comes first

if __name__ == "__main__":
    sys.exit(main())
