"""The pictures of the guides are whole, and no number in one contradicts another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import mechanism_pages
from fairbind.fairness.problems.parse import parse_problem
from pictures import compute_pictures
from pictures.mechanisms import compute_even_tasks
from pictures.shares import ARRIVALS, PODS, STEP, compute_fair_shares, simulate

ROOT = Path(__file__).resolve().parents[2]
PICTURES = compute_pictures(ROOT)
MOST_OF_A_PICTURE = 0.02


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_whole_and_shown_by_a_page(path: Path) -> None:
    picture = ET.fromstring(PICTURES[path])
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]

    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-label"]
    assert [page.name for page in pages if f"images/{path.name}" in page.read_text(encoding="utf-8")]


def test_the_picture_of_the_example_has_the_numbers_of_its_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(?:best-fit-drfh|ps-dsf)`.*?\| (\d+) pods.*?\| (\d+) pods", readme, re.MULTILINE)
    drawn = re.findall(r">(?:a|b): (\d+) pods<", PICTURES[ROOT / "docs" / "images" / "totals.svg"])

    assert len(table) == 2
    assert [number for row in table for number in row] == drawn


def test_shares_come_to_the_fair_shares_before_and_after_the_late_tenant() -> None:
    shares = simulate()
    late = ARRIVALS["team-c"] // STEP
    before, after = compute_fair_shares(["team-a", "team-b"]), compute_fair_shares(list(PODS))

    assert {name: shares[name][late - 1] for name in before} == pytest.approx(before, abs=MOST_OF_A_PICTURE)
    assert {name: shares[name][-1] for name in after} == pytest.approx(after, abs=MOST_OF_A_PICTURE)
    assert shares["team-c"][late - 1] == 0.0
    assert shares["team-a"][late] > after["team-a"]  # it comes down as pods end, and not at once


@pytest.mark.parametrize(
    ("name", "even"),
    [
        ("ps-dsf", [40, 40]),
        ("drfh", [4 / 3, 52 / 3, 25 / 3]),
        ("asset-fairness", [5, 15]),
        ("dynamic-drf", [7.5, 7.5, 15]),
    ],
)
def test_an_even_part_is_of_the_servers_that_a_tenant_may_use(name: str, even: list[float]) -> None:
    text = (ROOT / mechanism_pages.example_of(name)).read_text(encoding="utf-8")

    assert compute_even_tasks(parse_problem(json.loads(text))).tolist() == pytest.approx(even)
