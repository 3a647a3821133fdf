"""Tables are aligned, fit the terminal and print whatever the terminal can."""

from __future__ import annotations

import io
import sys

import pytest

from fairbind.cli.mechanisms.tables import (
    find_width,
    format_numbers,
    format_percents,
    lay_out,
    lay_out_wrapped,
    measure,
    write_text,
)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([], []),
        ([0, 0.0], ["0", "0"]),
        ([1, 2, 30], ["1", "2", "30"]),
        ([1.0, 2.5], ["1.0000", "2.5000"]),
        ([0.25, 0], ["0.2500", "0"]),
        ([123456.789, 0.5], ["123456.8", "0.5"]),
        ([99999.5, 1], ["99999.5", "1.0"]),
        ([1e-5, 2], ["1e-05", "2"]),
        ([1e12, 1.5], ["1e+12", "1.5"]),
        ([1 / 3, 1e20], ["0.33333", "1e+20"]),
    ],
)
def test_numbers_below_each_other(values: list[float], shown: list[str]) -> None:
    assert format_numbers(values) == shown


def test_percents() -> None:
    assert format_percents([0, 1, 2 / 3, 1e-9]) == ["0.0 %", "100.0 %", "66.7 %", "0.0 %"]


def test_columns_are_aligned_whatever_the_script() -> None:
    lines = lay_out([["tenant", "tasks"], ["\u4e2d\u6587", "1"], ["e\u0301", "22"]])

    assert lines[2:] == ["\u4e2d\u6587        1", "e\u0301          22"]
    assert {measure(line) for line in lines} == {len("tenant  tasks")}


def test_the_last_column_is_wrapped() -> None:
    lines = lay_out_wrapped([["id", "what"], ["a", "word " * 30], ["b", ""]], width=50)

    assert all(len(line) <= 50 for line in lines)
    assert lines[-1] == "b"


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert find_width() == 77
    monkeypatch.setenv("COLUMNS", "5")
    assert find_width() == 40


def test_what_the_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    write_text("tenant \u4e2d")

    assert terminal.buffer.getvalue() == b"tenant \\u4e2d\n"
