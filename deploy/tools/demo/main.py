"""``make demo``: four tenants share a cluster for a minute. Run by the interpreter of `.venv`.

Signals are understood from the first line on: the imports below take a moment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TOOLS), str(TOOLS / "local"), str(TOOLS / "kind")]  # instead of this folder

from demo import interruption  # noqa: E402  the path comes first


def main() -> int:
    """Load the rest and run it."""
    try:
        interruption.install()
        from demo import program  # noqa: PLC0415  after the signals

        return program.main(sys.argv[1:])
    except interruption.Interrupted as reason:
        sys.stderr.write(f"stopped by {reason}; nothing is left running\n")
        return interruption.EXIT_CODE
    except KeyboardInterrupt:
        return interruption.EXIT_CODE


if __name__ == "__main__":
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        os._exit(code)
    sys.exit(code)
