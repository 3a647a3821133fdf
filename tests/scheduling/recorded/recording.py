"""What was decided on the day of the recording, one short hash a case, and the comparison with what is decided now."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "golden" / "decisions"
ABOUT = [
    "What the scheduler decided and said, as a hash of each case's text; see tests/scheduling/recorded.",
    "A refactoring leaves all of them as they are. To record anew is right only after a change of decisions that was",
    "meant, said so in CHANGELOG.md and looked at in the texts (show them before and after, and compare):",
    "PYTHONPATH=tests .venv/bin/python -m scheduling.record_decisions show SERIES NUMBER",
    "PYTHONPATH=tests .venv/bin/python -m scheduling.record_decisions write",
]
DIGEST_BYTES = 6
HASHES_A_LINE = 16
SHOWN_LINES = 40

Play = Callable[[int], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Series:
    """Cases of one kind. name: of its file, too. play: makes a case's text, cycle by cycle. block: cases a test."""

    name: str
    count: int
    block: int
    play: Play

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.json"

    @property
    def blocks(self) -> range:
        return range(0, self.count, self.block)


def compute_digest(parts: Iterable[str]) -> str:
    running = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        running.update(part.encode())
        running.update(b"\n")
    return running.hexdigest()


def compute_digests(series: Series) -> list[str]:
    return [compute_digest(series.play(number)) for number in range(series.count)]


def write_recorded(series: Series, digests: list[str]) -> None:
    lines = [" ".join(digests[n : n + HASHES_A_LINE]) for n in range(0, len(digests), HASHES_A_LINE)]
    series.path.parent.mkdir(exist_ok=True)
    content = {"about": ABOUT, "series": series.name, "cases": series.count, "hashes": lines}
    series.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_recorded(series: Series) -> list[str]:
    content = json.loads(series.path.read_text(encoding="utf-8"))
    hashes = " ".join(content["hashes"]).split()
    assert len(hashes) == content["cases"] == series.count, f"{series.path.name} was recorded with other cases"
    return hashes


def check_block(series: Series, start: int) -> None:
    """Raise AssertionError, naming the first case that differs, unless a block's cases are decided as recorded."""
    recorded = read_recorded(series)
    for number in range(start, min(start + series.block, series.count)):
        now = compute_digest(series.play(number))
        if now != recorded[number]:
            raise AssertionError(describe_difference(series, number, recorded[number], now))


def describe_difference(series: Series, number: int, recorded: str, now: str) -> str:
    lines = "\n".join(series.play(number)).splitlines()
    more = [f"... and {len(lines) - SHOWN_LINES} lines more"] if len(lines) > SHOWN_LINES else []
    head = (
        f"case {number} of {series.name} is decided or explained differently: {recorded} was recorded, now it is {now}",
        "To compare, run this here and in a worktree of the commit before:",
        f"PYTHONPATH=operator:tests python -m scheduling.record_decisions show {series.name} {number}",
    )
    return "\n".join((*head, *lines[:SHOWN_LINES], *more))
