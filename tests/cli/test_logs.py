from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from fairbind.cli.logs import ConsoleFormatter, set_up_logging


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def fail() -> None:
    raise ValueError("inner")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_console_lines_name_level_part_and_message() -> None:
    stream = io.StringIO()
    set_up_logging("console", "info", stream)
    logging.getLogger("fairbind.kube.operator.loop").info("bound %d", 3)
    line = stream.getvalue()
    assert line.endswith("info    kube.operator.loop: bound 3\n")
    assert "\x1b" not in line


def test_colours_only_on_a_terminal() -> None:
    stream = Terminal()
    set_up_logging("console", "info", stream)
    logging.getLogger("fairbind").warning("look")
    assert "\x1b[33mwarning" in stream.getvalue()


def test_json_lines_are_objects_with_the_traceback_inside() -> None:
    stream = io.StringIO()
    set_up_logging("json", "debug", stream)
    try:
        fail()
    except ValueError:
        logging.getLogger("fairbind.kube").exception("outer\nline")
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert record["level"] == "ERROR"
    assert record["logger"] == "fairbind.kube"
    assert record["message"] == "outer\nline"
    assert "ValueError: inner" in record["traceback"]
    assert record["time"]


def test_json_lines_have_the_fields_of_what_they_are_about_and_no_empty_ones() -> None:
    stream = io.StringIO()
    set_up_logging("json", "info", stream)
    about = {"pod": "team-a/train", "node": "node-1", "tenant": "team-a", "reason": "bound"}
    logging.getLogger("fairbind.kube").info("bound", extra=about)
    logging.getLogger("fairbind.kube").info("listed")
    bound, listed = (json.loads(line) for line in stream.getvalue().splitlines())

    assert set(listed) == {"time", "level", "logger", "message"}
    assert bound == listed | about | {"message": "bound", "time": bound["time"]}


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels(level: str, shown: int) -> None:
    stream = io.StringIO()
    set_up_logging("console", level, stream)
    logger = logging.getLogger("fairbind.test")
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logger.log(number, "said")
    assert stream.getvalue().count("said") == shown


def test_kopf_is_heard_only_by_those_who_debug() -> None:
    quiet, talkative = io.StringIO(), io.StringIO()
    set_up_logging("console", "info", quiet)
    logging.getLogger("kopf._cogs.clients.api").error("Request attempt #1/4 failed")
    set_up_logging("console", "debug", talkative)
    logging.getLogger("kopf._cogs.clients.api").error("Request attempt #1/4 failed")
    assert quiet.getvalue() == ""
    assert "debug   kopf" in talkative.getvalue()


def test_a_traceback_follows_its_line_on_the_console() -> None:
    try:
        fail()
    except ValueError:
        record = logging.LogRecord("fairbind.x", logging.ERROR, "", 0, "outer", None, sys.exc_info())
    first, *rest = ConsoleFormatter(is_colourful=False).format(record).splitlines()
    assert first.endswith("x: outer")
    assert rest[-1] == "ValueError: inner"
