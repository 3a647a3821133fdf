"""Karpenter beside fairbind: ``make exam-karpenter``, or ``exam.py --help``.

Karpenter listens on every address, so all programs run in a network of their own, as those of `make exam-frameworks`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from frameworks.exam import run_in_own_network  # noqa: E402  the path comes first
from karpenter.conftest import ASKED, KARPENTER  # noqa: E402  the same
from localplane.tools import find_module_folder  # noqa: E402  the same

if __name__ == "__main__":
    find_module_folder(KARPENTER.name, KARPENTER.module)
    run_in_own_network(__doc__, Path(__file__).parent, ASKED, [KARPENTER.name])
