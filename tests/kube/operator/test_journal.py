"""The journal's file: what is in it, how large it gets, and that trouble with it stops nobody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairbind.cluster.loop.journal import CycleRecord, Fingerprint, format_record, parse_journal
from fairbind.kube.operator import journal as journal_module
from fairbind.kube.operator.journal import JournalWriter

RECORD = CycleRecord(1, 0.0, 0.0, "tsf", 9, True, 0, False, Fingerprint(1, 1, 1, 1, 1, (), ()), (("u", "n"),), True)
PATIENCE = 60.0


def write(path: Path, numbers: range, *, max_bytes: int = 10**6) -> None:
    writer = JournalWriter(path, max_bytes=max_bytes)
    for number in numbers:
        writer.record(replace(RECORD, number=number))
    writer.close(PATIENCE)


def read(path: Path) -> list[int]:
    records, broken = parse_journal(path.read_bytes().splitlines())
    assert broken == []
    return [record.number for record in records]


def test_records_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, range(1, 4))
    write(path, range(1, 3))
    assert read(path) == [1, 2, 3, 1, 2]


def test_a_file_that_is_full_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    size = len(format_record(RECORD))
    write(path, range(1, 9), max_bytes=3 * size)
    assert read(path) == [7, 8]
    assert read(tmp_path / "journal.1") == [4, 5, 6]
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "journal.1"]


def test_a_record_larger_than_the_limit_has_a_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "journal", range(1, 3), max_bytes=10)
    assert (read(tmp_path / "journal.1"), read(tmp_path / "journal")) == ([1], [2])


def test_half_a_line_of_a_crash_spoils_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    line = format_record(RECORD)
    path.write_bytes(line + line[:30])
    write(path, range(2, 3))
    records, broken = parse_journal(path.read_bytes().splitlines())
    assert ([record.number for record in records], broken) == ([1, 2], [2])


def test_trouble_is_logged_once_and_writing_goes_on_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    writer = JournalWriter(folder / "journal")
    for number in (1, 2):
        writer.record(replace(RECORD, number=number))
    wait_until(writer._waiting.empty)
    wait_until(lambda: bool(caplog.records))
    folder.mkdir()
    writer.record(replace(RECORD, number=3))
    writer.close(PATIENCE)
    assert read(folder / "journal")[-1] == 3
    (message,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "misses cycles" in message.getMessage()
    assert "No such file" in message.getMessage()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    write(Path("/dev/full"), range(1, 4))
    (message,) = caplog.records
    assert "No space left" in message.getMessage()


def test_a_disk_that_hangs_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_module, "MAX_WAITING", 2)
    hanging, begun = threading.Event(), threading.Event()

    def hang(record: CycleRecord) -> bytes:
        begun.set()
        assert hanging.wait(PATIENCE)
        return format_record(record)

    monkeypatch.setattr(journal_module, "format_record", hang)
    writer = JournalWriter(tmp_path / "journal")
    writer.record(RECORD)
    assert begun.wait(PATIENCE)
    for number in range(2, 7):
        writer.record(replace(RECORD, number=number))
    writer.close(0.01)
    (message,) = caplog.records
    assert "too slow" in message.getMessage()
    hanging.set()
    wait_until(writer._waiting.empty)
    writer.close(PATIENCE)
    assert read(tmp_path / "journal") == [1, 2, 3]


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError
