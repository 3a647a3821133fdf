"""Do the papers' evaluations again and publish them in docs/reproduction.

python deploy/tools/reproduction.py                     all papers at the full scale; DRFH takes most of an hour
python deploy/tools/reproduction.py --small drfh        these papers at the small scale, the others at the full one
python deploy/tools/reproduction.py --only drbf         these papers; what is published of the others stays
python deploy/tools/reproduction.py --only drbf --figure 3   these of their figures; the others stay, too

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
from collections.abc import Collection, Hashable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fairbind.simulator.reproduction.drawing import draw
from fairbind.simulator.reproduction.outcome import Lab
from fairbind.simulator.reproduction.page import compute_markdown, write_table
from fairbind.simulator.reproduction.registry import PAPERS, name_outcome

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


def publish(paper: str, folder: Path, *, is_full: bool, figures: Collection[str] = ()) -> None:
    """Write a paper's tables and pictures, and its sections of the page. folder: for runs. figures: empty: all."""
    lab = Lab(is_full, time.perf_counter, Kept(folder / (paper if is_full else f"{paper}-small")))
    chosen = [each for each in PAPERS[paper].figures if not figures or each in figures]
    outcomes = [PAPERS[paper].figures[each](lab) for each in chosen]
    for outcome in outcomes:
        write_table(outcome, FOLDER)
        draw(outcome, FOLDER / f"{outcome.name}.svg")
    scale = "full" if is_full else "small"
    sections = {outcome.name: compute_markdown([outcome], scale) for outcome in outcomes}
    page = FOLDER / "README.md"
    page.write_text(place_sections(page.read_text(encoding="utf-8"), paper, sections), encoding="utf-8")


def place_sections(page: str, paper: str, sections: Mapping[str, str]) -> str:
    """Return the page with these sections of a paper, by their names; its other sections stay. All in their order."""
    names = [name_outcome(paper, figure) for figure in PAPERS[paper].figures]

    def place(found: re.Match[str]) -> str:
        kept = (f"{each.strip()}\n" for each in re.split("^(?=### )", found[0], flags=re.MULTILINE) if each.strip())
        placed = {each.split()[1]: each for each in kept} | dict(sections)
        return "\n" + "\n".join(placed[name] for name in names if name in placed) + "\n"

    return re.sub(rf"(?<=<!-- begin {paper} -->\n).*?(?=<!-- end {paper} -->)", place, page, flags=re.DOTALL)


def main(arguments: list[str]) -> int:
    """Publish what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="append", choices=list(PAPERS), default=[])
    parser.add_argument("--only", action="append", choices=list(PAPERS), default=[])
    parser.add_argument("--figure", action="append", default=[])
    options = parser.parse_args(arguments)
    known = {figure for paper in options.only for figure in PAPERS[paper].figures}
    if not known.issuperset(options.figure):
        parser.error(f"--figure: papers of --only have {', '.join(sorted(known)) or 'none'}")
    folder = find_cache() / "reproduction" / compute_digest()  # before an hour in which files may be changed
    for paper in options.only or PAPERS:
        publish(paper, folder, is_full=paper not in options.small, figures=options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
