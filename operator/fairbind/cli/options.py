"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

# Not passed to the commands: `main` looks for it when something has failed.
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="When it fails, show a traceback below the line."
)


def output_option(*formats: str) -> Callable[[Command], Command]:
    """Return the option --output with these formats, of which the first is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help="What is printed."
    )
