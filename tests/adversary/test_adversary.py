"""The small form of `make adversary`: 200 nodes, and each attack at a tenth of its size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ADVERSARY = Path(__file__).with_name("adversary.py")
LONGEST_SECONDS = 2400


MODES = [("bind", ""), ("gate", "slots|Deferred|row 4:|row 15:"), ("extender", "slots|Deferred|row 9:|row 15:")]


@pytest.mark.local_plane
@pytest.mark.slow
@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize(("mode", "only"), MODES)
def test_no_theft_pays_and_no_attack_makes_others_wait(mode: str, only: str, tmp_path: Path) -> None:
    """In bind mode all of them; in the others those of shares, and attacks in which the mode differs most."""
    # Beside other tests half a second may become two. An attack that worked made others wait for a minute or for ever.
    few = ["--rounds=1", "--probes=12", "--bearable=10"]
    arguments = ["--small", *few, f"--mode={mode}", f"--only={only}", f"--output={tmp_path / 'adversary.jsonl'}"]

    outcome = subprocess.run([sys.executable, str(ADVERSARY), *arguments], capture_output=True, text=True, check=False)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr[-5000:]
