"""What the exit status of a command says, apart from 0."""

from __future__ import annotations

EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
