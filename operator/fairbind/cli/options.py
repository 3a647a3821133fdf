"""Options that several commands share."""

from __future__ import annotations

import click

# Not passed to the commands: `main` looks for it when something has failed.
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="When it fails, show a traceback below the line."
)
