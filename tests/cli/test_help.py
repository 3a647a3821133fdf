from __future__ import annotations

import re

import click
import pytest

from fairbind.cli import commands, main
from fairbind.cli.command_sections import SECTIONS
from fairbind.cli.kubectl import commands as plugin_commands

VERBS = frozenset(
    [
        "add", "answer", "append", "ask", "begin", "bind", "check", "choose", "compare", "count", "decide",
        "divide", "do", "draw", "end", "estimate", "evict", "give", "judge", "keep", "leave", "let", "list", "look",
        "name", "narrow", "print", "read", "replace", "search", "serve", "show", "simulate", "submit", "take",
        "treat", "use", "write",
    ]
)  # fmt: skip
"""What the help of an option begins with, after the mode that it is for."""
MODE = re.compile(r"In (gate|extender) mode, ")
SHOWN = [
    pytest.param(group, command, id=f"{name} {command.name}")
    for name, group in (("fairbind", commands), ("kubectl", plugin_commands))
    for command in group.commands.values()
]


def test_each_command_is_in_one_section_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    named = [name for names in SECTIONS.values() for name in names]
    assert sorted(named) == sorted(commands.commands)

    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{title}:\n") for title in SECTIONS]
    assert places == sorted(places)
    assert re.findall(r"^  ([a-z][a-z-]+)  ", shown, re.MULTILINE) == named


@pytest.mark.parametrize(("_group", "command"), SHOWN)
def test_help_of_options_is_in_the_imperative(_group: click.Group, command: click.Command) -> None:
    for option in command.params:
        if isinstance(option, click.Option):
            assert MODE.sub("", option.help or "").split()[0].lower() in VERBS, f"{option.opts[0]}: {option.help}"


@pytest.mark.parametrize(("group", "command"), SHOWN)
def test_help_fits_a_terminal_of_80_columns(group: click.Group, command: click.Command) -> None:
    parent = click.Context(group, info_name="fairbind", terminal_width=80)
    context = click.Context(command, parent=parent, info_name=command.name, terminal_width=80)
    assert [line for line in command.get_help(context).splitlines() if len(line) > 80] == []


def test_no_option_o_is_a_file_where_answers_have_formats() -> None:
    """Only `import` writes a file and has no other output: -o is that file."""
    others = [command for name, command in commands.commands.items() if name != "import"]
    for command in (*others, *plugin_commands.commands.values()):
        for option in command.params:
            if "-o" in option.opts:
                assert isinstance(option.type, click.Choice), command.name
                assert "json" in option.type.choices, command.name
