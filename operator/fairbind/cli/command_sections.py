"""The list of commands in `fairbind --help`, in sections by what one wants to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Ask a cluster, or a file of one": ("tree", "audit", "advise", "what-if", "replay", "snapshot", "problem"),
    "Simulate": ("simulate", "sweep", "trace", "reproduce"),
    "Exact mechanisms": ("allocate", "check", "compare", "mechanisms", "schema"),
    "Come from another scheduler": ("import",),
    "Run in a cluster": ("operator", "open-gates"),
}


class SectionedGroup(click.Group):
    """A group whose help lists its commands by SECTIONS; each command is in one of them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, their columns in line."""
        left = max(map(len, self.list_commands(ctx)))
        width = formatter.width - formatter.current_indent - left - 6
        for title, names in SECTIONS.items():
            rows = [(name.ljust(left), self.commands[name].get_short_help_str(width)) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)
