"""The report in a real Chromium: it is laid out, lines are drawn, and colours follow the browser's scheme."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib import colors, image

from fairbind.simulator.charts import COLOURS
from simulator.test_report import make_page

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
MARGIN = 10
"""Pixels at the right that no part of the page may reach."""

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is here")]


def to_pixel(colour: str) -> list[int]:
    return [round(255 * part) for part in colors.to_rgb(colour)]


def show(folder: Path, width: int, *, is_dark: bool) -> NDArray[np.int_]:
    """Return the pixels of the page's beginning, shape (height, width, 3)."""
    assert BROWSER is not None
    page, picture = folder / "report.html", folder / "report.png"
    page.write_text(make_page()[0], encoding="utf-8")
    words = [
        "--headless=new",
        "--no-sandbox",  # it may be run as root, and the page is ours
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        f"--window-size={width},1600",
        f"--screenshot={picture}",
        page.as_uri(),
    ]
    subprocess.run([BROWSER, *words], capture_output=True, timeout=600, check=True)
    pixels: NDArray[np.int_] = np.rint(255 * image.imread(picture)[:, :, :3]).astype(np.int_)
    return pixels


@pytest.mark.parametrize("width", [600, 1000])
@pytest.mark.parametrize(("is_dark", "background"), [(False, "#ffffff"), (True, "#16181b")])
def test_the_page_is_drawn_in_the_colours_of_the_browser(
    tmp_path: Path, width: int, background: str, *, is_dark: bool
) -> None:
    pixels = show(tmp_path, width, is_dark=is_dark)

    assert pixels.shape[1] == width
    assert (pixels[:, -MARGIN:] == to_pixel(background)).all(), "the page is wider than the window"
    for colour in COLOURS[:2]:
        assert (pixels == to_pixel(colour)).all(axis=2).sum() > 100, "a line of each of two policies"
