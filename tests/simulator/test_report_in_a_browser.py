"""The report in a real Chromium: it is laid out, no part is cut, and colours follow the browser's scheme."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape, unescape
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib import colors, image

from fairbind.simulator.charts import DARK, LIGHT
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.report import compute_report
from fairbind.simulator.reproduction.outcome import Comparison, Outcome
from fairbind.simulator.reproduction.page import compute_page
from fairbind.simulator.results import FindingRow
from simulator.scenarios import make_entry, make_scenario, run
from simulator.test_report import make_page

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
MARGIN = 10
"""Pixels at the right that no part of the page may reach."""
LONG = "team-of-" + "many-" * 16 + "names"
MEASURE = """<script>onload = () => {
  const page = document.querySelector("iframe").contentDocument, found = [], heights = [];
  const width = page.defaultView.innerWidth;
  for (const each of page.querySelectorAll("body *")) {
    const box = each.getBoundingClientRect(), head = each.closest("thead"), svg = each.closest("svg");
    if (head && page.defaultView.getComputedStyle(head).clipPath != "none") continue;  // for screen readers only
    const edge = svg ? svg.getBoundingClientRect().right : width;
    const isCut = !svg && each.clientWidth && each.scrollWidth > each.clientWidth + 1;
    if (isCut || box.right > edge + 0.5 || box.left < 0) found.push(each.outerHTML.slice(0, 200));
    if (each.tagName == "text") heights.push(box.height);
  }
  const least = Math.min(...heights);
  document.body.textContent = "found " + JSON.stringify({width: page.documentElement.scrollWidth, found, least});
}</script>"""

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is here")]


def to_pixel(colour: str) -> list[int]:
    return [round(255 * part) for part in colors.to_rgb(colour)]


def browse(folder: Path, *words: str) -> str:
    assert BROWSER is not None
    flags = [
        "--headless=new",
        "--no-sandbox",  # it may be run as root, and the page is ours
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        f"--user-data-dir={folder / 'profile'}",
    ]
    return subprocess.run([BROWSER, *flags, *words], capture_output=True, text=True, timeout=600, check=True).stdout


def show(folder: Path, width: int, *, is_dark: bool) -> NDArray[np.int_]:
    """Return the pixels of the page's beginning, shape (height, width, 3)."""
    page, picture = folder / "report.html", folder / "report.png"
    page.write_text(make_page()[0], encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if is_dark else 1}"
    browse(folder, scheme, f"--window-size={width},1600", f"--screenshot={picture}", page.as_uri())
    pixels: NDArray[np.int_] = np.rint(255 * image.imread(picture)[:, :, :3]).astype(np.int_)
    return pixels


def make_wide_page() -> str:
    """Return a report with more and longer names than a page is wide."""
    capacity = {"cpu": 4, **{f"example.com/a-resource-with-a-long-name-{n}": 3 for n in range(12)}}
    document = make_scenario(horizon=2_000_000, measureEvery=100_000)
    document["cluster"] = [{"shape": f"{n}-{LONG}", "capacity": capacity} for n in range(9)]
    document["tenants"] = [{"name": f"{n}-{LONG}"} for n in range(9)]
    document["workload"] = [
        make_entry(f"w{n}", tenant=tenant["name"], tasks=[1, 5, 20, 80, 300, 600][n % 6], duration=700_000)
        for n, tenant in enumerate(document["tenants"])
    ]
    found = run(document)
    names = [tenant["name"] for tenant in document["tenants"]]
    rows = tuple(FindingRow(name, names[0], "history", 1_000_000, 0.0, 0.5) for name in names)
    policies = ["kube-scheduler-rule", "two-choices-drfh", "a" * 63]
    return compute_report(parse_scenario(document), [replace(found, policy=name, findings=rows) for name in policies])


@pytest.mark.parametrize("width", [600, 1000])
@pytest.mark.parametrize(("is_dark", "background", "colours"), [(False, "#ffffff", LIGHT), (True, "#16181b", DARK)])
def test_the_page_is_drawn_in_the_colours_of_the_browser(
    tmp_path: Path, width: int, background: str, colours: tuple[str, ...], *, is_dark: bool
) -> None:
    pixels = show(tmp_path, width, is_dark=is_dark)

    assert pixels.shape[1] == width
    assert (pixels[:, -MARGIN:] == to_pixel(background)).all(), "the page is wider than the window"
    for colour in colours[:2]:
        assert (pixels == to_pixel(colour)).all(axis=2).sum() > 100, "a line of each of two tenants"


def measure(folder: Path, page: str, width: int) -> dict[str, Any]:
    """Return how wide a page is, what of it is cut, and how large the least text of a chart is.

    The page stands in a frame, because a window is 500 pixels wide at least.
    """
    frame = folder / "frame.html"
    style = f"border: 0; width: {width}px; height: 900px"
    frame.write_text(f'<body><iframe style="{style}" srcdoc="{escape(page)}"></iframe>{MEASURE}', encoding="utf-8")
    (found,) = re.findall(r"found (\{.*\})", browse(folder, "--dump-dom", frame.as_uri()))
    measured: dict[str, Any] = json.loads(unescape(found))
    return measured


@pytest.mark.parametrize("width", [390, 768, 1000, 1280])
@pytest.mark.parametrize("is_wide", [False, True])
def test_no_column_is_cut_at_any_width(tmp_path: Path, width: int, *, is_wide: bool) -> None:
    measured = measure(tmp_path, make_wide_page() if is_wide else make_page()[0], width)

    assert measured["found"] == []
    assert measured["width"] <= width
    assert measured["least"] >= 10, "texts of charts are as large as one can read"


@pytest.mark.parametrize("width", [390, 1280])
def test_no_column_of_the_papers_evaluations_is_cut(tmp_path: Path, width: int) -> None:
    compared = Comparison(
        "precisely achieves it", "nearly", "https://example.com/" + "a-long-address/" * 9, "contradicts"
    )
    outcome = Outcome("drf-figure-1", "A figure", "A setting.", ("a",), ((1,),), (), (compared,))
    measured = measure(tmp_path, compute_page([outcome], "small", ["earlier.svg", "earlier.csv"]), width)

    assert measured["found"] == []
    assert measured["width"] <= width
