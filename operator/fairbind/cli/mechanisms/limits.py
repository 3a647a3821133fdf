"""Bounds on a document that a command is given, and the error of one that exceeds them."""

from __future__ import annotations

from dataclasses import dataclass

from fairbind.model.errors import InvalidProblemError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one file.

    bytes: a million tenants take about a third of the default; endless devices end there. depth: levels of objects and
    lists. aliased: how many values all aliases of YAML repeat, the values inside of them counted too.
    """

    bytes: int = 2**28
    depth: int = 100
    aliased: int = 1_000_000


LIMITS = Limits()


class FileError(InvalidProblemError):
    """A file is missing, cannot be read or exceeds a limit; the message holds nothing of its content."""


def check_depth(document: object, name: str, limits: Limits) -> None:
    """Raise FileError if objects and lists are nested too deeply."""
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(limits.depth):
        level = [
            member
            for container in level
            for member in (container.values() if isinstance(container, dict) else container)
            if isinstance(member, dict | list)
        ]
        if not level:
            return
    raise make_depth_error(name, limits)


def make_depth_error(name: str, limits: Limits) -> FileError:
    """Return the error of a document that is nested too deeply."""
    return FileError(f"{name}: must not be nested deeper than {limits.depth} levels")
