"""Record what the scheduler decides now, or show a case as text.

With PYTHONPATH=operator:tests, from the root of the repository:

    python -m scheduling.record_decisions write                 writes tests/golden/decisions
    python -m scheduling.record_decisions show SERIES NUMBER    SERIES: snapshots, sequences or mirrors

The recording is there to show that a refactoring changes nothing, so it should never be needed to write it again but
after a change of decisions that was meant.
"""

from __future__ import annotations

import argparse
import time

from cluster.recorded.histories import MIRRORED
from scheduling.recorded.recording import Series, compute_digests, write_recorded
from scheduling.recorded.series import EVOLVING, SINGLE

ALL: dict[str, Series] = {series.name: series for series in (SINGLE, EVOLVING, MIRRORED)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="record_decisions", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write")
    show = commands.add_parser("show")
    show.add_argument("series", choices=list(ALL))
    show.add_argument("number", type=int)
    given = parser.parse_args()
    if given.command == "show":
        for part in ALL[given.series].play(given.number):
            print(part)
        return
    for series in ALL.values():
        started = time.process_time()
        write_recorded(series, compute_digests(series))
        print(f"{series.path}: {series.count} cases, {time.process_time() - started:.1f} s of CPU")


if __name__ == "__main__":
    main()
