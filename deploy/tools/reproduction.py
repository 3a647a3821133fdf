"""Do the papers' evaluations again and publish them in docs/reproduction.

python deploy/tools/reproduction.py                     all papers at the full scale; DRFH's figures take hours
python deploy/tools/reproduction.py --small drfh        these papers at the small scale, the others at the full one
python deploy/tools/reproduction.py --only drbf         these papers; what is published of the others stays
python deploy/tools/reproduction.py --only drfh --part 0.25   DRFH with a quarter of its servers and users
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from fairbind.simulator.reproduction.drawing import draw
from fairbind.simulator.reproduction.outcome import Lab
from fairbind.simulator.reproduction.page import compute_markdown, write_table
from fairbind.simulator.reproduction.registry import PAPERS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduction"


def publish(paper: str, *, is_full: bool, part: float = 1.0) -> None:
    """Write a paper's tables and pictures, and its section of the page. part: see `Lab`."""
    lab = Lab(is_full, time.perf_counter, part)
    outcomes = [reproduce(lab) for reproduce in PAPERS[paper].figures.values()]
    for outcome in outcomes:
        write_table(outcome, FOLDER)
        draw(outcome, FOLDER / f"{outcome.name}.svg")
    page = FOLDER / "README.md"
    scale = "small" if not is_full else "full" if part == 1.0 else f"{part:.0%} of the servers and users"
    section = compute_markdown(outcomes, scale)
    between = re.compile(rf"(?<=<!-- begin {paper} -->\n).*?(?=<!-- end {paper} -->)", re.DOTALL)
    page.write_text(between.sub(lambda _: f"\n{section}\n", page.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Publish what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="append", choices=list(PAPERS), default=[])
    parser.add_argument("--only", action="append", choices=list(PAPERS), default=[])
    parser.add_argument("--part", type=float, default=1.0, help="of DRFH's servers and users (1)")
    options = parser.parse_args(arguments)
    for paper in options.only or PAPERS:
        publish(paper, is_full=paper not in options.small, part=options.part)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
