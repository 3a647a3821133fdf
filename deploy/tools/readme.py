"""What README.md shows of a cluster that is asked: the commands, and what they print for deploy/examples/cluster.json.

A block of the form

    <!-- asked: advise --tenant NAME=a,b -->
    ...
    <!-- end -->

is filled with the command as a reader types it, for a cluster of their own, and with what it prints for the example: a
snapshot of a cluster whose pods kube-scheduler placed. `| N` at the end of the command keeps N lines.
"""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from fairbind.cli import commands

EXAMPLE = Path("deploy") / "examples" / "cluster.json"
BLOCK = re.compile(
    r"(?P<start><!-- asked: (?P<command>[^|\n]+?)(?: \| (?P<lines>\d+))? -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
ENVIRONMENT = {"COLUMNS": "80"}


def compute_page(root: Path) -> dict[Path, str]:
    """Return the text of README.md with its blocks as they should be; nothing where there is no README or example."""
    page = root / "README.md"
    if not page.exists() or not (root / EXAMPLE).exists():
        return {}
    return {page: BLOCK.sub(lambda match: write_block(match, root), page.read_text(encoding="utf-8"))}


def write_block(match: re.Match[str], root: Path) -> str:
    """Return a block with the command and what it prints now."""
    lines = ask(match["command"], root)
    if match["lines"]:
        lines = [*lines[: int(match["lines"])], "..."]
    shown = "\n".join([f"$ fairbind {match['command']}", *lines])
    return f"{match['start']}```console\n{shown}\n```\n{match['end']}"


def ask(command: str, root: Path) -> list[str]:
    """Return what a command prints for the example, on a terminal of 80 columns."""
    name, *options = command.split()
    words = [name, str(root / EXAMPLE), *options]
    outcome = CliRunner().invoke(commands, words, env=ENVIRONMENT, catch_exceptions=False)
    if outcome.exit_code != 0:
        raise RuntimeError(f"fairbind {command}: {outcome.output}")
    return [line.rstrip() for line in outcome.stdout.rstrip().splitlines()]
