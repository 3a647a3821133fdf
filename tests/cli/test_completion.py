"""What a shell gets when it asks how a command goes on: click's protocol, in words and a number."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from fairbind.cli.completion import complete_mechanisms, complete_policies
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.scheduling import POLICIES


def complete(line: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from fairbind.cli import main; sys.exit(main())"],
        env={
            **os.environ,
            "_FAIRBIND_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [offer.partition(",")[2] for offer in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fairbind what-", ["what-if"]),
        ("fairbind what-if --policy ps", ["ps-dsf"]),
        ("fairbind simulate --policy rps", ["rps-dsf"]),
        ("fairbind simulate --policy vol", ["volcano-rule"]),
        ("fairbind allocate --mechanism drf", ["drf", "drfh"]),
        ("fairbind mechanisms ce", ["ceei"]),
        ("fairbind check p.json --property weak", ["weak-sharing-incentive"]),
        ("fairbind audit -o ", ["table", "json", "yaml"]),
    ],
)
def test_a_word_is_completed(line: str, offered: list[str]) -> None:
    assert complete(line) == offered


@pytest.mark.parametrize("line", ["fairbind audit clus", "fairbind simulate --from clus", "fairbind allocate clus"])
def test_files_are_left_to_the_shell(line: str) -> None:
    assert complete(line) == ["clus"]


def test_all_ids_are_offered() -> None:
    context, parameter = click.Context(click.Command("c")), click.Option(["--id"])
    assert complete_policies(context, parameter, "") == list(POLICIES)
    assert complete_mechanisms(context, parameter, "") == list(MECHANISMS)
