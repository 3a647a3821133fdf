"""What is typed, and what comes back: the real entry point, in this process."""

from __future__ import annotations

import copy
import io
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairbind.cli import main

Document = dict[str, Any]

POOL: Document = {
    "resources": ["cpu", "memory"],
    "servers": [{"name": "a", "capacity": {"cpu": 9, "memory": 18}}],
    "tenants": [{"name": "t", "demand": {"cpu": 1, "memory": 4}}, {"name": "u", "demand": {"cpu": 3, "memory": 1}}],
}
SERVERS: Document = {
    "resources": ["cpu", "memory"],
    "servers": [
        {"name": "a", "capacity": {"cpu": 2, "memory": 12}},
        {"name": "b", "capacity": {"cpu": 12, "memory": 2}, "count": 3},
    ],
    "tenants": [{"name": "t", "demand": {"cpu": 0.2, "memory": 1}}, {"name": "u", "demand": {"cpu": 1, "memory": 0.2}}],
}


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Document:
        document: Document = json.loads(self.out, parse_constant=refuse_constant)
        return document


def refuse_constant(constant: str) -> None:
    raise AssertionError(f"{constant} is not standard JSON")


class Terminal:
    """Types commands."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("COLUMNS", "100")

    def run(self, *words: str, typed: bytes | None = None) -> Outcome:
        """Run a command; typed: what it finds on standard input."""
        if typed is not None:
            self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        status = main(words)
        shown = self._capsys.readouterr()
        return Outcome(status, shown.out, shown.err)

    def write(self, content: Document | str | bytes, name: str = "problem.json") -> str:
        """Write a file and return its path."""
        path = self.folder / name
        if isinstance(content, dict):
            content = json.dumps(content)
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return str(path)

    def succeed(self, *words: str, typed: bytes | None = None) -> Outcome:
        """Run a command that must end well and say nothing on standard error."""
        outcome = self.run(*words, typed=typed)
        assert (outcome.status, outcome.err) == (0, "")
        return outcome

    def be_refused(self, *words: str, typed: bytes | None = None) -> str:
        """Run a command that must be refused, in one line and nothing else; return the line."""
        return check_refused(self.run(*words, typed=typed))


def check_refused(outcome: Outcome) -> str:
    assert (outcome.status, outcome.out) == (2, "")
    assert re.fullmatch(r"fairbind: [^\n\r]+\n", outcome.err)
    assert outcome.err.isascii() or outcome.err.strip().isprintable()
    assert len(outcome.err) < 500
    return outcome.err.removeprefix("fairbind: ").rstrip("\n")


def document_with(path: str, value: object, document: Document = POOL) -> Document:
    """Return the document with one field set; a list's entry one beyond its end is appended."""
    document = copy.deepcopy(document)
    *parents, last = (int(part) if part.isdigit() else part for part in re.findall(r"\w+", path))
    place: Any = document
    for part in parents:
        place = place[part]
    if isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return document


def document_without(path: str, document: Document = POOL) -> Document:
    """Return the document without one field."""
    document = document_with(path, None, document)
    *parents, last = (int(part) if part.isdigit() else part for part in re.findall(r"\w+", path))
    place: Any = document
    for part in parents:
        place = place[part]
    del place[last]
    return document
