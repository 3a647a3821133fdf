"""Every command's help ends with an example, and every example works."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.mechanisms.typed import POOL, Terminal
from fairbind.cli import commands
from fairbind.cli.mechanisms.commands import COMMANDS as MECHANISM_COMMANDS
from fairbind.cli.open_gates_command import open_gates
from fairbind.cli.reproduce_command import reproduce
from fairbind.cli.simulate import simulate
from fairbind.cli.snapshot_commands import replay, snapshot
from fairbind.cli.sweep_command import sweep
from fairbind.cli.trace_command import trace
from fairbind.cli.what_if_command import advise, what_if
from simulator.scenarios import make_scenario
from simulator.test_traces import OPENB_NODES, OPENB_PODS

COMMANDS = (*MECHANISM_COMMANDS, simulate, sweep, trace, reproduce)
OF_SNAPSHOTS = (snapshot, replay, what_if, advise, *map(commands.commands.__getitem__, ("audit", "import", "tree")))
"""What these examples need is a cluster's file: tests/cli/test_snapshots.py writes one."""
OF_CLUSTERS = (open_gates,)
"""What these examples need is a cluster: tests/e2e/test_gate_mode.py has one."""
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def examples_in(text: str) -> Iterator[list[str]]:
    for line in re.findall(r"^\s*\$ fairbind (.+)$", text, re.MULTILINE):
        yield shlex.split(line)


@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_the_example_of_a_command_works(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: click.Command
) -> None:
    terminal.write(POOL)
    (terminal.folder / "scenario.yaml").write_text(json.dumps(make_scenario()), encoding="utf-8")
    (terminal.folder / "sweep.yaml").write_text("scenario: scenario.yaml", encoding="utf-8")
    (terminal.folder / "pods.csv").write_text(OPENB_PODS, encoding="utf-8")
    (terminal.folder / "nodes.csv").write_text(OPENB_NODES, encoding="utf-8")
    monkeypatch.chdir(terminal.folder)
    assert command.name is not None
    examples = list(examples_in(terminal.succeed(command.name, "--help").out))

    assert examples
    for words in examples:
        assert words[0] == command.name
        assert terminal.succeed(*words).out


def test_the_page_has_every_example() -> None:
    shown = list(examples_in(PAGE.read_text(encoding="utf-8")))

    assert {words[0] for words in shown} == {command.name for command in (*COMMANDS, *OF_SNAPSHOTS, *OF_CLUSTERS)}


@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_every_option_is_explained(command: click.Command) -> None:
    assert commands.commands[command.name or ""] is command
    unexplained = [
        parameter.name
        for parameter in command.params
        if isinstance(parameter, click.Option) and not (parameter.help or "").endswith((".", "]"))
    ]

    assert unexplained == []


@pytest.mark.parametrize("width", ["60", "80", "100"])
@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_help_fits_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: click.Command, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert command.name is not None
    lines = terminal.succeed(command.name, "--help").out.splitlines()

    assert max(len(line) for line in lines if "$ fairbind" not in line) <= int(width)
