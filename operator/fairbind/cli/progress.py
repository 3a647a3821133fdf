"""A line on a terminal that says how far something is and how long it may take."""

from __future__ import annotations

import sys
import time

import click

PROGRESS_SECONDS = 0.5


class Progress:
    """Shows itself where stderr is a terminal, and nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = sys.stderr.isatty()
        self._began = self._told = time.monotonic()

    def show(self, part: float) -> None:
        """Say that this part of it is over."""
        now = time.monotonic()
        if not self._is_shown or now - self._told < PROGRESS_SECONDS:
            return
        self._told = now
        left = f", about {(now - self._began) * (1 / part - 1):.0f} s left" if part > 0 else ""
        click.echo(f"\r{self._what}: {part:.0%}{left}\x1b[K", err=True, nl=False)

    def clear(self) -> None:
        """Leave an empty line."""
        if self._told != self._began:
            click.echo("\r\x1b[K", err=True, nl=False)
