"""`python -m fairbind` is the program `fairbind`."""

from __future__ import annotations

import sys

from fairbind.cli import main

if __name__ == "__main__":
    sys.exit(main())
