"""Record what the operator's loop makes of the histories: see `histories`."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from cluster.histories import draw_histories
from cluster.live import run_live

GOLDEN = Path(__file__).parents[1] / "golden" / "timelines" / "pacing.json"


def main() -> None:
    logging.disable()
    hashes = {}
    for history in draw_histories():
        with pytest.MonkeyPatch.context() as patch:
            hashes[str(history.seed)] = run_live(history, patch).compute_hash()
    GOLDEN.write_text(json.dumps(hashes, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
