"""`fairbind mechanisms`: what there is, and the story of each."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from cli.mechanisms.typed import Terminal
from fairbind.fairness.mechanisms.guarantees import GUARANTEES
from fairbind.fairness.mechanisms.registry import MECHANISMS


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_has_every_mechanism(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = terminal.succeed("mechanisms").out.splitlines()
    starts = [line.split()[0] for line in lines[2:] if line and not line.startswith((" ", "`"))]

    assert lines[0].split()[0] == "id"
    assert starts == list(MECHANISMS)
    assert max(len(line) for line in lines if not line.startswith("`")) <= width


def test_the_table_says_what_each_takes(terminal: Terminal) -> None:
    lines = terminal.succeed("mechanisms").out.splitlines()

    for name, mechanism in MECHANISMS.items():
        (place,) = (place for place, line in enumerate(lines) if line.split()[:1] == [name])
        assert lines[place].split(maxsplit=1)[1] == mechanism.name
        kind, _, takes = lines[place + 1].strip().partition("; ")
        assert kind == ("many servers" if "servers" in mechanism.options else "one pool")
        assert set(takes.split(", ")) == mechanism.options - {"servers"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_story_of_each(terminal: Terminal, mechanism: str) -> None:
    text = terminal.succeed("mechanisms", mechanism).out
    words = " ".join(text.split())
    registered = MECHANISMS[mechanism]

    assert text.startswith(f"{mechanism}: {registered.name}\n")
    for told in (registered.paper, registered.section, registered.story):
        assert " ".join(told.split()) in words
    if registered.section[0].isdigit():
        assert f"{' '.join(registered.paper.split())}, section {registered.section}" in words
    rows = {line.split()[0]: line for line in text.splitlines() if line}
    for property_id, guarantee in GUARANTEES[mechanism].items():
        assert guarantee.standing.value in rows[property_id]
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_story_tells_the_assumptions(terminal: Terminal) -> None:
    words = " ".join(terminal.succeed("mechanisms", "drf").out.split())

    assert "population-monotonicity proved if every tenant needs every resource; Ghodsi" in words


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_the_list_and_each_story(terminal: Terminal, output: str) -> None:
    def read(*words: str) -> Any:
        text = terminal.succeed("mechanisms", *words, "-o", output).out
        return json.loads(text) if output == "json" else yaml.safe_load(text)

    listed = read()["mechanisms"]
    assert [one["id"] for one in listed] == list(MECHANISMS)
    for one in listed:
        assert set(one["takes"]) == MECHANISMS[one["id"]].options
    story = read("ps-dsf")
    assert story["paper"] == MECHANISMS["ps-dsf"].paper
    assert {one["property"]: one["standing"] for one in story["properties"]} == {
        name: guarantee.standing.value for name, guarantee in GUARANTEES["ps-dsf"].items()
    }
