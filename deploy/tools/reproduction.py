"""Do the papers' evaluations again and publish them in docs/reproduction.

python deploy/tools/reproduction.py                     all papers at the full scale; DRFH takes most of an hour
python deploy/tools/reproduction.py --small drfh        these papers at the small scale, the others at the full one
python deploy/tools/reproduction.py --only drbf         these papers; what is published of the others stays

Finished runs are kept in the user's cache folder, and are used again by the same code: after an interruption only what
had not finished is done.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import re
import sys
import time
from collections.abc import Hashable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fairbind.simulator.reproduction.drawing import draw
from fairbind.simulator.reproduction.outcome import Lab
from fairbind.simulator.reproduction.page import compute_markdown, write_table
from fairbind.simulator.reproduction.registry import PAPERS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reproduction"
sys.path.insert(0, str(ROOT / "deploy" / "tools" / "local"))

from localplane.tools import find_cache  # noqa: E402  the path comes first


class Kept(dict[Hashable, Any]):
    """What a lab has made, also as files of a folder, which outlive it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, key: Hashable) -> Any:
        try:
            found = pickle.loads(self._find_file(key).read_bytes())  # noqa: S301  the user's own cache
        except (FileNotFoundError, EOFError, pickle.UnpicklingError):  # an empty one is left when a machine stops
            raise KeyError(key) from None
        super().__setitem__(key, found)
        return found

    def __setitem__(self, key: Hashable, made: Any) -> None:
        super().__setitem__(key, made)
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._find_file(key).with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(pickle.dumps(made))
        unfinished.rename(self._find_file(key))
        print(f"{time.strftime('%H:%M:%S')} made {key}", flush=True)

    def _find_file(self, key: Hashable) -> Path:
        return self._folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.pickle"


def compute_digest() -> str:
    """Return what tells code that makes runs apart from other code, its libraries included."""
    digest = hashlib.sha256(" ".join([sys.version, *map(version, ("numpy", "scipy"))]).encode())
    for file in sorted((ROOT / "operator" / "fairbind").rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def publish(paper: str, folder: Path, *, is_full: bool) -> None:
    """Write a paper's tables and pictures, and its section of the page. folder: for runs."""
    lab = Lab(is_full, time.perf_counter, Kept(folder / (paper if is_full else f"{paper}-small")))
    outcomes = [reproduce(lab) for reproduce in PAPERS[paper].figures.values()]
    for outcome in outcomes:
        write_table(outcome, FOLDER)
        draw(outcome, FOLDER / f"{outcome.name}.svg")
    page = FOLDER / "README.md"
    section = compute_markdown(outcomes, "full" if is_full else "small")
    between = re.compile(rf"(?<=<!-- begin {paper} -->\n).*?(?=<!-- end {paper} -->)", re.DOTALL)
    page.write_text(between.sub(lambda _: f"\n{section}\n", page.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Publish what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="append", choices=list(PAPERS), default=[])
    parser.add_argument("--only", action="append", choices=list(PAPERS), default=[])
    options = parser.parse_args(arguments)
    folder = find_cache() / "reproduction" / compute_digest()  # before an hour in which files may be changed
    for paper in options.only or PAPERS:
        publish(paper, folder, is_full=paper not in options.small)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
