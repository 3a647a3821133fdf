"""README.md is short, says first what fairbind is not for and how to ask, and shows what the commands print."""

from __future__ import annotations

import re

import pytest

import publishing
import readme
from fairbind import __version__
from house.tree import ROOT
from localplane.tools import KUBERNETES_VERSION, OLDER_KUBERNETES

MOST_WORDS = 900
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
ASKED = [match["command"] for match in readme.BLOCK.finditer(PAGE)]


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(PAGE.split()) <= MOST_WORDS


def test_what_comes_first_is_what_a_reader_asks_first() -> None:
    beginnings = ["fairbind is a scheduler", "**Status: alpha.**", "| fairbind | Kubernetes |", "**Not for**"]
    headings = [
        "## Ask your cluster in three minutes",
        "docs/images/shares.svg",
        "**How fair is it?**",
        "make demo",
        "## Install",
    ]
    places = [PAGE.index(text) for text in [*beginnings, *headings]]

    assert places == sorted(places)


def test_the_versions_are_those_that_are_tested() -> None:
    newest = ".".join(map(str, KUBERNETES_VERSION[:2]))

    assert f"| {__version__} | {', '.join([*OLDER_KUBERNETES, newest])} | 4, 3 | 3.11 to 3.13 |" in PAGE


def test_a_cluster_is_asked_with_three_commands() -> None:
    assert [command.split()[0] for command in ASKED] == ["audit", "advise", "what-if"]


@pytest.mark.parametrize("command", ASKED, ids=lambda command: command.split()[0])
def test_what_is_shown_is_what_the_command_prints(command: str) -> None:
    [block] = re.findall(rf"^\$ fairbind {re.escape(command)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shown, printed = block.splitlines(), readme.ask(command, ROOT)

    if shown[-1] == "...":
        shown.pop()
        printed = printed[: len(shown)]
    assert shown == printed
    assert len(shown) > 4


def test_another_answer_is_drift() -> None:
    changed = PAGE.replace("37%", "38%")

    assert changed != PAGE
    assert readme.BLOCK.sub(lambda match: readme.write_block(match, ROOT), changed) == PAGE


def test_what_is_published_is_said_as_the_file_has_it() -> None:
    assert publishing.write_blocks(PAGE, publishing.read_published(ROOT)) == PAGE
