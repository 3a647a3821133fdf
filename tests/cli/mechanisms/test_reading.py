"""The same problem as JSON, as YAML, on standard input; and what a reader must not change."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.mechanisms.typed import POOL, Terminal, document_with
from fairbind.cli.mechanisms.limits import FileError, Limits
from fairbind.cli.mechanisms.out_of_range_numbers import WrittenNumber, read_float, read_whole
from fairbind.cli.mechanisms.reading import (
    read_document,
    read_documents,
    read_json,
    read_text,
)
from fairbind.cli.mechanisms.yaml_text import read_scalar, read_yaml

ALLOCATE = ("allocate", "--mechanism", "drf")
FLOW = "resources: [cpu, memory]\nservers:\n- {name: a, capacity: {cpu: 9, memory: 1.8e1}}\ntenants:\n"
FLOW += "- {name: t, demand: {cpu: 1, memory: 4}}\n- name: u  # a comment\n  demand: {'cpu': 3, memory: 1}\n"


def test_every_way_in_leads_to_the_same_answer(terminal: Terminal) -> None:
    expected = terminal.succeed(*ALLOCATE, terminal.write(POOL)).out
    indented = json.dumps(POOL, indent=2)

    for content, name in [
        (indented, "problem.json"),
        (indented, "problem.txt"),
        (indented, "problem"),
        (indented, "problem.yaml"),
        ("\ufeff" + indented, "marked.json"),
        (indented.replace("\n", "\r\n"), "windows.json"),
        (FLOW, "problem.yaml"),
        (FLOW, "problem.YML"),
        (yaml.safe_dump(POOL, default_flow_style=True), "problem.yml"),  # begins like JSON
        (FLOW, "problem.txt"),
        (yaml.safe_dump(POOL), "dumped.yaml"),
        ("---\n" + FLOW + "...\n", "marked.yaml"),
    ]:
        assert terminal.succeed(*ALLOCATE, terminal.write(content, name)).out == expected, name
    for content in (json.dumps(POOL), "\n " + indented, FLOW, yaml.safe_dump(POOL)):
        assert terminal.succeed(*ALLOCATE, "-", typed=content.encode()).out == expected


def test_a_pipe_is_read_like_a_file(terminal: Terminal, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(json.dumps(POOL),))
    writer.start()
    outcome = terminal.succeed(*ALLOCATE, str(pipe))
    writer.join()

    assert outcome.document["totals"] == {"t": 3, "u": 2}


def test_names_in_any_script(terminal: Terminal) -> None:
    document = document_with("tenants[0].name", "\u0442\u0435\u0441\u0442 \u4e2d\u6587 \U0001f600")
    outcome = terminal.succeed(*ALLOCATE, terminal.write(json.dumps(document, ensure_ascii=False)))

    assert list(outcome.document["totals"]) == ["\u0442\u0435\u0441\u0442 \u4e2d\u6587 \U0001f600", "u"]


@pytest.mark.parametrize("read", [read_document, read_documents, read_text])
def test_a_file_that_never_ends_is_refused(read: Callable[[str, Limits], object]) -> None:
    with pytest.raises(FileError, match=r"^/dev/zero: must not be larger than 1 MiB$"):
        read("/dev/zero", Limits(bytes=2**20))
    with pytest.raises(FileError, match=r"^/dev/zero: must not be larger than 1,000 bytes$"):
        read("/dev/zero", Limits(bytes=1000))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+7", 7),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        (".5", 0.5),
        ("3.", 3.0),
        ("1e3", 1000.0),
        ("-2.5E-3", -0.0025),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-11-21", "2026-11-21"),
        ("0b11", "0b11"),
        ("=", "="),
        ("cpu", "cpu"),
    ],
)
def test_yaml_scalars_are_those_of_the_core_schema(text: str, value: object) -> None:
    read = read_scalar(text)

    assert read == value
    assert type(read) is type(value)


def test_quoted_scalars_are_text() -> None:
    text = """{a: "1", b: '2', c: "true", d: '', e: "\\u0031"}"""

    assert read_yaml(text) == {"a": "1", "b": "2", "c": "true", "d": "", "e": "1"}


def test_keys_are_text() -> None:
    assert read_yaml("{1: a, true: b, null: c, 1.5: d}") == {"1": "a", "true": "b", "null": "c", "1.5": "d"}


def test_anchors_may_be_used_again() -> None:
    document: Any = read_yaml("a: &small {cpu: &one 1}\nb: *small\nc: *one\n")

    assert document == {"a": {"cpu": 1}, "b": {"cpu": 1}, "c": 1}


def make_bomb(levels: int) -> str:
    """Return YAML of ten lines that means ten to the power of levels texts."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        make_bomb(50),
        "a: &a [1, 1, 1, 1]\n" + "\n".join(f"b{n}: *a" for n in range(300)),
        f"a: &a {'x' * 10_000}\n" + "\n".join(f"b{n}: *a" for n in range(10)),
        f"a: &a {{{'x' * 1000}: 1}}\nb: [{', '.join(['*a'] * 100)}]",
        "\n---\n".join(["a: &a [1, 1, 1, 1]\nb: [*a, *a]"] * 150),
    ],
    ids=["within", "many", "long text", "long name", "documents"],
)
def test_aliases_are_counted_before_they_expand(tmp_path: Path, text: str) -> None:
    limits = Limits(aliased=1000)
    file = tmp_path / "bomb.yaml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(FileError) as refusal:
        read_documents(str(file), limits)
    assert str(refusal.value) == f"{file}: aliases must not repeat more than 1,000 values"
    if "---" not in text:
        with pytest.raises(FileError, match="more than 1,000 values"):
            read_document(str(file), limits)


def test_aliases_up_to_the_limit_are_read(tmp_path: Path) -> None:
    file = tmp_path / "aliases.yaml"
    file.write_text("a: &a [1, 1, 1]\nb: [*a, *a]", encoding="utf-8")

    assert read_document(str(file), Limits(aliased=8)) == {"a": [1, 1, 1], "b": [[1, 1, 1], [1, 1, 1]]}
    with pytest.raises(FileError):
        read_document(str(file), Limits(aliased=7))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", '{"a": [[[1]]]}'),
        ("deep.yaml", "a: [[[1]]]"),
        ("aliases.yaml", "a: &a [1]\nb: &b [*a]\nc: &c [*b]"),
    ],
)
def test_depth_is_that_of_the_document_however_it_is_written(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")

    read_document(str(file), Limits(depth=4))
    with pytest.raises(FileError, match=rf"/{name}: must not be nested deeper than 3 levels"):
        read_document(str(file), Limits(depth=3))


BOMBS = {
    "simulate": ["simulate", "FILE"],
    "simulate --from": ["simulate", "--from", "FILE"],
    "sweep": ["sweep", "FILE", "--out", "out"],
    "replay": ["replay", "FILE"],
    "audit": ["audit", "FILE"],
    "problem": ["problem", "FILE"],
    "what-if": ["what-if", "FILE", "--remove-node", "n"],
    "what-if --submit": ["what-if", "SNAPSHOT", "--submit", "FILE"],
    "allocate": ["allocate", "FILE", "--mechanism", "drf"],
    "check": ["check", "FILE", "--mechanism", "drf"],
    "check --allocation": ["check", "PROBLEM", "--mechanism", "drf", "--allocation", "FILE"],
    "compare": ["compare", "FILE"],
}


@pytest.mark.parametrize("words", BOMBS.values(), ids=BOMBS)
def test_every_command_that_reads_a_document_bounds_it(terminal: Terminal, words: list[str]) -> None:
    files = {
        "FILE": terminal.write(make_bomb(50), "bomb.yaml"),
        "SNAPSHOT": terminal.write("kind: FairbindSnapshot\nnodes: []\npods: []\n", "snapshot.yaml"),
        "PROBLEM": terminal.write(POOL),
    }
    told = terminal.be_refused(*(files.get(word, word) for word in words))

    assert told == f"{files['FILE']}: aliases must not repeat more than 1,000,000 values"


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", "-0.0001e-9999", "9" * 400, "-" + "9" * 4500])
def test_numbers_beyond_float64_stay_as_written(text: str) -> None:
    number = (read_whole if "e" not in text else read_float)(text)

    assert isinstance(number, WrittenNumber)
    assert (number < 0) == text.startswith("-")
    assert number not in {0.0, float("inf"), float("-inf")}
    assert str(number).removesuffix("...") == text[: len(str(number).removesuffix("..."))]


@pytest.mark.parametrize("text", ["0", "0.0", "-0", "0e-400", "0.000e400", "1e308", "5e-324", "123456789012345678901"])
def test_numbers_that_float64_holds_are_plain(text: str) -> None:
    number = (read_whole if text.lstrip("-").isdigit() else read_float)(text)

    assert type(number) in {int, float}
    assert number == (int(text) if isinstance(number, int) else float(text))


def test_repeated_names_are_found_where_they_are() -> None:
    deep = '{"a": [0, {"b": {"c": 1, "d": 2, "c": 3}}]}'
    with pytest.raises(ValueError, match=r"^a\[1\]\.b\.c: must stand here once"):
        read_json(deep)


def test_reading_a_document_from_standard_input_leaves_nothing_out(terminal: Terminal) -> None:
    document = document_with("tenants[0].name", "x" * 100_000)
    path = terminal.write(document)

    assert read_document(path) == document


def test_quantities_are_numbers(terminal: Terminal) -> None:
    """`500m` of a core and `8Gi` of memory are what they are in Kubernetes, in capacities and demands."""
    written = {
        "resources": ["cpu", "memory"],
        "servers": [{"name": "a", "capacity": {"cpu": "9", "memory": "18Gi"}}],
        "tenants": [
            {"name": "t", "demand": {"cpu": "1000m", "memory": "4Gi"}},
            {"name": "u", "demand": {"cpu": "3e0", "memory": "1024Mi"}},
        ],
    }
    words = ["--mechanism", "drf"]
    totals = terminal.succeed("allocate", terminal.write(written), *words).document["totals"]

    assert totals == pytest.approx({"t": 3, "u": 2})
