"""Offers the ids of policies, mechanisms and properties to a shell that completes a command, and files.

How a shell asks is click's: `_FAIRBIND_COMPLETE=bash_source fairbind` prints what a shell needs. Registries are
imported only when one of their ids is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click
from click.shell_completion import CompletionItem


class FileName(click.ParamType[str]):
    """A file that is read or written later, - for standard input or output; whatever is wrong with it is said then."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete the names of files."""
        del ctx, param
        return [CompletionItem(incomplete, type="file")]


FILE: Final = FileName()


def complete_policies(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Return the policies that begin so."""
    from fairbind.scheduling import POLICIES  # noqa: PLC0415 - numpy and the scheduler

    return _find(POLICIES, begin)


def complete_simulated(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Return the policies that can be simulated and begin so, also those that other packages bring."""
    from fairbind.simulator.baselines.registry import list_policies  # noqa: PLC0415 - numpy and the scheduler

    return _find(list_policies(), begin)


def complete_mechanisms(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Return the mechanisms that begin so."""
    from fairbind.fairness.mechanisms.registry import MECHANISMS  # noqa: PLC0415 - numpy and the solvers

    return _find(MECHANISMS, begin)


def complete_properties(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Return the properties of allocations that begin so."""
    from fairbind.fairness.properties import PROPERTIES  # noqa: PLC0415 - numpy

    return _find(PROPERTIES, begin)


def _find(names: Iterable[str], begin: str) -> list[str]:
    return [name for name in names if name.startswith(begin)]
