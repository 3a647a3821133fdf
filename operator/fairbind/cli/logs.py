"""What the operator says: lines for people on a terminal, JSON objects for machines.

An object has the fields time, level, logger and message; traceback after an exception; and of pod (NAMESPACE/NAME),
node, tenant and reason those that the message is about.

Levels are promises. `info`: what an administrator wants to see once (synced, leading, stopping). `warning`: something
outside is wrong and we wait or go on without it. `error`: a fault. `debug`: every binding and every cycle.

kopf speaks in detail of each request that it repeats, at level error. What matters of that (which API is out of reach,
which CRD is missing) is said once by the operator itself, so kopf's own remarks on requests move to debug.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Literal, TextIO

LogFormat = Literal["console", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = ("console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")

_COLOURS = {logging.DEBUG: "2", logging.INFO: "32", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}
_OWN_PREFIX = "fairbind."


class ConsoleFormatter(logging.Formatter):
    """One line a record: time, level, part, message. Colours only where `is_colourful`."""

    def __init__(self, *, is_colourful: bool) -> None:
        super().__init__()
        self._is_colourful = is_colourful

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and its traceback below it where there is one."""
        clock = f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"
        level = f"{record.levelname.lower():7}"
        if self._is_colourful:
            level = f"\x1b[{_COLOURS.get(record.levelno, '0')}m{level}\x1b[0m"
        line = f"{clock} {level} {record.name.removeprefix(_OWN_PREFIX)}: {record.getMessage()}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class TameKopf(logging.Filter):
    """Lowers what kopf says of single requests and of its own start and stop to debug."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is shown; a record of kopf's is lowered by one promise first."""
        if record.name.startswith("kopf"):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return record.levelno >= self._level


def set_up_logging(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Send every log record to the stream (default: stderr) in this format, from this level up."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_make_formatter(log_format, stream))
    threshold = logging.getLevelNamesMapping()[level.upper()]
    handler.addFilter(TameKopf(threshold))
    logging.basicConfig(level=threshold, handlers=[handler], force=True)
    # Access by aiohttp and slow callbacks by asyncio are of use only to those who develop.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


def _make_formatter(log_format: LogFormat, stream: TextIO) -> logging.Formatter:
    if log_format == "console":
        return ConsoleFormatter(is_colourful=stream.isatty())
    from pythonjsonlogger.json import JsonFormatter  # noqa: PLC0415 - `fairbind --version` needs none of it

    return JsonFormatter(
        "{levelname}{name}{message}",
        style="{",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "traceback"},
        timestamp="time",
    )
