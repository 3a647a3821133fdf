"""YAML, read as what a problem can be: objects, lists and the scalars of JSON.

Built from the parser's events, not with the library's loader, for three reasons: the loader lets a repeated name
overwrite the first, it recurses (100,000 brackets would end the process), and it reads YAML 1.1, where `1e9` is text
and `010` is eight. An alias is the value that its anchor names, not a copy; what all aliases repeat is counted, because
a reader of the document meets it all. Here the core schema of YAML 1.2 counts, and keys are always text, as in JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

import yaml

from fairbind.cli.mechanisms.limits import LIMITS, FileError, Limits, check_depth, make_depth_error
from fairbind.cli.mechanisms.out_of_range_numbers import read_float, read_whole
from fairbind.fairness.problems.fields import Path, show_path
from fairbind.model.errors import InvalidProblemError

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

TOO_DEEP = "exceeded maximum nesting depth"
"""The complaint of newer versions of libyaml, before an event of the level is seen."""

TEXT_OF_A_VALUE = 64
"""So many characters of a text count as one more value."""

_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    spelled: meant
    for word, meant in (("true", True), ("false", False))
    for spelled in (word, word.title(), word.upper())
}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_OTHER_BASES = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NOT_A_NUMBER = re.compile(r"\.(nan|NaN|NAN)")


def read_yaml(text: str, name: str = "problem", limits: Limits = LIMITS) -> object:
    """Return what the YAML text says, which is one document. Raises InvalidProblemError.

    name: of the file, for messages.

    >>> read_yaml("demand: {cpu: 1e3, memory: 010, gpu: '2'}")
    {'demand': {'cpu': 1000.0, 'memory': 10, 'gpu': '2'}}
    """
    documents = list(islice(_read_all(text, name, limits), 2))
    if len(documents) > 1:
        raise InvalidProblemError(f"{name}: must be one YAML document, but a second one begins")
    return documents[0] if documents else None


def read_yaml_documents(text: str, name: str = "problem", limits: Limits = LIMITS) -> list[object]:
    r"""Return all documents of the YAML text but the empty ones. Raises InvalidProblemError.

    >>> read_yaml_documents("kind: Service\n---\n---\nkind: Job\n")
    [{'kind': 'Service'}, {'kind': 'Job'}]
    """
    return [document for document in _read_all(text, name, limits) if document is not None]


def _read_all(text: str, name: str, limits: Limits) -> Iterator[object]:
    builder = _Builder(name, limits)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                builder.begin()
            builder.take(event)
            if isinstance(event, yaml.DocumentEndEvent):
                check_depth(builder.document, name, limits)
                yield builder.document
    except yaml.YAMLError as error:
        if TOO_DEEP in str(error):
            raise make_depth_error(name, limits) from error
        raise InvalidProblemError(f"{name}: must be YAML, but {_describe(error)}") from error


@dataclass(slots=True)
class _Frame:
    """An object or a list that is still open; key is that of the member that comes next, size what is inside so far."""

    container: dict[str, object] | list[object]
    anchor: str | None
    key: str | None = None
    size: int = 1


class _Builder:
    """Puts events together. Does not recurse: depth is the length of a list.

    Sizes are numbers of values, those that aliases repeat counted each time; a long text counts as several.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self.document: object = None
        self._name = name
        self._limits = limits
        self._frames: list[_Frame] = []
        self._anchored: dict[str, tuple[object, int]] = {}
        self._aliased = 0  # of all documents of the text

    def begin(self) -> None:
        """Begin a document, which knows no anchors of those before it."""
        self.document = None
        self._frames = []
        self._anchored = {}

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.MappingStartEvent():
                self._open({}, event)
            case yaml.SequenceStartEvent():
                self._open([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                frame = self._frames.pop()
                self._add(frame.container, frame.anchor, frame.size)
            case yaml.ScalarEvent():
                self._take_scalar(event)
            case yaml.AliasEvent():
                self._take_alias(event)

    def _open(self, container: dict[str, object] | list[object], event: yaml.CollectionStartEvent) -> None:
        self._check_tag(event.tag)
        self._check_is_no_key()
        if len(self._frames) >= self._limits.depth:
            raise make_depth_error(self._name, self._limits)
        self._frames.append(_Frame(container, event.anchor))

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        self._check_tag(event.tag)
        if self._awaits_key():
            self._take_key(event.value)
        else:
            is_plain = event.implicit[0]
            size = 1 + len(event.value) // TEXT_OF_A_VALUE
            self._add(read_scalar(event.value) if is_plain else event.value, event.anchor, size)

    def _take_alias(self, event: yaml.AliasEvent) -> None:
        self._check_is_no_key()
        if event.anchor not in self._anchored:
            self._refuse(f"there is no &{event.anchor} before the alias *{event.anchor} that is complete")
        value, size = self._anchored[event.anchor]
        self._aliased += size
        if self._aliased > self._limits.aliased:
            raise FileError(f"{self._name}: aliases must not repeat more than {self._limits.aliased:,} values")
        self._add(value, None, size)

    def _take_key(self, key: str) -> None:
        frame = self._frames[-1]
        frame.key = key
        frame.size += len(key) // TEXT_OF_A_VALUE
        if key in frame.container:
            self._refuse("must stand here once, but is there again")

    def _add(self, value: object, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._anchored[anchor] = value, size
        if not self._frames:
            self.document = value
            return
        frame = self._frames[-1]
        frame.size += size
        if isinstance(frame.container, list):
            frame.container.append(value)
        elif frame.key is not None:
            frame.container[frame.key] = value
            frame.key = None

    def _awaits_key(self) -> bool:
        return bool(self._frames) and isinstance(self._frames[-1].container, dict) and self._frames[-1].key is None

    def _check_is_no_key(self) -> None:
        if self._awaits_key():
            self._refuse("names of members must be plain text")

    def _check_tag(self, tag: str | None) -> None:
        if tag is not None:
            self._refuse(f"must have no tag, but has {tag}")

    def _refuse(self, message: str) -> NoReturn:
        places = (len(frame.container) if isinstance(frame.container, list) else frame.key for frame in self._frames)
        path: Path = tuple(place for place in places if place is not None)
        raise InvalidProblemError(f"{show_path(path)}: {message}")


def read_scalar(text: str) -> object:
    """Return what an unquoted scalar means in the core schema of YAML 1.2.

    >>> [read_scalar(text) for text in ("1e9", "1.5", "0x10", "yes", "True", "null", "-.inf")]
    [1000000000.0, 1.5, 16, 'yes', True, None, -inf]
    """
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return read_whole(text)
    if _FLOAT.fullmatch(text):
        return read_float(text)
    if _OTHER_BASES.fullmatch(text):
        return int(text, 0)
    if match := _INFINITE.fullmatch(text):
        return -math.inf if match[1] == "-" else math.inf
    return math.nan if _NOT_A_NUMBER.fullmatch(text) else text


def _describe(error: yaml.YAMLError) -> str:
    """Return where and what in one line."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1} column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return where + " ".join(str(problem).split())
