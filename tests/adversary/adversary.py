"""What tenants and strangers try against a whole system: ``make adversary``, or ``adversary.py --help``.

See docs/reliability/adversary.md for what is done and how it is judged. The parts are beside this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from adversary.main import main  # noqa: E402  the path comes first

if __name__ == "__main__":
    sys.exit(main())
