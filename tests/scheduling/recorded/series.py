"""The series of recorded cases that go through `run_cycle` alone."""

from __future__ import annotations

from scheduling.recorded.cases import SEQUENCES, SNAPSHOTS, play_sequence, play_snapshot
from scheduling.recorded.recording import Series

SINGLE = Series("snapshots", SNAPSHOTS, 150, play_snapshot)
EVOLVING = Series("sequences", SEQUENCES, 10, play_sequence)
