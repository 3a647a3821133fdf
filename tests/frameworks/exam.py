"""Operators that people have, with fairbind: ``make exam-frameworks``, or ``exam.py --help``.

Some of these operators listen on every address and on fixed ports, whatever their flags say. So all programs run in a
network of their own, which has nothing but loopback. What needs the network outside, builds and downloads, comes first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "deploy" / "tools" / "local")]

from frameworks.emitters import SOURCES  # noqa: E402  the path comes first
from localplane.tools import DEFAULT, FRAMEWORKS, ensure_tools, find_module_folder  # noqa: E402  the same

ASKED = "FAIRBIND_FRAMEWORKS"
"""Set where pytest may collect these tests."""
OWN_NETWORK = ("unshare", "--net", "--map-root-user")


def run_in_own_network(description: str, folder: Path, asked: str, programs: Sequence[str]) -> None:
    """Build what is missing and run the tests of a folder in a network of their own, in the place of this process.

    asked: the variable that is set where pytest may collect them. programs: of others, besides a control plane's.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", metavar="EXPRESSION", default="", help="pytest's expression that chooses tests")
    arguments = parser.parse_args()
    ensure_tools([*DEFAULT, "kubectl", *programs])
    if shutil.which(OWN_NETWORK[0]) is None:
        sys.exit("these programs listen on all addresses, so they need a network of their own: install unshare")
    chosen = ["-k", arguments.only] if arguments.only else []
    options = ["-v", "-p", "no:xdist", "--timeout=1800", str(folder), *chosen]
    command = [*OWN_NETWORK, sys.executable, "-m", "pytest", *options]
    os.execvpe(command[0], command, {**os.environ, asked: "yes"})


if __name__ == "__main__":
    for module, path in SOURCES:
        find_module_folder(module, path)
    run_in_own_network(__doc__, Path(__file__).parent, ASKED, FRAMEWORKS)
