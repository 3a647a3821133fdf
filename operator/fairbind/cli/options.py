"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

MOST_SECONDS = 1e9
"""Thirty years."""

Command = TypeVar("Command", bound=Callable[..., Any])

# Not passed to the commands: `main` looks for it when something has failed.
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show a traceback below the line when it fails."
)


def output_option(*formats: str) -> Callable[[Command], Command]:
    """Return the option --output with these formats, of which the first is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Print in this format.",
    )


def is_typed(parameter: str) -> bool:
    """Tell whether an option stands on the command line, rather than in an environment variable for all commands."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE


class Words(click.ParamType[tuple[str | None, ...]]):
    """An option's value of a certain form. example: one that is right."""

    def __init__(self, name: str, pattern: str, example: str) -> None:
        self.name = name
        self._pattern = re.compile(pattern)
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, ...]:
        """Return the groups of the pattern."""
        if isinstance(value, tuple):
            return value
        found = self._pattern.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} must be as {self._example}", param, ctx)
        return found.groups()


run_time_option = click.option(
    "--run-time",
    "run_times",
    metavar="TENANT=SECONDS",
    type=Words("run time", r"(.+)=([0-9]+(?:\.[0-9]+)?)", "a=600, a tenant and seconds"),
    multiple=True,
    help="Let a tenant's pods run for so many seconds. Several times: equally likely ones. Without it: as long as "
    "those of its pods that have succeeded.",
)


def gather_run_times(given: Iterable[tuple[str, str]]) -> dict[str, list[float]]:
    """Return the seconds of --run-time by tenant."""
    gathered: dict[str, list[float]] = {}
    for tenant, seconds in given:
        if float(seconds) > MOST_SECONDS:
            raise click.UsageError(f"--run-time: {tenant}: must be at most {MOST_SECONDS:g} seconds, not {seconds}")
        gathered.setdefault(tenant, []).append(float(seconds))
    return gathered
