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
from pictures.architecture import read_layers, read_pure
from pictures.mechanisms import compute_even_tasks
from pictures.shares import ARRIVALS, PODS, STEP, compute_fair_shares, simulate
from pictures.svg import CHOICE, ORANGE, PALE, SUPPLY, WHITE

ROOT = Path(__file__).resolve().parents[2]
PICTURES = compute_pictures(ROOT)
MOST_OF_A_PICTURE = 0.02
GROUNDS = (WHITE, PALE, SUPPLY, CHOICE)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_whole_and_shown_by_a_page(path: Path) -> None:
    picture = ET.fromstring(PICTURES[path])
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]

    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-label"]
    assert [page.name for page in pages if f"images/{path.name}" in page.read_text(encoding="utf-8")]


def test_the_picture_of_the_example_has_the_numbers_of_its_table() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(?:best-fit-drfh|ps-dsf)`.*?\| (\d+) pods.*?\| (\d+) pods", page, re.MULTILINE)
    drawn = re.findall(r">(?:a|b): (\d+) pods<", PICTURES[ROOT / "docs" / "images" / "totals.svg"])

    assert len(table) == 2
    assert [number for row in table for number in row] == drawn


def compute_luminance(colour: str) -> float:
    """Return the relative luminance of #RRGGBB, as WCAG 2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def compute_contrast(one: str, other: str) -> float:
    """Return the contrast ratio, from 1 to 21.

    >>> round(compute_contrast("#FFFFFF", "#000000")), round(compute_contrast("#E69F00", "#FFFFFF"), 1)
    (21, 2.2)
    """
    dark, light = sorted(map(compute_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def find_faint(text: str) -> set[tuple[str, str]]:
    """Return what is hard to see in a picture: words below 4.5:1 on any of the grounds, marks below 3:1 on white."""
    faint = set()
    for element in ET.fromstring(text).iter():
        tag, looks = element.tag.rpartition("}")[2], element.attrib
        if tag == "text":
            faint |= {(tag, looks["fill"]) for ground in GROUNDS if compute_contrast(looks["fill"], ground) < 4.5}
            continue
        for mark in {looks.get("fill", "none"), looks.get("stroke", "none")} - {"none", *GROUNDS}:
            faint |= {(tag, mark)} if compute_contrast(mark, WHITE) < 3 else set()
    return faint


@pytest.mark.parametrize(
    "path", [*PICTURES, *sorted((ROOT / "docs" / "mechanisms" / "examples").glob("*.svg"))], ids=lambda path: path.stem
)
def test_a_picture_can_be_seen_and_what_is_a_ground_only_has_a_frame(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    boxes = [each.attrib for each in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}rect")]
    framed = {(box["x"], box["y"], box["width"]) for box in boxes[1:] if box["stroke"] != "none"}

    assert find_faint(text) == set()
    assert [
        box for box in boxes[1:] if box["fill"] in GROUNDS[1:] and (box["x"], box["y"], box["width"]) not in framed
    ] == []


def test_faint_colours_are_found() -> None:
    faint = find_faint(PICTURES[ROOT / "docs" / "images" / "shares.svg"].replace(ORANGE, "#E69F00"))

    assert faint == {("polyline", "#E69F00"), ("rect", "#E69F00")}


def test_the_architecture_is_that_of_the_import_contracts() -> None:
    layers = read_layers()
    names = [name for layer in layers for name in layer]
    packages = {path.stem for path in (ROOT / "operator" / "fairbind").iterdir() if not path.stem.startswith("_")}
    drawn = re.findall(r">(\w+)</text>", PICTURES[ROOT / "docs" / "images" / "architecture.svg"])

    assert set(names) == packages - {"py"}
    assert [name for name in drawn if name in names] == names
    assert read_pure() == {"scheduling", "fairness", "model", "derived"}


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
