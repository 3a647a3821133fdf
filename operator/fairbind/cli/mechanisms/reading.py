"""From a file, or standard input, to the document in it: JSON or YAML, read more strictly than by their libraries.

A name that stands twice in one object, a number that float64 would change beyond recognition, text that is not UTF-8:
all are refused with the place where they are. `.json` is JSON, `.yaml` and `.yml` are YAML; anything else (standard
input, a pipe) is JSON if it begins like JSON.

Every command reads the documents that it is given here, within `Limits`: a file that would grow beyond them in memory
is refused before it does.
"""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fairbind.cli.mechanisms.limits import LIMITS, FileError, Limits, check_depth, make_depth_error
from fairbind.cli.mechanisms.out_of_range_numbers import read_float, read_whole
from fairbind.fairness.problems.fields import show_path, show_value
from fairbind.model.errors import InvalidProblemError

STANDARD_INPUT = "-"
_YAML_SUFFIXES = (".yaml", ".yml")


def read_document(source: str, limits: Limits = LIMITS) -> object:
    """Return what the file holds, or standard input for "-". Raises InvalidProblemError."""
    text, name = read_text(source, limits), name_file(source)
    if not _is_yaml(source, text):
        return read_json(text, name, limits)
    from fairbind.cli.mechanisms.yaml_text import read_yaml  # noqa: PLC0415 - only YAML needs its reader

    return read_yaml(text, name, limits)


def read_documents(source: str, limits: Limits = LIMITS) -> list[object]:
    """Return all documents of a file, or of standard input for "-": several of YAML, one of JSON."""
    text, name = read_text(source, limits), name_file(source)
    if not _is_yaml(source, text):
        return [read_json(text, name, limits)]
    from fairbind.cli.mechanisms.yaml_text import read_yaml_documents  # noqa: PLC0415 - as above

    return read_yaml_documents(text, name, limits)


def _is_yaml(source: str, text: str) -> bool:
    suffix = Path(source).suffix.lower()
    return suffix in _YAML_SUFFIXES or (suffix != ".json" and text.lstrip()[0] not in "{[")


def read_text(source: str, limits: Limits = LIMITS) -> str:
    """Return the text of the file, or of standard input for "-", which is not empty. Raises InvalidProblemError."""
    text = _decode(_read_bytes(source, limits), name_file(source))
    if not text.strip():
        raise FileError(f"{name_file(source)}: must hold a problem, but is empty")
    return text


def read_json(text: str, name: str = "problem", limits: Limits = LIMITS) -> object:
    """Return what the JSON text says. NaN and Infinity pass: who knows the field refuses them better.

    name: of the file, for messages.
    """
    repeats: list[_Repeating] = []

    def make_object(members: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(members)
        if len(made) == len(members):
            return made
        repeats.append(_Repeating(made, _find_repeated(name for name, _ in members)))
        return repeats[-1]

    try:
        document = json.loads(text, object_pairs_hook=make_object, parse_float=read_float, parse_int=read_whole)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InvalidProblemError(f"{name}: must be JSON, but {where}: {_lower(error.msg)}") from error
    except RecursionError as error:
        raise make_depth_error(name, limits) from error
    if repeats:
        _refuse_repeated(document)
    check_depth(document, name, limits)
    return document


class _Repeating(dict[str, object]):
    """An object in which a name stands twice."""

    def __init__(self, members: dict[str, object], name: str) -> None:
        super().__init__(members)
        self.name = name


def _find_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is there twice")


def _refuse_repeated(document: object) -> None:
    """Raise for the first object in which a name stands twice (one that a repetition hid was in such an object)."""
    for path, value in _walk(document):
        if isinstance(value, _Repeating):
            where = show_path((*path, value.name))
            raise InvalidProblemError(f"{where}: must stand here once, but is there again")


def _walk(document: object) -> Iterator[tuple[tuple[str | int, ...], object]]:
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        yield path, value
        members: Iterable[tuple[str | int, object]] = ()
        if isinstance(value, dict):
            members = value.items()
        elif isinstance(value, list):
            members = enumerate(value)
        waiting += reversed([((*path, part), member) for part, member in members])


def _read_bytes(source: str, limits: Limits) -> bytes:
    try:
        if source == STANDARD_INPUT:
            content = sys.stdin.buffer.read(limits.bytes + 1) if sys.stdin is not None else b""
        else:
            content = _read_file(Path(source), limits)
    except ValueError as error:  # a NUL in a path
        raise FileError(f"{name_file(source)}: must be the name of a file") from error
    except FileNotFoundError as error:
        raise FileError(f"{name_file(source)}: no such file") from error
    except OSError as error:
        raise FileError(f"{name_file(source)}: cannot be read: {_lower(error.strerror or str(error))}") from error
    if len(content) > limits.bytes:
        raise FileError(f"{name_file(source)}: must not be larger than {_show_bytes(limits.bytes)}")
    return content


def _read_file(path: Path, limits: Limits) -> bytes:
    with path.open("rb") as file:
        if stat.S_ISDIR(path.stat().st_mode):
            raise IsADirectoryError(None, "is a directory")
        return file.read(limits.bytes + 1)


def _show_bytes(count: int) -> str:
    return f"{count // 2**20} MiB" if count % 2**20 == 0 else f"{count:,} bytes"


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        shown = f"byte {error.start + 1} is 0x{content[error.start]:02x}"
        raise InvalidProblemError(f"{name}: must be UTF-8 text, but {shown}") from error


def name_file(source: str) -> str:
    """Return how a message names the source: as it was typed, unless that would break the line."""
    if source == STANDARD_INPUT:
        return "standard input"
    return source if source.isprintable() and source.strip() else show_value(source)


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
